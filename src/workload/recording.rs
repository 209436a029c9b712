//! A trace of which a generator takes times or lengths.

use std::path::{Path, PathBuf};

use super::WorkloadError;
use super::trace::{TraceConfig, TraceInput, TraceReader, TraceRequest, open};
use crate::units::SimTime;

/// The file of a trace, opened.
pub struct TraceFile {
    /// For messages.
    pub path: PathBuf,
    pub input: TraceInput,
}

/// An open trace that names its file in errors.
pub(super) struct Recording {
    path: PathBuf,
    reader: Box<dyn TraceReader>,
    requests_left: u64,
    rate_scale: f64,
    last_at: SimTime,
}

impl Recording {
    /// The requests of the file that `config` names.
    pub fn new(file: TraceFile, config: &TraceConfig) -> Result<Self, WorkloadError> {
        let TraceFile { path, input } = file;
        let (_, reader) = open(input, &config.read_options()).map_err(|error| in_file(&path, error))?;
        Ok(Self {
            path,
            reader,
            requests_left: config.max_requests.unwrap_or(u64::MAX),
            rate_scale: config.rate_scale,
            last_at: SimTime::ZERO,
        })
    }

    /// When the next request was sent, at the scaled rate; `None` at the end.
    pub fn next_time(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        let Some(request) = self.next_request()? else { return Ok(None) };
        let wrong = |found: String, expected: String| {
            let field = Some(self.reader.time_field());
            Err(in_file(&self.path, WorkloadError::Row { line: request.line, field, found, expected }))
        };
        let Some(at) = request.at else { return wrong("nothing".into(), "a time".into()) };
        if at < self.last_at {
            let expected = format!("at least {}, the time of the row before; sort the rows", self.last_at);
            return wrong(at.to_string(), expected);
        }
        self.last_at = at;
        Ok(Some(SimTime((at.as_ns() as f64 / self.rate_scale).round() as u64)))
    }

    /// How long prompt and answer of the next request were; `None` at the end.
    pub fn next_lengths(&mut self) -> Result<Option<(u32, u32)>, WorkloadError> {
        Ok(self.next_request()?.map(|request| (request.prompt.len(), request.output.len())))
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        if self.requests_left == 0 {
            return Ok(None);
        }
        self.requests_left -= 1;
        self.reader.next_request().map_err(|error| in_file(&self.path, error))
    }
}

/// The error with the name of its file, which the caller does not know.
pub(super) fn in_file(path: &Path, error: WorkloadError) -> WorkloadError {
    WorkloadError::InFile { path: path.to_owned(), source: Box::new(error) }
}
