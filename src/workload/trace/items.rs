//! A file of JSON values, whether they are the items of one list or follow one another.

use super::input::TraceInput;
use super::mistake::Mistake;
use crate::workload::WorkloadError;

/// Longer values are refused, so that a file without an end cannot fill the memory.
const MAX_ITEM_BYTES: usize = 256 * 1024 * 1024;

/// Reads one value after the other, however the file is broken into lines.
pub(super) struct Items {
    input: TraceInput,
    place: Place,
    /// The line at the start of what has not been consumed, counted from 1.
    line: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    /// Before an item of a list; a comma comes first if there was one before.
    InList {
        is_first: bool,
    },
    /// Before a value outside of a list.
    Outside,
    End,
}

impl Items {
    pub fn new(input: TraceInput) -> Self {
        Self { input, place: Place::Start, line: 1 }
    }

    /// The next value and the line that it begins on. After an error in the structure the file has
    /// ended.
    pub fn next_item(&mut self) -> Result<Option<(u64, &[u8])>, WorkloadError> {
        let place = std::mem::replace(&mut self.place, Place::End);
        if place == Place::End {
            return Ok(None);
        }
        let first = self.skip_white_space()?;
        let place = match (place, first) {
            (Place::InList { .. }, None) => {
                return Err(self.wrong("the end of the file", "`]` at the end of the list"));
            }
            (_, None) => return Ok(None),
            (Place::Start, Some(b'[')) => {
                self.consume(1);
                Place::InList { is_first: true }
            }
            (Place::Start, Some(_)) => Place::Outside,
            (place, Some(_)) => place,
        };
        if let Place::InList { is_first } = place {
            match (self.skip_white_space()?, is_first) {
                (Some(b']'), _) => {
                    self.consume(1);
                    return match self.skip_white_space()? {
                        None => Ok(None),
                        Some(_) => Err(self.wrong("more behind the list", "one list")),
                    };
                }
                (Some(b','), false) => {
                    self.consume(1);
                    self.skip_white_space()?;
                }
                (Some(_), true) => {}
                _ => return Err(self.wrong("no comma between two items", "`,` or `]`")),
            }
        }
        let len = self.item_len()?;
        let line = self.line;
        self.place = match place {
            Place::InList { .. } => Place::InList { is_first: false },
            other => other,
        };
        let item = self.input.take_bytes(len);
        self.line += memchr::memchr_iter(b'\n', item).count() as u64;
        Ok(Some((line, item)))
    }

    fn wrong(&self, found: &str, expected: &str) -> WorkloadError {
        Mistake::new(found, expected).at_line(self.line)
    }

    fn consume(&mut self, len: usize) {
        self.input.take_bytes(len);
    }

    /// Steps over white space; the byte that comes then, if there is one.
    fn skip_white_space(&mut self) -> Result<Option<u8>, WorkloadError> {
        loop {
            let line = self.line;
            let bytes = self.input.peek(1).map_err(|source| WorkloadError::Read { line, source })?;
            match bytes.first() {
                Some(byte) if byte.is_ascii_whitespace() => {
                    self.line += u64::from(*byte == b'\n');
                    self.consume(1);
                }
                other => return Ok(other.copied()),
            }
        }
    }

    /// The length of the value that comes next.
    fn item_len(&mut self) -> Result<usize, WorkloadError> {
        let mut end = End::default();
        let line = self.line;
        loop {
            let bytes = self.input.unread();
            if let Some(len) = end.find(bytes) {
                return Ok(len);
            }
            if bytes.len() >= MAX_ITEM_BYTES {
                return Err(self.wrong("a value that does not end", "one of less than 256 MiB"));
            }
            let len = bytes.len();
            if self.input.read_more().map_err(|source| WorkloadError::Read { line, source })? == 0 {
                // A number or a word may end with the file; whatever else is incomplete.
                return match end.depth {
                    0 if len > 0 && !end.is_in_text => Ok(len),
                    _ => Err(self.wrong("the end of the file in the middle of a value", "a whole file")),
                };
            }
        }
    }
}

