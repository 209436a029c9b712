//! Why a sweep cannot go on.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::report::ReportError;
use crate::scenario::ScenarioError;
use crate::text_file::TextFileError;

#[derive(Debug, Error)]
pub enum SweepError {
    /// The sweep's file or its scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Text(#[from] TextFileError),
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("no point of the sweep can run; the first:\n{first}")]
    NoPoint { first: ScenarioError },
    #[error("--set {set}: the sweep varies `{field}`; leave one of them out")]
    Varied { set: String, field: String },
    /// What is there belongs to another sweep.
    #[error(
        "{} was begun differently: {change}\n  help: undo the change to go on, give --restart to begin anew, or \
         another folder with --out",
        folder.display()
    )]
    Changed { folder: PathBuf, change: String },
    #[error(
        "{} is there and has no sweep in it (no journal.jsonl); choose another folder with --out",
        folder.display()
    )]
    NotASweep { folder: PathBuf },
    #[error("another sweep is writing {}; wait for its end, or choose another folder with --out", folder.display())]
    Busy { folder: PathBuf },
    #[error("{}: line {line} is damaged; give --restart to begin anew", path.display())]
    Damaged { path: PathBuf, line: usize },
    /// Parts that do not make a whole.
    #[error("{0}")]
    Merge(String),
    #[error(transparent)]
    Report(#[from] ReportError),
    #[error("cannot start {threads} threads: {message}")]
    Threads { threads: usize, message: String },
}

impl SweepError {
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Write { path, source }
    }
}
