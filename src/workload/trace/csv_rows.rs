//! The rows of a CSV file (RFC 4180) whose first line names the columns.
//!
//! A row is a line: no value of these formats holds a line end. That keeps the line's number right
//! for line ends of both kinds and for blank lines, which the csv library loses.

use super::fields::{LENGTH_TOKENS, TimeUnit};
use super::input::TraceInput;
use super::mistake::Mistake;
use crate::units::SimTime;
use crate::workload::WorkloadError;

pub(super) struct CsvRows {
    input: TraceInput,
    record: Record,
    num_columns: usize,
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
        mut input: TraceInput,
        required: &[&'static str],
        optional: &[&'static str],
    ) -> Result<Self, WorkloadError> {
        let mut header = Record::default();
        if let Some((_, text)) = input.next_line()? {
            header.split(text);
        }
        let num_columns = header.ends.len();
        let find = |name: &str| (0..num_columns).find(|&index| header.get(index) == name.as_bytes());
        let mut columns = Vec::new();
        for &name in required {
            let missing = || Mistake::new("no such column", "it in the first line").within(name).at_line(1);
            columns.push((name, find(name).ok_or_else(missing)?));
        }
        columns.extend(optional.iter().filter_map(|&name| Some((name, find(name)?))));
        Ok(Self { input, record: Record::default(), num_columns, columns })
    }

    pub fn next_row(&mut self) -> Result<Option<CsvRow<'_>>, WorkloadError> {
        let Some((line, text)) = self.input.next_line()? else { return Ok(None) };
        self.record.split(text);
        let found = self.record.ends.len();
        if found != self.num_columns {
            let expected = format!("{}, as in the first line", self.num_columns);
            return Err(Mistake::new(format!("{found} values"), expected).at_line(line));
        }
        Ok(Some(CsvRow { rows: self, line }))
    }
}

/// The values of a line, one after the other.
#[derive(Default)]
struct Record {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Record {
    fn split(&mut self, line: &[u8]) {
        self.bytes.clear();
        self.ends.clear();
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            if let Some(quoted) = rest.strip_prefix(b"\"") {
                rest = self.push_quoted(quoted);
            }
            let end = memchr::memchr(b',', rest).unwrap_or(rest.len());
            self.bytes.extend_from_slice(rest[..end].trim_ascii_end());
            self.ends.push(self.bytes.len());
            if end == rest.len() {
                return;
            }
            rest = &rest[end + 1..];
        }
    }

    /// Takes a value up to its closing quote; two quotes stand for one. Returns what follows.
    fn push_quoted<'a>(&mut self, mut rest: &'a [u8]) -> &'a [u8] {
        loop {
            let end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
            self.bytes.extend_from_slice(&rest[..end]);
            match rest.get(end + 1) {
                Some(b'"') => {
                    self.bytes.push(b'"');
                    rest = &rest[end + 2..];
                }
                _ => return rest.get(end + 1..).unwrap_or_default(),
            }
        }
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }
}

impl<'a> CsvRow<'a> {
    /// The text of a column; empty if there is no such column.
    pub fn text(&self, column: &'static str) -> Result<&'a str, Mistake> {
        let index = self.rows.columns.iter().find(|(name, _)| *name == column).map(|(_, index)| *index);
        let bytes = index.map_or(&[][..], |index| self.rows.record.get(index));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn values(line: &str) -> Vec<String> {
        let mut record = Record::default();
        record.split(line.as_bytes());
        (0..record.ends.len()).map(|index| String::from_utf8(record.get(index).to_vec()).unwrap()).collect()
    }

    #[test]
    fn values_are_split_at_commas_outside_of_quotes() {
        assert_eq!(values("a,b c, d ,"), ["a", "b c", "d", ""]);
        assert_eq!(values(""), [""]);
        assert_eq!(values(r#""a,b", "say ""so""",c"#), ["a,b", "say \"so\"", "c"]);
        assert_eq!(values(r#""open,b"#), ["open,b"]);
    }
}
