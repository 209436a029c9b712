//! Traces that many simulations replay: read once and kept in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    HfTokenizer, SkippedRows, TraceConfig, TraceFormat, TraceInput, TraceReader, TraceRequest, open,
};
use crate::workload::WorkloadError;

/// The requests of a trace. Copies share them. A [`TraceInput`] can be made of it instead of a file.
#[derive(Clone)]
pub struct SharedTrace(Arc<Content>);

struct Content {
    format: TraceFormat,
    requests: Vec<TraceRequest>,
    time_field: &'static str,
    hash_id_tokens: Option<u32>,
    tenants: Vec<String>,
    notes: Vec<String>,
    skipped: SkippedRows,
}

impl SharedTrace {
    /// Reads a trace as far as `config` replays it. `tokenizer` is what it names.
    ///
    /// # Errors
    /// It cannot be read so far, or its format cannot be told.
    pub fn read(
        input: TraceInput,
        config: &TraceConfig,
        tokenizer: Option<HfTokenizer>,
    ) -> Result<Self, WorkloadError> {
        let (format, mut reader) = open(input, &config.read_options(tokenizer))?;
        let max_requests = config.max_requests.unwrap_or(u64::MAX);
        let mut requests = Vec::new();
        while (requests.len() as u64) < max_requests
            && let Some(request) = reader.next_request()?
        {
            requests.push(request);
        }
        Ok(Self(Arc::new(Content {
            format,
            requests,
            time_field: reader.time_field(),
            hash_id_tokens: reader.hash_id_tokens(),
            tenants: reader.tenants().to_vec(),
            notes: reader.notes(),
            skipped: reader.skipped(),
        })))
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

    fn hash_id_tokens(&self) -> Option<u32> {
        self.trace.0.hash_id_tokens
    }

    fn tenants(&self) -> &[String] {
        &self.trace.0.tenants
    }

    fn notes(&self) -> Vec<String> {
        self.trace.0.notes.clone()
    }

    fn skipped(&self) -> SkippedRows {
        self.trace.0.skipped.clone()
    }
}

/// Traces by their file and how it is read: a few.
#[derive(Clone, Default)]
pub struct SharedTraces(Vec<(PathBuf, TraceConfig, SharedTrace)>);

impl SharedTraces {
    /// Keeps what was read of the file at `path` as `config` says.
    pub fn insert(&mut self, path: PathBuf, config: &TraceConfig, trace: SharedTrace) {
        if self.get(&path, config).is_none() {
            self.0.push((path, config.reading(), trace));
        }
    }

    /// The same requests as the file at `path` would give, if they are here.
    pub fn get(&self, path: &Path, config: &TraceConfig) -> Option<SharedTrace> {
        let reading = config.reading();
        let mut known = self.0.iter();
        known.find(|(file, known, _)| file == path && *known == reading).map(|(_, _, trace)| trace.clone())
    }

    /// The files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|(path, _, _)| path.as_path())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::workload::Workload;
    use crate::workload::trace::Trace;

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
        let shared = SharedTrace::read(input(), &config, None).unwrap();
        for _ in 0..2 {
            let mut file = Trace::new(input(), &config, None, 1).unwrap();
            let mut memory = Trace::new(shared.clone().into(), &config, None, 1).unwrap();
            assert_eq!(memory.format(), TraceFormat::Mooncake);
            for _ in 0..3 {
                assert_eq!(memory.next().unwrap(), file.next().unwrap());
            }
        }
    }

    #[test]
    fn a_bad_row_counts_only_where_it_is_read() {
        let read = |max| {
            let config = TraceConfig { max_requests: Some(max), ..TraceConfig::new("") };
            SharedTrace::read(input(), &config, None)
        };
        assert!(read(2).is_ok());
        assert!(matches!(read(3), Err(WorkloadError::Row { line: 3, .. })));
    }
}
