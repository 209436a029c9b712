//! Files of measurements that cannot be used.

use std::path::PathBuf;

use thiserror::Error;

use crate::cost::ProfileError;
use crate::scenario::ScenarioError;
use crate::simulation::SimulationError;
use crate::text_file::TextFileError;

#[derive(Debug, Error)]
pub enum BenchError {
    #[error(transparent)]
    Text(#[from] TextFileError),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// A value that is not what its column holds.
    #[error("{}: line {line}, field `{field}`: found {found:?}, expected {expected}", path.display())]
    Field { path: PathBuf, line: u64, field: String, found: String, expected: &'static str },
    #[error("{}: {problem}; {hint}", path.display())]
    File { path: PathBuf, problem: String, hint: String },
    #[error("run {run}: {source}")]
    Settings { run: String, source: Box<ScenarioError> },
    #[error("run {run}: {source}")]
    Simulation { run: String, source: SimulationError },
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("{problem}; {hint}")]
    Fit { problem: String, hint: &'static str },
}
