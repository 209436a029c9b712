//! From measured kernel timings to the coefficients of the cost model.
//!
//! [`Timings::read`] reads tables, [`fit_profiles`] fits every operation's law to them, and
//! [`evaluate`] compares a profile with timings it has not seen. [`fit_hashing`] does for block hashing
//! on the CPU what the others do for a GPU.

mod error;
mod errors;
mod evaluate;
mod fit;
mod fit_profile;
pub mod gpu;
mod hashing;
mod operation;
mod operations;
mod optimise;
mod row;
mod scatter;
mod table;
mod timings;

pub use error::CalibrateError;
pub use evaluate::{Evaluated, OperationErrors, Sample, evaluate};
pub use fit_profile::{Origin, fit_profiles};
pub use hashing::fit_hashing;
pub use scatter::scatter_plot;
pub use timings::Timings;
