//! Trace files as they lie on disk: plain or gzip.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

/// RFC 1952, section 2.3.1.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

const BUFFER_BYTES: usize = 128 * 1024;

/// The content of `file`, decompressed as it is read if it starts as gzip does.
pub fn decompress(mut file: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut start = Vec::with_capacity(GZIP_MAGIC.len());
    file.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut start)?;
    let gzip = start == GZIP_MAGIC;
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(start).chain(file));
    if gzip {
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole))))
    } else {
        Ok(Box::new(whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn read(bytes: Vec<u8>) -> io::Result<String> {
        let mut text = String::new();
        decompress(Cursor::new(bytes))?.read_to_string(&mut text)?;
        Ok(text)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_and_gzip_members_read_alike() {
        assert_eq!(read(b"one\ntwo\n".to_vec()).unwrap(), "one\ntwo\n");
        assert_eq!(read([gzip("one\n"), gzip("two\n")].concat()).unwrap(), "one\ntwo\n");
        assert_eq!(read(Vec::new()).unwrap(), "");
        assert_eq!(read(b"1".to_vec()).unwrap(), "1");
    }

    #[test]
    fn a_cut_gzip_file_is_an_error() {
        let mut bytes = gzip("one\ntwo\n");
        bytes.truncate(bytes.len() - 9);
        assert!(read(bytes).is_err());
    }
}