/// Finds where a value ends, from one piece to the next.
#[derive(Default)]
struct End {
    searched: usize,
    depth: usize,
    is_in_text: bool,
}

impl End {
    /// `bytes` begin with the value; more than before, or the same.
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        while self.searched < bytes.len() {
            if self.is_in_text {
                let Some(found) = memchr::memchr2(b'"', b'\\', &bytes[self.searched..]) else {
                    self.searched = bytes.len();
                    return None;
                };
                let at = self.searched + found;
                if bytes[at] == b'\\' {
                    if at + 1 >= bytes.len() {
                        self.searched = at;
                        return None;
                    }
                    self.searched = at + 2;
                    continue;
                }
                self.is_in_text = false;
                self.searched = at + 1;
                if self.depth == 0 {
                    return Some(self.searched);
                }
                continue;
            }
            let byte = bytes[self.searched];
            match byte {
                b'"' => self.is_in_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.searched += 1;
                        return Some(self.searched);
                    }
                }
                // The end of a number or a word; at least one byte, so that there is progress.
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' if self.depth == 0 => {
                    return Some(self.searched.max(1));
                }
                _ => {}
            }
            self.searched += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn items(text: &str) -> (Vec<(u64, String)>, Option<String>) {
        let mut items = Items::new(TraceInput::new(Cursor::new(text.as_bytes().to_vec())).unwrap());
        let mut found = Vec::new();
        loop {
            match items.next_item() {
                Ok(Some((line, item))) => found.push((line, String::from_utf8(item.to_vec()).unwrap())),
                Ok(None) => return (found, None),
                Err(error) => {
                    assert!(items.next_item().unwrap().is_none());
                    return (found, Some(error.to_string()));
                }
            }
        }
    }

    fn of(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
        expected.iter().map(|&(line, text)| (line, text.to_owned())).collect()
    }

    #[test]
    fn items_of_a_list_and_values_in_a_row_are_the_same() {
        let expected = of(&[(1, r#"{"a": "}]\"{"}"#), (2, "[1, [2]]"), (3, "7"), (3, "\"x\"")]);
        assert_eq!(
            items("{\"a\": \"}]\\\"{\"}\n[1, [2]]\n7 \"x\"").0,
            of(&[(1, r#"{"a": "}]\"{"}"#), (2, "[1, [2]]"), (3, "7"), (3, "\"x\"")])
        );
        assert_eq!(
            items("[{\"a\": \"}]\\\"{\"},\n[1, [2]]\n, 7, \"x\"\n]\n"),
            (of(&[expected_pair(&expected, 0), expected_pair(&expected, 1), (3, "7"), (3, "\"x\"")]), None)
        );
        assert_eq!(items("[]"), (Vec::new(), None));
        assert_eq!(items(" \n"), (Vec::new(), None));
        assert_eq!(items("{\n\"a\": 1\n}\n{}").0, of(&[(1, "{\n\"a\": 1\n}"), (4, "{}")]));
    }

    fn expected_pair(expected: &[(u64, String)], index: usize) -> (u64, &str) {
        (expected[index].0, expected[index].1.as_str())
    }

    #[test]
    fn a_broken_structure_ends_the_file() {
        let message = |text: &str| items(text).1.unwrap();
        assert_eq!(message("[{}\n{}]"), "line 2: found no comma between two items, expected `,` or `]`");
        assert_eq!(
            message("[{},\n{\"a\": "),
            "line 2: found the end of the file in the middle of a value, expected a whole file"
        );
        assert_eq!(message("[{}"), "line 1: found the end of the file, expected `]` at the end of the list");
        assert_eq!(message("[{}]\n7"), "line 2: found more behind the list, expected one list");
    }

    #[test]
    fn an_item_may_be_longer_than_the_buffer() {
        let long = format!("{{\"a\": \"{}\"}}", "x\\\"".repeat(400_000));
        assert_eq!(items(&format!("[{long}, {long}]")).0, of(&[(1, &long), (1, &long)]));
    }
}
