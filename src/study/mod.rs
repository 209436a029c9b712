//! Many runs: sweeps over a scenario's fields, hit rates over the size of the cache, and what two runs
//! or points differ in.

pub mod compare;
pub mod hit_rate_curve;
pub mod statistics;
pub mod sweep;
