//! Why a sweep cannot go on.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::report::ReportError;
use crate::scenario::ScenarioError;
use crate::study::journal::JournalError;
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
    #[error(transparent)]
    Journal(#[from] JournalError),
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
