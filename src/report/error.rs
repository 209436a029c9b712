//! Why a report could not be written.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum ReportError {
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "{} is there and is no report (it has no manifest.json); choose another folder with --out",
        path.display()
    )]
    NotAReport { path: PathBuf },
    #[error("another run is writing {}; wait for its end, or choose another folder with --out", path.display())]
    Busy { path: PathBuf },
}

impl ReportError {
    pub(super) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }
}
