//! Measured timings become cost coefficients.

pub mod gpu;
