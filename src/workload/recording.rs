//! A trace of which a generator takes times or lengths.

use std::path::{Path, PathBuf};

use super::trace::{
    HfTokenizer, TraceArrivals, TraceConfig, TraceFormat, TraceInput, TraceReader, TraceRequest, open,
};
use super::{ConfigError, WorkloadError, WorkloadNotes, require};
use crate::units::SimTime;

/// The file of a trace, opened.
pub struct TraceFile {
    /// For messages.
    pub path: PathBuf,
    pub input: TraceInput,
    /// Where its configuration names one.
    pub tokenizer: Option<HfTokenizer>,
}

/// An open trace that names its file in errors.
pub(super) struct Recording {
    path: PathBuf,
    format: TraceFormat,
    reader: Box<dyn TraceReader>,
    requests_left: u64,
    rate_scale: f64,
}

/// Checks the configuration of a trace of which a generator takes something.
pub(super) fn validate(config: &TraceConfig) -> Result<(), ConfigError> {
    config.validate()?;
    let recorded = config.arrivals == TraceArrivals::Recorded;
    for (field, is_default) in [
        ("arrivals", recorded),
        ("closed_loop", !config.closed_loop),
        ("think_time_s", config.think_time_s.is_none()),
        ("reuse", config.reuse.is_none()),
    ] {
        let expected = "nothing: of this trace only times or lengths are used";
        require(is_default, field, "a value", expected)?;
    }
    Ok(())
}

impl Recording {
    /// The requests of the file that `config` names.
    pub fn new(file: TraceFile, config: &TraceConfig) -> Result<Self, WorkloadError> {
        let TraceFile { path, input, tokenizer } = file;
        let (format, reader) =
            open(input, &config.read_options(tokenizer)).map_err(|error| in_file(&path, error))?;
        let requests_left = config.max_requests.unwrap_or(u64::MAX);
        Ok(Self { path, format, reader, requests_left, rate_scale: config.rate_scale })
    }

    /// When the next request was sent, at the scaled rate; `None` at the end.
    pub fn next_time(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        let Some(request) = self.next_request()? else { return Ok(None) };
        let at = request.at.ok_or_else(|| {
            let row = WorkloadError::Row {
                line: request.line,
                field: Some(self.reader.time_field()),
                found: "nothing".into(),
                expected: "a time".into(),
            };
            in_file(&self.path, row)
        })?;
        Ok(Some(SimTime((at.as_ns() as f64 / self.rate_scale).round() as u64)))
    }

    /// How long prompt and answer of the next request were; `None` at the end.
    pub fn next_lengths(&mut self) -> Result<Option<(u32, u32)>, WorkloadError> {
        Ok(self.next_request()?.map(|request| (request.prompt.len(), request.output.len())))
    }

    pub fn notes(&self) -> WorkloadNotes {
        let skipped = self.reader.skipped();
        WorkloadNotes {
            trace_format: Some(self.format.name()),
            notes: self.reader.notes(),
            // Only times or lengths are taken.
            hash_id_tokens: None,
            skipped_rows: skipped.count,
            first_skipped_row: skipped.first,
        }
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        if self.requests_left == 0 {
            return Ok(None);
        }
        self.requests_left -= 1;
        self.reader.next_request().map_err(|error| in_file(&self.path, error))
    }
}

/// The error with the name of its file, which the caller does not know. One of a setting needs none.
pub(super) fn in_file(path: &Path, error: WorkloadError) -> WorkloadError {
    match error {
        WorkloadError::Config(error) => error.into(),
        error => WorkloadError::InFile { path: path.to_owned(), source: Box::new(error) },
    }
}
