//! Many runs: sweeps over a scenario's fields, plans of what to rent, hit rates over the size of the
//! cache, and what two runs or points differ in.

pub mod compare;
pub mod hit_rate_curve;
mod journal;
pub mod plan;
pub mod statistics;
pub mod sweep;

pub use journal::JournalError;
