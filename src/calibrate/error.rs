//! What is wrong with a table or a profile: where, what, and what to give instead.

use std::path::PathBuf;

use thiserror::Error;

use crate::cost::ProfileError;
use crate::text_file::TextFileError;

#[derive(Debug, Error)]
pub enum CalibrateError {
    #[error(transparent)]
    Text(#[from] TextFileError),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {problem}\n  help: {hint}", path.display())]
    Row { path: PathBuf, line: u64, problem: String, hint: String },
    /// One value of a row; columns count from 1.
    #[error("{}:{line}: column {column} (`{name}`): {problem}\n  help: {hint}", path.display())]
    Value { path: PathBuf, line: u64, column: usize, name: String, problem: String, hint: String },
    #[error("{problem}\n  help: {hint}")]
    Use { problem: String, hint: String },
    #[error("{}: {source}", path.display())]
    Profile { path: PathBuf, source: Box<ProfileError> },
}
