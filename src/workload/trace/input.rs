//! The content of a trace file, with its beginning looked at before it is read.

use std::io::{self, BufRead, Read};

use super::decompress::decompress;
use super::head::Head;
use super::shared::SharedTrace;
use crate::workload::WorkloadError;

const BUFFER_BYTES: usize = 256 * 1024;

/// The names that tell a format must lie within so many bytes.
const HEAD_BYTES: usize = 64 * 1024;

/// Longer lines are refused, so that a file without line ends cannot fill the memory.
const MAX_LINE_BYTES: usize = 256 * 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A decompressed file, read in large pieces. Lines are handed out where they lie, without a copy.
pub struct TraceInput {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// What has been read and not consumed: `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Lines consumed.
    lines: u64,
    /// The content was read before; there is nothing else then.
    shared: Option<SharedTrace>,
}

impl From<SharedTrace> for TraceInput {
    fn from(trace: SharedTrace) -> Self {
        Self {
            source: Box::new(io::empty()),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            lines: 0,
            shared: Some(trace),
        }
    }
}

impl TraceInput {
    /// The content of `file`, plain, gzip or zstd. A byte order mark at its start is dropped.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(file: impl Read + Send + 'static) -> io::Result<Self> {
        let source = decompress(file)?;
        let mut input =
            Self { source, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, lines: 0, shared: None };
        if input.peek(BYTE_ORDER_MARK.len())? == BYTE_ORDER_MARK {
            input.start += BYTE_ORDER_MARK.len();
        }
        Ok(input)
    }

    pub(super) fn shared(&self) -> Option<&SharedTrace> {
        self.shared.as_ref()
    }

    /// What the content begins with.
    pub(super) fn head(&mut self) -> Result<Option<Head>, WorkloadError> {
        let bytes = self.peek(HEAD_BYTES).map_err(|source| WorkloadError::Read { line: 1, source })?;
        Ok(Head::of(bytes))
    }

    /// The next `len` bytes, or what is left if that is less. `len` is at most the buffer's size.
    pub(super) fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        while self.end - self.start < len && self.read_more()? > 0 {}
        let end = self.end.min(self.start + len);
        Ok(&self.buffer[self.start..end])
    }

    /// The next line that is not blank, without white space around it, and its number from 1.
    pub(super) fn next_line(&mut self) -> Result<Option<(u64, &[u8])>, WorkloadError> {
        loop {
            let Some((line, start, end)) = self.take_line()? else { return Ok(None) };
            if !self.buffer[start..end].trim_ascii().is_empty() {
                return Ok(Some((line, self.buffer[start..end].trim_ascii())));
            }
        }
    }

    /// Consumes a line: its number and where in the buffer it lies.
    fn take_line(&mut self) -> Result<Option<(u64, usize, usize)>, WorkloadError> {
        let line = self.lines + 1;
        let mut searched = 0;
        loop {
            if let Some(found) = memchr::memchr(b'\n', &self.buffer[self.start + searched..self.end]) {
                let start = self.start;
                let end = start + searched + found;
                self.start = end + 1;
                self.lines = line;
                return Ok(Some((line, start, end)));
            }
            searched = self.end - self.start;
            if searched >= MAX_LINE_BYTES {
                // Nothing to go on from.
                let source = io::Error::new(io::ErrorKind::InvalidData, "a line of more than 256 MiB");
                return Err(WorkloadError::Read { line, source });
            }
            if self.read_more().map_err(|source| WorkloadError::Read { line, source })? == 0 {
                let (start, end) = (self.start, self.end);
                self.start = end;
                self.lines = line;
                return Ok((start < end).then_some((line, start, end)));
            }
        }
    }

    /// What has been read and not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes bytes that have been read.
    pub(super) fn take_bytes(&mut self, len: usize) -> &[u8] {
        let start = self.start;
        self.start += len;
        &self.buffer[start..self.start]
    }

    /// Reads behind what is there; 0 at the end of the source.
    pub(super) fn read_more(&mut self) -> io::Result<usize> {
        if self.end == self.buffer.len() {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(read) => {
                    self.end += read;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Read for TraceInput {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(out)?;
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for TraceInput {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.peek(1)?;
        Ok(&self.buffer[self.start..self.end])
    }

    fn consume(&mut self, len: usize) {
        self.start += len;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Hands out one byte at a time.
    struct Slow(Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let len = out.len().min(1);
            self.0.read(&mut out[..len])
        }
    }

    fn lines(mut input: TraceInput) -> Vec<(u64, String)> {
        let mut lines = Vec::new();
        while let Some((line, text)) = input.next_line().unwrap() {
            lines.push((line, String::from_utf8(text.to_vec()).unwrap()));
        }
        lines
    }

    #[test]
    fn lines_are_the_same_however_the_source_hands_out_its_bytes() {
        let text = "\u{feff}one\r\n\n  \ntwo \nthree";
        let expected = [(1, "one".to_owned()), (4, "two".to_owned()), (5, "three".to_owned())];
        let whole = Cursor::new(text.as_bytes().to_vec());
        assert_eq!(lines(TraceInput::new(whole.clone()).unwrap()), expected);
        assert_eq!(lines(TraceInput::new(Slow(whole)).unwrap()), expected);
        assert_eq!(lines(TraceInput::new(Cursor::new(Vec::new())).unwrap()), []);
    }

    #[test]
    fn a_line_may_be_longer_than_the_buffer() {
        let long = "x".repeat(3 * BUFFER_BYTES + 1);
        let text = format!("{long}\n{long}\nend\n");
        let input = TraceInput::new(Cursor::new(text.into_bytes())).unwrap();
        assert_eq!(lines(input), [(1, long.clone()), (2, long), (3, "end".to_owned())]);
    }

    #[test]
    fn peeking_consumes_nothing() {
        let mut input = TraceInput::new(Slow(Cursor::new(b"abc\n".to_vec()))).unwrap();
        assert_eq!(input.peek(2).unwrap(), b"ab");
        assert_eq!(input.peek(99).unwrap(), b"abc\n");
        assert_eq!(lines(input), [(1, "abc".to_owned())]);
    }
}
