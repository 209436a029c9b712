//! The rows of a CSV file (RFC 4180) whose first line names the columns.

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder, Trim};

use super::fields::{LENGTH_TOKENS, TimeUnit};
use super::input::TraceInput;
use super::mistake::Mistake;
use crate::units::SimTime;
use crate::workload::WorkloadError;

pub(super) struct CsvRows {
    reader: Reader<TraceInput>,
    record: ByteRecord,
    /// Where each column that was asked for stands.
    columns: Vec<(&'static str, usize)>,
}

/// A row, while the next has not been read.
pub(super) struct CsvRow<'a> {
    rows: &'a CsvRows,
    pub line: u64,
}

impl CsvRows {
    /// Reads the first line. Each of `required` must be a column, `optional` ones may be.
    pub fn new(
        input: TraceInput,
        required: &[&'static str],
        optional: &[&'static str],
    ) -> Result<Self, WorkloadError> {
        let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(input);
        let header = reader.byte_headers().map_err(|error| located(error, 1))?.clone();
        let find = |name: &str| header.iter().position(|column| column == name.as_bytes());
        let mut columns = Vec::new();
        for &name in required {
            let missing = || Mistake::new("no such column", "it in the first line").within(name).at_line(1);
            columns.push((name, find(name).ok_or_else(missing)?));
        }
        columns.extend(optional.iter().filter_map(|&name| Some((name, find(name)?))));
        Ok(Self { reader, record: ByteRecord::new(), columns })
    }

    pub fn next_row(&mut self) -> Result<Option<CsvRow<'_>>, WorkloadError> {
        let line = self.reader.position().line();
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {
                let line = self.record.position().map_or(line, csv::Position::line);
                Ok(Some(CsvRow { rows: self, line }))
            }
            Ok(false) => Ok(None),
            Err(error) => Err(located(error, line)),
        }
    }
}

impl<'a> CsvRow<'a> {
    /// The text of a column; empty if there is no such column.
    pub fn text(&self, column: &'static str) -> Result<&'a str, Mistake> {
        let index = self.rows.columns.iter().find(|(name, _)| *name == column).map(|(_, index)| *index);
        let bytes = index.and_then(|index| self.rows.record.get(index)).unwrap_or_default();
        std::str::from_utf8(bytes)
            .map_err(|_| Mistake::new("bytes that are not UTF-8", "UTF-8 text").within(column))
    }

    /// A length in tokens.
    pub fn length_tokens(&self, column: &'static str) -> Result<u32, Mistake> {
        let text = self.text(column)?;
        match text.parse::<u64>() {
            // Their range is within u32.
            Ok(value) if (LENGTH_TOKENS.min..=LENGTH_TOKENS.max).contains(&value) => Ok(value as u32),
            _ => Err(Mistake::new(found(text), LENGTH_TOKENS.to_string()).within(column)),
        }
    }

    pub fn time(&self, column: &'static str, unit: TimeUnit) -> Result<SimTime, Mistake> {
        let text = self.text(column)?;
        unit.parse(text).ok_or_else(|| Mistake::new(found(text), unit.to_string()).within(column))
    }
}

/// A value for messages.
pub(super) fn found(text: &str) -> String {
    if text.is_empty() { "nothing".to_owned() } else { format!("`{text}`") }
}

fn located(error: csv::Error, line: u64) -> WorkloadError {
    match error.into_kind() {
        ErrorKind::Io(source) => WorkloadError::Read { line, source },
        ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let expected = format!("{expected_len}, as in the first line");
            Mistake::new(format!("{len} values"), expected).at_line(pos.map_or(line, |pos| pos.line()))
        }
        other => Mistake::new(format!("{other:?}"), "rows of CSV").at_line(line),
    }
}
