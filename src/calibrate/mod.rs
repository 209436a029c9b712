//! From measured kernel timings to the coefficients of the cost model.
//!
//! [`Timings::read`] reads tables, [`fit_profiles`] fits every operation's law to them, and
//! [`evaluate`] compares a profile with timings it has not seen.

mod error;
mod errors;
mod evaluate;
mod fit;
mod fit_profile;
pub mod gpu;
mod operation;
mod operations;
mod optimise;
mod row;
mod scatter;
mod table;

pub use error::CalibrateError;
pub use evaluate::{Evaluated, OperationErrors, Sample, evaluate};
pub use fit_profile::{Origin, fit_profiles};
pub use scatter::scatter_plot;
pub use table::Timings;
