//! Rows of a CSV file by the name of their columns, with the place in every error.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::BenchError;
use crate::text_file::{csv_problem, read_text, repeated_column};

pub(super) struct CsvRows {
    path: PathBuf,
    headers: csv::StringRecord,
    rows: csv::StringRecordsIntoIter<Cursor<String>>,
}

pub(super) struct Row<'a> {
    path: &'a Path,
    headers: &'a csv::StringRecord,
    record: csv::StringRecord,
}

impl CsvRows {
    pub fn open(path: &Path) -> Result<Self, BenchError> {
        let mut reader = csv::Reader::from_reader(Cursor::new(read_text(path)?));
        let headers = reader.headers().map_err(|error| unreadable(path, &error))?.clone();
        if let Some(column) = repeated_column(&headers) {
            return Err(BenchError::File {
                path: path.to_owned(),
                problem: format!("there are two columns `{column}`"),
                hint: "leave one of them out".to_owned(),
            });
        }
        Ok(Self { path: path.to_owned(), headers, rows: reader.into_records() })
    }

    /// # Errors
    /// The first of these columns that is not there.
    pub fn need(&self, columns: &[&str]) -> Result<(), BenchError> {
        match columns.iter().find(|column| !self.has_column(column)) {
            None => Ok(()),
            Some(column) => Err(BenchError::File {
                path: self.path.clone(),
                problem: format!("there is no column `{column}`"),
                hint: format!("give a table with the columns {}", columns.join(", ")),
            }),
        }
    }

    pub fn has_column(&self, column: &str) -> bool {
        self.headers.iter().any(|name| name == column)
    }

    /// The next row, if there is one.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, BenchError> {
        let Some(record) = self.rows.next() else { return Ok(None) };
        let record = record.map_err(|error| unreadable(&self.path, &error))?;
        Ok(Some(Row { path: &self.path, headers: &self.headers, record }))
    }
}

fn unreadable(path: &Path, error: &csv::Error) -> BenchError {
    let (line, problem) = csv_problem(error);
    BenchError::File {
        path: path.to_owned(),
        problem: format!("line {line}: {problem}"),
        hint: "give a CSV file with a header and rows of the same length".to_owned(),
    }
}

impl Row<'_> {
    /// The text of a column; empty where there is no such column.
    pub fn text(&self, column: &str) -> &str {
        let index = self.headers.iter().position(|name| name == column);
        index.and_then(|index| self.record.get(index)).unwrap_or_default().trim()
    }

    /// A value, if the cell is not empty.
    pub fn get<T: FromStr>(&self, column: &str, expected: &'static str) -> Result<Option<T>, BenchError> {
        match self.text(column) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| self.wrong(column, text, expected)),
        }
    }

    /// A finite number of at least 0, if the cell is not empty.
    pub fn number(&self, column: &str) -> Result<Option<f64>, BenchError> {
        const EXPECTED: &str = "a number of at least 0";
        match self.get::<f64>(column, EXPECTED)? {
            Some(value) if !(value.is_finite() && value >= 0.0) => {
                Err(self.wrong(column, self.text(column), EXPECTED))
            }
            value => Ok(value),
        }
    }

    /// A cell that must be filled.
    pub fn needed<T>(&self, column: &str, value: Option<T>, expected: &'static str) -> Result<T, BenchError> {
        value.ok_or_else(|| self.wrong(column, "", expected))
    }

    pub fn wrong(&self, column: &str, found: &str, expected: &'static str) -> BenchError {
        BenchError::Field {
            path: self.path.to_owned(),
            line: self.record.position().map_or(0, csv::Position::line),
            field: column.to_owned(),
            found: found.to_owned(),
            expected,
        }
    }
}
