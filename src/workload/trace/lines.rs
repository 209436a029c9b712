//! A text file line by line, for the formats that have a row on each.

use std::io::{BufRead, Read};

use crate::workload::WorkloadError;

/// Longer lines are refused, so that a file without line ends cannot fill the memory.
const MAX_LINE_BYTES: u64 = 256 * 1024 * 1024;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Lines of UTF-8 that end in LF or CRLF; a byte order mark at the start is dropped, and so are
/// blank lines.
pub(super) struct Lines {
    input: Box<dyn BufRead + Send>,
    buffer: Vec<u8>,
    line: u64,
}

impl Lines {
    pub fn new(input: Box<dyn BufRead + Send>) -> Self {
        Self { input, buffer: Vec::new(), line: 0 }
    }

    /// The next line that is not blank, without white space around it, and its number from 1.
    pub fn next_line(&mut self) -> Result<Option<(u64, &str)>, WorkloadError> {
        loop {
            self.line += 1;
            self.buffer.clear();
            let length_bytes = self
                .input
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|source| WorkloadError::Read { line: self.line, source })?;
            if length_bytes == 0 {
                return Ok(None);
            }
            if length_bytes as u64 == MAX_LINE_BYTES {
                return Err(self.error("a line that does not end", "a row of less than 256 MiB"));
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let text = std::str::from_utf8(&self.buffer).map_err(|error| {
            let found = format!("bytes that are not UTF-8 at column {}", error.valid_up_to() + 1);
            self.error(&found, "UTF-8 text; plain or gzip, no other compression")
        })?;
        let text = if self.line == 1 { text.trim_start_matches(BYTE_ORDER_MARK) } else { text };
        Ok(Some((self.line, text.trim_ascii())))
    }

    fn error(&self, found: &str, expected: &str) -> WorkloadError {
        WorkloadError::Row { line: self.line, field: None, found: found.into(), expected: expected.into() }
    }
}
