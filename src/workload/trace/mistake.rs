//! What can be wrong with one row.

use crate::workload::WorkloadError;

/// A mistake in a row, before the row's place is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// `None` when the row as a whole is not understood.
    pub field: Option<&'static str>,
    pub found: String,
    pub expected: String,
}

impl Mistake {
    pub fn new(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { field: None, found: found.into(), expected: expected.into() }
    }

    /// The same mistake in this field, if it does not name one already.
    #[must_use]
    pub fn within(mut self, field: &'static str) -> Self {
        self.field.get_or_insert(field);
        self
    }

    pub fn at_line(self, line: u64) -> WorkloadError {
        WorkloadError::Row { line, field: self.field, found: self.found, expected: self.expected }
    }
}
