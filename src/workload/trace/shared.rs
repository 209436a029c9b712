//! Traces that many simulations replay: read once and kept in memory.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ReadOptions, TraceFormat, TraceInput, TraceReader, TraceRequest, open};
use crate::workload::WorkloadError;

/// The requests of a trace. Copies share them. A [`TraceInput`] can be made of it instead of a file.
#[derive(Clone)]
pub struct SharedTrace(Arc<Content>);

struct Content {
    format: TraceFormat,
    requests: Vec<TraceRequest>,
    time_field: &'static str,
    tenants: Vec<String>,
    notes: Vec<String>,
}

impl SharedTrace {
    /// Reads at most `max_requests` of a trace.
    ///
    /// # Errors
    /// It cannot be read so far, or its format cannot be told.
    pub fn read(input: TraceInput, options: &ReadOptions, max_requests: u64) -> Result<Self, WorkloadError> {
        let (format, mut reader) = open(input, options)?;
        let mut requests = Vec::new();
        while (requests.len() as u64) < max_requests
            && let Some(request) = reader.next_request()?
        {
            requests.push(request);
        }
        let (time_field, tenants, notes) = (reader.time_field(), reader.tenants().to_vec(), reader.notes());
        Ok(Self(Arc::new(Content { format, requests, time_field, tenants, notes })))
    }

    /// The format of the file that it was read from.
    pub fn format(&self) -> TraceFormat {
        self.0.format
    }

    pub(super) fn reader(&self) -> SharedReader {
        SharedReader { trace: self.clone(), next: 0 }
    }
}

pub(super) struct SharedReader {
    trace: SharedTrace,
    next: usize,
}

impl TraceReader for SharedReader {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let request = self.trace.0.requests.get(self.next).cloned();
        self.next += 1;
        Ok(request)
    }

    fn time_field(&self) -> &'static str {
        self.trace.0.time_field
    }

    fn tenants(&self) -> &[String] {
        &self.trace.0.tenants
    }

    fn notes(&self) -> Vec<String> {
        self.trace.0.notes.clone()
    }
}

/// Traces by their file and how it is read.
#[derive(Clone, Default)]
pub struct SharedTraces(HashMap<(PathBuf, ReadOptions), SharedTrace>);

impl SharedTraces {
    pub fn insert(&mut self, path: PathBuf, options: ReadOptions, trace: SharedTrace) {
        self.0.insert((path, options), trace);
    }

    pub fn get(&self, path: &Path, options: &ReadOptions) -> Option<SharedTrace> {
        self.0.get(&(path.to_owned(), options.clone())).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::workload::Workload;
    use crate::workload::trace::{Trace, TraceConfig};

    const TEXT: &str = concat!(
        "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 2, \"hash_ids\": [1, 2]}\n",
        "{\"timestamp\": 5, \"input_length\": 513, \"output_length\": 3, \"hash_ids\": [1, 3]}\n",
        "no row\n"
    );

    fn input() -> TraceInput {
        TraceInput::new(Cursor::new(TEXT)).unwrap()
    }

    #[test]
    fn what_is_shared_replays_as_the_file_does_and_again() {
        let config = TraceConfig { max_requests: Some(2), ..TraceConfig::new("") };
        let shared = SharedTrace::read(input(), &config.read_options(), 2).unwrap();
        for _ in 0..2 {
            let mut file = Trace::new(input(), &config).unwrap();
            let mut memory = Trace::new(shared.clone().into(), &config).unwrap();
            assert_eq!(memory.format(), TraceFormat::Mooncake);
            for _ in 0..3 {
                assert_eq!(memory.next().unwrap(), file.next().unwrap());
            }
        }
    }

    #[test]
    fn a_bad_row_counts_only_where_it_is_read() {
        let read = |max| SharedTrace::read(input(), &ReadOptions::default(), max);
        assert!(read(2).is_ok());
        assert!(matches!(read(3), Err(WorkloadError::Row { line: 3, .. })));
    }
}
