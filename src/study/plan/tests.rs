//! Tests of whole plans.
