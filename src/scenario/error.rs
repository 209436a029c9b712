//! What is wrong with a scenario: where, what, and what to type instead.

use std::fmt;
use std::path::PathBuf;

/// One problem of one file. Displays as `file:line:column: message`, with a hint on a line of its
/// own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The scenario, a file it names, or an option such as `--set`.
    pub source: PathBuf,
    /// Counted from 1.
    pub line: Option<usize>,
    pub column: Option<usize>,
    pub message: String,
    pub hint: Option<String>,
}

impl ScenarioError {
    pub(super) fn new(source: impl Into<PathBuf>, message: impl ToString) -> Self {
        Self { source: source.into(), line: None, column: None, message: message.to_string(), hint: None }
    }

    pub(super) fn at(mut self, line: Option<usize>) -> Self {
        self.line = line;
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        write!(f, ": {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  help: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}
