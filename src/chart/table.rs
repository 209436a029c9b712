//! Numbers behind a chart, or beside it.

/// A head and rows of as many cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// So many columns from the left are text; the rest are numbers.
    pub text_columns: usize,
}

impl Table {
    /// Without rows.
    pub fn new(text_columns: usize, head: &[&str]) -> Self {
        Self { head: head.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new(), text_columns }
    }

    pub fn push(&mut self, row: impl IntoIterator<Item = String>) {
        self.rows.push(row.into_iter().collect());
    }
}
