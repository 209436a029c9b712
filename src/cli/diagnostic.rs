//! An error in its parts, for programs: where, what, and what to do instead.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::calibrate::CalibrateError;
use crate::conformance::CaseError;
use crate::cost::ProfileError;
use crate::report::ReportError;
use crate::scenario::ScenarioError;
use crate::simulation::SimulationError;
use crate::study::JournalError;
use crate::study::hit_rate_curve::CurveError;
use crate::study::plan::PlanError;
use crate::study::sweep::SweepError;
use crate::text_file::TextFileError;
use crate::trace_tools::TraceError;
use crate::validate::BenchError;
use crate::workload::WorkloadError;

/// The fields that the event of an error has; a part that is not known is null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Diagnostic {
    pub file: Option<PathBuf>,
    /// From 1.
    pub line: Option<u64>,
    /// From 1.
    pub column: Option<u64>,
    pub message: String,
    pub hint: Option<String>,
}

/// An error of what is in a file, which it does not know itself.
#[derive(Debug)]
pub(super) struct InFile {
    file: PathBuf,
    /// With the file's name.
    text: String,
    error: Box<dyn Error>,
}

impl InFile {
    /// Shown as `file: error`.
    pub fn new(file: &Path, error: impl Into<Box<dyn Error>>) -> Self {
        let error = error.into();
        Self { file: file.to_owned(), text: format!("{}: {error}", file.display()), error }
    }

    /// Shown as `text`.
    pub fn with_text(file: &Path, text: String, error: impl Into<Box<dyn Error>>) -> Self {
        Self { file: file.to_owned(), text, error: error.into() }
    }
}

impl fmt::Display for InFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for InFile {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.error.as_ref())
    }
}

/// What clap says of a command that it does not understand.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(super) struct Usage {
    text: String,
}

impl Usage {
    /// `rendered` is a message, perhaps a tip, and the usage, with blank lines between.
    pub fn new(rendered: &str) -> Self {
        let mut parts = rendered.split("\n\n").map(|part| part.trim().replace("\n", " "));
        let message = parts.next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        let hint: Vec<String> =
            parts.filter(|part| !part.is_empty() && !part.starts_with("For more")).collect();
        let help = if hint.is_empty() { String::new() } else { format!("\n  help: {}", hint.join("; ")) };
        Self { text: format!("{message}{help}") }
    }
}

