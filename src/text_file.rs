//! Files that are read as text. What is wrong with one names the file, and the place in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file that is not there, or no text.
#[derive(Debug, Error)]
pub enum TextFileError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{}:{line}:{column}: the byte 0x{byte:02x} is not UTF-8 text\n  help: save the file as UTF-8{}",
        path.display(),
        match begins_like {
            Some(kind) => format!("; it begins like {kind}"),
            None => String::new(),
        }
    )]
    NotUtf8 {
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
        byte: u8,
        /// What files begin so, if it is known.
        begins_like: Option<&'static str>,
    },
}

/// How files begin that are no UTF-8.
const KINDS: [(&[u8], &str); 6] = [
    (&[0xff, 0xfe], "UTF-16"),
    (&[0xfe, 0xff], "UTF-16"),
    (&[0x1f, 0x8b], "gzip; unpack it with `gunzip`"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd; unpack it with `unzstd`"),
    (b"PK\x03\x04", "zip (or a spreadsheet; save it as CSV)"),
    (b"PAR1", "Parquet"),
];

/// The text of a file.
///
/// # Errors
/// See [`TextFileError`].
pub fn read_text(path: &Path) -> Result<String, TextFileError> {
    let bytes = fs::read(path).map_err(|source| TextFileError::Read { path: path.to_owned(), source })?;
    decode_text(path, bytes)
}

/// The text that the file at `path` holds as `bytes`. A byte order mark is dropped.
///
/// # Errors
/// The first byte that is no UTF-8.
pub fn decode_text(path: &Path, bytes: Vec<u8>) -> Result<String, TextFileError> {
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let valid_up_to = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let before = String::from_utf8_lossy(&bytes[..valid_up_to]);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        TextFileError::NotUtf8 {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            byte: bytes[valid_up_to],
            begins_like: KINDS.iter().find(|(start, _)| bytes.starts_with(start)).map(|&(_, kind)| kind),
        }
    })?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// What is wrong with a row of a CSV file, and its line.
pub fn csv_problem(error: &csv::Error) -> (u64, String) {
    let line = error.position().map_or(1, csv::Position::line);
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the row has {len} values, the header {expected_len}")
        }
        _ => error.to_string(),
    };
    (line, problem)
}

/// A column that a CSV file's header names twice, so that nobody knows which of them counts.
pub fn repeated_column(header: &csv::StringRecord) -> Option<&str> {
    let names: Vec<&str> = header.iter().collect();
    let is_repeated = |&(index, name): &(usize, &&str)| !name.is_empty() && names[..index].contains(name);
    names.iter().enumerate().find(is_repeated).map(|(_, &name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> String {
        decode_text(Path::new("a.yaml"), bytes.to_vec()).unwrap_err().to_string()
    }

    #[test]
    fn a_byte_that_is_no_text_is_named_with_its_place() {
        let latin_1 = "a: 1\nb: äé".bytes().chain(*b"\xe9\n").collect::<Vec<u8>>();
        assert_eq!(
            message(&latin_1),
            "a.yaml:2:6: the byte 0xe9 is not UTF-8 text\n  help: save the file as UTF-8"
        );
        assert!(message(b"\xff\xfea\0").ends_with("save the file as UTF-8; it begins like UTF-16"));
        assert!(message(b"\x1f\x8b\x08\0").ends_with("; it begins like gzip; unpack it with `gunzip`"));
        // Cut within a character.
        assert!(message(b"a\n\xc3").starts_with("a.yaml:2:1: the byte 0xc3"));
    }

    #[test]
    fn a_byte_order_mark_is_no_text() {
        assert_eq!(decode_text(Path::new("a"), b"\xef\xbb\xbfa: 1".to_vec()).unwrap(), "a: 1");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read_text(Path::new("no/such/file.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read no/such/file.yaml: "), "{error}");
    }
}
