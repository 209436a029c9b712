//! What can be wrong with one row.

use crate::workload::WorkloadError;

/// A mistake in a row, before the row's place is added. In a box, since most rows have none and the
/// results that could hold one are returned for each value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake(Box<Content>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    /// `None` when the row as a whole is not understood.
    field: Option<&'static str>,
    found: String,
    expected: String,
}

impl Mistake {
    #[cold]
    pub fn new(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self(Box::new(Content { field: None, found: found.into(), expected: expected.into() }))
    }

    /// The same mistake in this field, if it does not name one already.
    #[must_use]
    pub fn within(mut self, field: &'static str) -> Self {
        self.0.field.get_or_insert(field);
        self
    }

    /// The same mistake, where something else was expected.
    #[must_use]
    pub fn expecting(mut self, expected: impl Into<String>) -> Self {
        self.0.expected = expected.into();
        self
    }

    pub fn at_line(self, line: u64) -> WorkloadError {
        let Content { field, found, expected } = *self.0;
        WorkloadError::Row { line, field, found, expected }
    }
}
