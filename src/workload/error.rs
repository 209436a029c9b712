//! What can be wrong with a workload. The caller knows the file's name and adds it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A trace that cannot be read on.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// A row that is not what the format says.
    #[error("line {line}{}: found {found}, expected {expected}", in_field(*.field))]
    Row {
        /// Counted from 1.
        line: u64,
        /// `None` when the row as a whole is not understood.
        field: Option<&'static str>,
        found: String,
        expected: String,
    },
    /// The trace needs a setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the trace is empty; give one with requests")]
    Empty,
    /// Nothing in the beginning of a trace tells its format.
    #[error(
        "cannot tell the format of a trace that begins with {found}; give one: `format: ...` with {formats}"
    )]
    UnknownFormat { found: String, formats: String },
    #[error("line {line}: cannot read the trace: {source}")]
    Read { line: u64, source: io::Error },
    /// An error of a trace that is not the whole workload, so that the caller does not know it.
    #[error("{}: {source}", .path.display())]
    InFile { path: PathBuf, source: Box<Self> },
    /// Parts of a mix have a range of token ids each, so that nothing of one is equal to something of
    /// another.
    #[error(
        "part `{part}` of the mix uses more token ids than a part has (2^54); \
         a trace with hash ids as large as that can only be a workload of its own"
    )]
    TokenIds { part: String },
}

fn in_field(field: Option<&'static str>) -> String {
    field.map_or_else(String::new, |name| format!(", field `{name}`"))
}

/// A setting whose value makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{field}`: found {found}, expected {expected}")]
pub struct ConfigError {
    /// The path from the validated struct, such as `message_tokens.lognormal.sigma`.
    pub field: String,
    pub found: String,
    /// What to type instead.
    pub expected: String,
}

impl ConfigError {
    pub(crate) fn new(field: impl Into<String>, found: impl ToString, expected: impl Into<String>) -> Self {
        Self { field: field.into(), found: found.to_string(), expected: expected.into() }
    }

    /// The same error seen from the struct that holds the validated one as `parent`.
    pub(crate) fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}

/// An error of `field`, unless its value is valid.
pub(crate) fn require(
    valid: bool,
    field: &str,
    found: impl ToString,
    expected: impl Into<String>,
) -> Result<(), ConfigError> {
    if valid { Ok(()) } else { Err(ConfigError::new(field, found, expected)) }
}
