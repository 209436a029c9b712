//! Curves.
