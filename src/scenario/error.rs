//! What is wrong with a scenario: where, what, and what to type instead.

use std::fmt;
use std::path::{Path, PathBuf};

/// Where a value was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the scenario's file; line and column count from 1.
    File { line: usize, column: usize },
    /// In another file that changes the scenario.
    OtherFile { file: PathBuf, line: usize, column: usize },
    /// In an override, such as `engine.block_size=8`.
    Override(String),
}

/// What is to be corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// What was typed cannot be read: syntax, a field or a name that there is not, a missing file.
    Typing,
    /// It was read, and no server could start with it.
    Meaning,
}

/// One problem of one file. Displays as `file:line:column: message`, with a hint on a line of its
/// own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    pub kind: ErrorKind,
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
        Self {
            kind: ErrorKind::Meaning,
            source: source.into(),
            line: None,
            column: None,
            message: message.to_string(),
            hint: None,
        }
    }

    /// An error of what was typed at a place of the scenario `file`; without a place, of the whole.
    pub(super) fn at(file: &Path, place: Option<&Place>, message: impl ToString) -> Self {
        let error = Self::new(file, message);
        match place {
            Some(Place::File { line, column }) => Self { line: Some(*line), column: Some(*column), ..error },
            Some(Place::OtherFile { file, line, column }) => {
                Self { source: file.clone(), line: Some(*line), column: Some(*column), ..error }
            }
            Some(Place::Override(text)) => {
                Self { source: format!("{} with --set {text}", file.display()).into(), ..error }
            }
            None => error,
        }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn kind(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// What is wrong and what to do, without the place.
    pub fn without_place(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.message),
            None => self.message.clone(),
        }
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

/// A problem of one field, before the file's name is added to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {hint}")]
pub(crate) struct FieldError {
    /// `None` until the value around it adds its own.
    pub place: Option<Place>,
    /// Its path, such as `engine.block_size`; empty for the scenario as a whole.
    pub field: String,
    pub problem: String,
    /// What to type instead.
    pub hint: String,
}

impl FieldError {
    pub fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { place: None, field: String::new(), problem: problem.into(), hint: hint.into() }
    }

    pub fn in_file(self, file: &Path) -> ScenarioError {
        let of_field = if self.field.is_empty() { String::new() } else { format!("`{}`: ", self.field) };
        let message = format!("{of_field}{}", self.problem);
        ScenarioError::at(file, self.place.as_ref(), message).hint(self.hint).kind(ErrorKind::Typing)
    }
}

/// Of all `known` names the one that was probably meant by `typed`, and all of them.
pub(crate) fn suggest(typed: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|name| (strsim::normalized_damerau_levenshtein(typed, name), name))
        .filter(|(likeness, _)| *likeness > 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((_, name)) => format!("did you mean `{name}`? There are: {}", known.join(", ")),
        None => format!("use one of: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised() {
        let known = ["block_size", "watermark"];
        let hint = "did you mean `block_size`? There are: block_size, watermark";
        assert_eq!(suggest("block_sise", &known), hint);
        assert_eq!(suggest("zebra", &known), "use one of: block_size, watermark");
    }
}
