//! What a report has to say of where its requests come from.

use serde::Serialize;

/// Nothing, for a workload that is all in its scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkloadNotes {
    /// The format of the trace, as the scenario names it.
    pub trace_format: Option<&'static str>,
    /// What was assumed where the trace does not tell, in sentences.
    pub notes: Vec<String>,
    /// The tokens that a hash id of the trace stands for, once its first request has been read.
    #[serde(skip)]
    pub hash_id_tokens: Option<u32>,
    /// Rows of the trace that could not be read and were left out.
    pub skipped_rows: u64,
    /// What was wrong with the first of them.
    pub first_skipped_row: Option<String>,
}

impl WorkloadNotes {
    /// Adds what another source of the same workload has to say.
    pub(super) fn extend(&mut self, other: Self) {
        self.trace_format = self.trace_format.or(other.trace_format);
        self.notes
            .extend(other.notes.into_iter().filter(|note| !self.notes.contains(note)).collect::<Vec<_>>());
        self.hash_id_tokens = self.hash_id_tokens.or(other.hash_id_tokens);
        self.skipped_rows += other.skipped_rows;
        self.first_skipped_row = self.first_skipped_row.take().or(other.first_skipped_row);
    }
}
