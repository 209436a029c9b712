//! What can be wrong with a scenario, with the place where it was typed.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Where a value was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the scenario's file. Line and column count from 1, in characters; `offset` and `len` are
    /// bytes.
    File { line: u64, column: u64, offset: usize, len: usize },
    /// In an override, such as `engine.block_size=8`.
    Override(String),
    /// Nowhere: it is a default.
    Default,
}

/// A scenario that cannot run.
#[derive(Debug, Error)]
pub enum ScenarioError {
    #[error("cannot read {}: {source}; check the path", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: byte {valid_up_to} is not UTF-8; save the file as UTF-8 text", path.display())]
    NotUtf8 { path: PathBuf, valid_up_to: usize },
    #[error("{}{}: {problem}; {hint}", position(file, place), in_field(field))]
    Field {
        file: PathBuf,
        /// The file's content, to show the line.
        text: String,
        place: Place,
        /// Path of the field, such as `engine.block_size`; empty for the scenario as a whole.
        field: String,
        problem: String,
        /// What to type instead.
        hint: String,
    },
    /// In the file of a trace.
    #[error("{}:{line}: {problem}; {hint}", path.display())]
    Trace { path: PathBuf, line: u64, problem: String, hint: String },
}

fn position(file: &std::path::Path, place: &Place) -> String {
    match place {
        Place::File { line, column, .. } => format!("{}:{line}:{column}", file.display()),
        Place::Override(text) => format!("{}: override `{text}`", file.display()),
        Place::Default => file.display().to_string(),
    }
}

fn in_field(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!(": `{field}`") }
}

/// A problem of one field, before the file's name and text are added to it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {problem}; {hint}")]
pub(super) struct FieldError {
    /// `None` until the value around it adds its own.
    pub place: Option<Place>,
    pub field: String,
    pub problem: String,
    pub hint: String,
}

impl FieldError {
    pub fn new(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { place: None, field: String::new(), problem: problem.into(), hint: hint.into() }
    }
}

/// Of all `known` names the one that was probably meant by `typed`, and all of them.
pub(super) fn suggest(typed: &str, known: &[impl AsRef<str>]) -> String {
    let nearest = known
        .iter()
        .map(|name| (strsim::normalized_damerau_levenshtein(typed, name.as_ref()), name.as_ref()))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let all = known.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ");
    match nearest {
        None => "leave it out: nothing can stand here".to_owned(),
        Some((likeness, name)) if likeness > 0.5 => format!("did you mean `{name}`? There are: {all}"),
        Some(_) => format!("there are: {all}"),
    }
}
