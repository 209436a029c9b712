//! Why a plan cannot go on.

use thiserror::Error;

use crate::report::ReportError;
use crate::scenario::ScenarioError;
use crate::study::journal::JournalError;
use crate::study::sweep::SweepError;
use crate::text_file::TextFileError;

#[derive(Debug, Error)]
pub enum PlanError {
    /// The plan's file or its scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Text(#[from] TextFileError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("no candidate can run; the first:\n{first}")]
    NoCandidate { first: ScenarioError },
    #[error(transparent)]
    Sweep(SweepError),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("cannot start {threads} threads: {message}")]
    Threads { threads: usize, message: String },
    #[error("the plan was stopped; the same command goes on where it was")]
    Stopped,
    #[error("cannot write to the terminal: {0}")]
    Terminal(#[source] std::io::Error),
}

impl From<SweepError> for PlanError {
    fn from(error: SweepError) -> Self {
        match error {
            SweepError::NoPoint { first } => Self::NoCandidate { first },
            SweepError::Scenario(error) => Self::Scenario(error),
            other => Self::Sweep(other),
        }
    }
}
