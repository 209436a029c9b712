//! How far a trace has been read, for whoever waits for a run.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::units::SimTime;
use crate::workload::{Arrival, Workload, WorkloadError, WorkloadNotes};

/// A reader and the bytes that were taken from it.
pub(crate) struct CountingReader<R> {
    pub inner: R,
    pub num_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.num_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// A trace that knows its [`Workload::progress`]: by the bytes read of its file, packed or not, and by
/// the requests where a number of them ends it.
pub(super) struct TraceWithProgress<W> {
    pub trace: W,
    pub num_bytes_read: Arc<AtomicU64>,
    pub num_bytes: u64,
    pub num_requests: u64,
    pub max_requests: Option<u64>,
}

impl<W: Workload> Workload for TraceWithProgress<W> {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        self.trace.peek()
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        let arrival = self.trace.next()?;
        self.num_requests += u64::from(arrival.is_some());
        Ok(arrival)
    }

    fn finished(&mut self, index: u64, at: SimTime) {
        self.trace.finished(index, at);
    }

    fn aborted(&mut self, index: u64, at: SimTime) {
        self.trace.aborted(index, at);
    }

    fn progress(&self) -> Option<f64> {
        let share = |part: u64, whole: u64| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
        let read = share(self.num_bytes_read.load(Ordering::Relaxed), self.num_bytes);
        let asked = self.max_requests.map_or(0.0, |most| share(self.num_requests, most));
        // A pipe has no length before its end.
        (self.num_bytes > 0 || self.max_requests.is_some()).then(|| read.max(asked).min(1.0))
    }

    fn tenants(&self) -> &[String] {
        self.trace.tenants()
    }

    fn notes(&self) -> WorkloadNotes {
        self.trace.notes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::workload::trace::{Trace, TraceConfig, TraceFormat, TraceInput};

    const ROW: &str = "{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1, \"hash_ids\": [1]}\n";

    fn trace(rows: usize, max_requests: Option<u64>) -> TraceWithProgress<Trace> {
        let text = ROW.repeat(rows);
        let num_bytes = text.len() as u64;
        let num_bytes_read = Arc::<AtomicU64>::default();
        let reader = CountingReader { inner: Cursor::new(text), num_bytes: Arc::clone(&num_bytes_read) };
        let config =
            TraceConfig { format: Some(TraceFormat::Mooncake), max_requests, ..TraceConfig::new("t.jsonl") };
        let trace = Trace::new(TraceInput::new(reader).unwrap(), &config, None, 1).unwrap();
        TraceWithProgress { trace, num_bytes_read, num_bytes, num_requests: 0, max_requests }
    }

    #[test]
    fn a_trace_is_as_far_as_its_file_has_been_read() {
        let mut trace = trace(10_000, None);
        trace.next().unwrap();
        let first = trace.progress().unwrap();
        // Read in pieces of 128 KiB.
        assert!((0.1..0.4).contains(&first), "{first}");
        for _ in 1..10_000 {
            trace.next().unwrap().unwrap();
        }
        assert_eq!(trace.progress(), Some(1.0));
    }

    #[test]
    fn a_number_of_requests_ends_it_before() {
        let mut trace = trace(10_000, Some(4));
        for expected in [0.25, 0.5, 0.75, 1.0] {
            trace.next().unwrap().unwrap();
            assert!(trace.progress().unwrap() >= expected);
        }
        assert!(trace.next().unwrap().is_none());
    }
}
