//! A trace of which a generator takes times or lengths.

use std::path::PathBuf;

use super::trace::{Trace, TraceConfig};
use super::{Arrival, Workload, WorkloadError};
use crate::units::SimTime;

/// An opened trace that names its file in errors.
pub struct Recording {
    path: PathBuf,
    trace: Trace,
}

/// What is used of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedRequest {
    pub at: SimTime,
    pub input_tokens: u32,
    pub output_tokens: u32,
}

impl Recording {
    /// `trace` is what [`Trace::new`] made of `config`.
    pub fn new(config: &TraceConfig, trace: Trace) -> Self {
        Self { path: config.path.clone(), trace }
    }

    pub(super) fn next_row(&mut self) -> Result<Option<RecordedRequest>, WorkloadError> {
        let recorded = |Arrival { at, request }: Arrival| RecordedRequest {
            at,
            input_tokens: request.prompt.len(),
            output_tokens: request.output.len(),
        };
        Ok(self.next()?.map(recorded))
    }

    fn in_file(&self, error: WorkloadError) -> WorkloadError {
        WorkloadError::InFile { path: self.path.clone(), source: Box::new(error) }
    }
}

/// The trace itself, as part of a mix.
impl Workload for Recording {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        self.trace.peek().map_err(|error| self.in_file(error))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        self.trace.next().map_err(|error| self.in_file(error))
    }

    fn finished(&mut self, index: u64, at: SimTime) {
        self.trace.finished(index, at);
    }

    fn aborted(&mut self, index: u64, at: SimTime) {
        self.trace.aborted(index, at);
    }

    fn tenants(&self) -> &[String] {
        self.trace.tenants()
    }
}
