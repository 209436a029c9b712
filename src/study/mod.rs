//! Many runs: sweeps over a scenario's fields, and what two runs or points differ in.

pub mod compare;
pub mod format;
pub mod statistics;
pub mod sweep;
