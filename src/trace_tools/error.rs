//! What can go wrong with a trace that is told of or made into another.

use thiserror::Error;

use crate::reuse::TooManyBlocks;
use crate::workload::WorkloadError;

/// The caller knows the file's name and adds it.
#[derive(Debug, Error)]
pub enum TraceError {
    #[error(transparent)]
    Read(#[from] WorkloadError),
    #[error(transparent)]
    TooManyBlocks(#[from] TooManyBlocks),
    /// A request has not what is asked of all.
    #[error("line {line}: {problem}; {instead}")]
    Lacks {
        /// Counted from 1.
        line: u64,
        problem: String,
        /// What to do.
        instead: String,
    },
    /// The trace as a whole has not what is asked of it.
    #[error("{0}")]
    Unfit(String),
    /// What is made cannot be written. Whoever writes says in the error what and where.
    #[error(transparent)]
    Write(#[from] std::io::Error),
}
