//! Why there is no curve.

use thiserror::Error;

use crate::report::ReportError;
use crate::scenario::ScenarioError;
use crate::study::sweep::SweepError;
use crate::text_file::TextFileError;
use crate::trace_tools::TraceError;

#[derive(Debug, Error)]
pub enum CurveError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Text(#[from] TextFileError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("none of the sizes can be simulated; the first:\n{first}")]
    NoSize { first: ScenarioError },
    /// Of the simulations.
    #[error(transparent)]
    Sweep(SweepError),
    /// A request that cannot be read or counted.
    #[error("{place}: {source}")]
    Requests {
        /// The trace, or the scenario.
        place: String,
        source: TraceError,
    },
    #[error("{scenario}: no request looks into the prefix cache: there is no hit rate")]
    NoLookups { scenario: String },
}

impl From<SweepError> for CurveError {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::NoPoint { first } => Self::NoSize { first },
            error => Self::Sweep(error),
        }
    }
}