impl Diagnostic {
    /// The parts of an error; of one that is a text only, what stands behind the first `;` is the hint.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let known: [fn(&(dyn Error + 'static)) -> Option<Diagnostic>; 14] = [
            |error| error.downcast_ref().map(of_in_file),
            |error| error.downcast_ref().map(of_scenario),
            |error| error.downcast_ref().map(of_text_file),
            |error| error.downcast_ref().map(of_workload),
            |error| error.downcast_ref().map(of_trace),
            |error| error.downcast_ref().map(of_simulation),
            |error| error.downcast_ref().map(of_report),
            |error| error.downcast_ref().map(of_sweep),
            |error| error.downcast_ref().map(of_plan),
            |error| error.downcast_ref().map(of_curve),
            |error| error.downcast_ref().map(of_calibrate),
            |error| error.downcast_ref().map(of_bench),
            |error| error.downcast_ref().map(of_case),
            |error| error.downcast_ref().map(of_profile),
        ];
        known.iter().find_map(|of| of(error)).unwrap_or_else(|| Self::of_text(&error.to_string()))
    }

    fn of_text(text: &str) -> Self {
        let (message, hint) = match text.split_once("\n  help: ").or_else(|| text.split_once("; ")) {
            Some((message, hint)) => (message, Some(hint)),
            None => (text, None),
        };
        Self { message: message.to_owned(), hint: hint.map(str::to_owned), ..Self::default() }
    }

    fn file(mut self, file: &Path) -> Self {
        self.file.get_or_insert_with(|| file.to_owned());
        self
    }

    fn at(mut self, line: u64, column: Option<u64>) -> Self {
        (self.line, self.column) = (Some(line), column);
        self
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

fn of_in_file(error: &InFile) -> Diagnostic {
    let inner = error.error.as_ref();
    // The system does not say what it could not do.
    let of_inner =
        if inner.is::<io::Error>() { Diagnostic::of_text(&error.text) } else { Diagnostic::of(inner) };
    of_inner.file(&error.file)
}

fn of_scenario(error: &ScenarioError) -> Diagnostic {
    Diagnostic {
        file: Some(error.source.clone()),
        line: error.line.map(|line| line as u64),
        column: error.column.map(|column| column as u64),
        message: error.message.clone(),
        hint: error.hint.clone(),
    }
}

fn of_text_file(error: &TextFileError) -> Diagnostic {
    match error {
        TextFileError::Read { path, .. } => Diagnostic::of_text(&error.to_string()).file(path),
        TextFileError::NotUtf8 { path, line, column, byte, .. } => {
            Diagnostic::of_text(&format!("the byte 0x{byte:02x} is not UTF-8 text"))
                .file(path)
                .at(*line as u64, Some(*column as u64))
                .hint("save the file as UTF-8")
        }
    }
}

fn of_workload(error: &WorkloadError) -> Diagnostic {
    match error {
        WorkloadError::Row { line, field, found, expected } => {
            let of_field = field.map_or_else(String::new, |field| format!("field `{field}`: "));
            let message = format!("{of_field}found {found}");
            Diagnostic { message, ..Diagnostic::default() }
                .hint(format!("expected {expected}"))
                .at(*line, None)
        }
        WorkloadError::Read { line, source } => {
            Diagnostic::of_text(&format!("cannot read the trace: {source}")).at(*line, None)
        }
        WorkloadError::InFile { path, source } => of_workload(source).file(path),
        other => Diagnostic::of_text(&other.to_string()),
    }
}

fn of_trace(error: &TraceError) -> Diagnostic {
    match error {
        TraceError::Read(error) => of_workload(error),
        TraceError::Lacks { line, problem, instead } => {
            Diagnostic::of_text(problem).hint(instead).at(*line, None)
        }
        other => Diagnostic::of_text(&other.to_string()),
    }
}

fn of_simulation(error: &SimulationError) -> Diagnostic {
    match error {
        SimulationError::Workload(error) => of_workload(error),
        SimulationError::Request { trace_line: Some(line), source, .. } => {
            Diagnostic::of_text(&source.to_string()).at(*line, None)
        }
        other => Diagnostic::of_text(&other.to_string()),
    }
}

fn of_report(error: &ReportError) -> Diagnostic {
    let (ReportError::Write { path, .. } | ReportError::NotAReport { path } | ReportError::Busy { path }) =
        error;
    Diagnostic::of_text(&error.to_string()).file(path)
}

fn of_sweep(error: &SweepError) -> Diagnostic {
    match error {
        SweepError::Scenario(error) => of_scenario(error),
        SweepError::Text(error) => of_text_file(error),
        SweepError::Report(error) => of_report(error),
        SweepError::NoPoint { first } => of_first("no point of the sweep can run", first),
        SweepError::Journal(error) => of_journal(error),
        SweepError::Read { path, .. } | SweepError::Write { path, .. } => {
            Diagnostic::of_text(&error.to_string()).file(path)
        }
        other => Diagnostic::of_text(&other.to_string()),
    }
}

fn of_journal(error: &JournalError) -> Diagnostic {
    let text = Diagnostic::of_text(&error.to_string());
    match error {
        JournalError::Damaged { path, line } => text.file(path).at(*line as u64, None),
        JournalError::Read { path, .. }
        | JournalError::Write { path, .. }
        | JournalError::Changed { folder: path, .. }
        | JournalError::IsAnother { folder: path, .. }
        | JournalError::Busy { folder: path, .. } => text.file(path),
    }
}

fn of_plan(error: &PlanError) -> Diagnostic {
    match error {
        PlanError::Scenario(error) => of_scenario(error),
        PlanError::Text(error) => of_text_file(error),
        PlanError::Report(error) => of_report(error),
        PlanError::Sweep(error) => of_sweep(error),
        PlanError::Journal(error) => of_journal(error),
        PlanError::NoCandidate { first } => of_first("no candidate can run", first),
        other => Diagnostic::of_text(&other.to_string()),
    }
}

fn of_curve(error: &CurveError) -> Diagnostic {
    match error {
        CurveError::Scenario(error) => of_scenario(error),
        CurveError::Text(error) => of_text_file(error),
        CurveError::Report(error) => of_report(error),
        CurveError::Sweep(error) => of_sweep(error),
        CurveError::NoSize { first } => of_first("none of the sizes can be simulated", first),
        CurveError::Requests { place, source } => of_trace(source).file(Path::new(place)),
        other => Diagnostic::of_text(&other.to_string()),
    }
}

/// The first of several errors of one kind.
fn of_first(all: &str, first: &ScenarioError) -> Diagnostic {
    let first = of_scenario(first);
    Diagnostic { message: format!("{all}; the first: {}", first.message), ..first }
}

fn of_calibrate(error: &CalibrateError) -> Diagnostic {
    match error {
        CalibrateError::Row { path, line, problem, hint } => {
            Diagnostic::of_text(problem).hint(hint).file(path).at(*line, None)
        }
        CalibrateError::Value { path, line, column, name, problem, hint } => {
            let message = format!("column {column} (`{name}`): {problem}");
            Diagnostic { message, ..Diagnostic::default() }.hint(hint).file(path).at(*line, None)
        }
        CalibrateError::Profile { path, source } => of_profile(source).file(path),
        CalibrateError::Text(error) => of_text_file(error),
        CalibrateError::Write { path, .. } => Diagnostic::of_text(&error.to_string()).file(path),
        CalibrateError::Use { problem, hint } => Diagnostic::of_text(problem).hint(hint),
    }
}

fn of_bench(error: &BenchError) -> Diagnostic {
    match error {
        BenchError::Field { path, line, field, found, expected } => {
            let message = format!("field `{field}`: found {found:?}");
            let diagnostic = Diagnostic { message, ..Diagnostic::default() };
            diagnostic.hint(format!("expected {expected}")).file(path).at(*line, None)
        }
        BenchError::File { path, problem, hint } => Diagnostic::of_text(problem).hint(hint).file(path),
        BenchError::Text(error) => of_text_file(error),
        BenchError::Write { path, .. } => Diagnostic::of_text(&error.to_string()).file(path),
        BenchError::Profile(error) => of_profile(error),
        other => Diagnostic::of_text(&other.to_string()),
    }
}

fn of_case(error: &CaseError) -> Diagnostic {
    match error {
        CaseError::Json { line, column, message } => {
            Diagnostic::of_text(message).at(*line as u64, Some(*column as u64))
        }
        other => Diagnostic::of_text(&other.to_string()),
    }
}

fn of_profile(error: &ProfileError) -> Diagnostic {
    match error {
        ProfileError::Yaml { line, column, problem } => Diagnostic::of_text(problem).at(*line, Some(*column)),
        other => Diagnostic::of_text(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_taken_apart_below_the_name_of_its_file() {
        let row = WorkloadError::Row {
            line: 3,
            field: Some("input_length"),
            found: "`-3`".to_owned(),
            expected: "a whole number".to_owned(),
        };
        let error = InFile::new(Path::new("t.jsonl"), TraceError::Read(row));
        assert_eq!(
            error.to_string(),
            "t.jsonl: line 3, field `input_length`: found `-3`, expected a whole number"
        );
        let expected = Diagnostic {
            file: Some("t.jsonl".into()),
            line: Some(3),
            column: None,
            message: "field `input_length`: found `-3`".to_owned(),
            hint: Some("expected a whole number".to_owned()),
        };
        assert_eq!(Diagnostic::of(&error), expected);
    }

    #[test]
    fn a_text_is_split_where_its_hint_begins() {
        let of = |text: &str| {
            let error: Box<dyn Error> = text.into();
            let Diagnostic { message, hint, .. } = Diagnostic::of(error.as_ref());
            (message, hint)
        };
        assert_eq!(of("it is so"), ("it is so".to_owned(), None));
        assert_eq!(of("it is so; do this"), ("it is so".to_owned(), Some("do this".to_owned())));
        assert_eq!(of("it; is\n  help: do this"), ("it; is".to_owned(), Some("do this".to_owned())));
    }
}
