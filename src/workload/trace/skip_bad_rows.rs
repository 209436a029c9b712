//! Goes on where a row cannot be read.

use super::{SkippedRows, TraceReader, TraceRequest};
use crate::workload::WorkloadError;

/// Leaves out bad rows and counts them.
pub(super) struct SkipBadRows {
    reader: Box<dyn TraceReader>,
    skipped: SkippedRows,
}

impl SkipBadRows {
    pub fn new(reader: Box<dyn TraceReader>) -> Self {
        Self { reader, skipped: SkippedRows::default() }
    }
}

impl TraceReader for SkipBadRows {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        loop {
            match self.reader.next_request() {
                Err(error @ WorkloadError::Row { .. }) => {
                    self.skipped.count += 1;
                    self.skipped.first.get_or_insert_with(|| error.to_string());
                }
                other => return other,
            }
        }
    }

    fn time_field(&self) -> &'static str {
        self.reader.time_field()
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.reader.hash_id_tokens()
    }

    fn tenants(&self) -> &[String] {
        self.reader.tenants()
    }

    fn notes(&self) -> Vec<String> {
        self.reader.notes()
    }

    fn skipped(&self) -> SkippedRows {
        self.skipped.clone()
    }
}
