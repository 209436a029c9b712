//! Trace files as they lie on disk: plain, gzip or zstd.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// RFC 1952, section 2.3.1.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// RFC 8878, section 3.1.1.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

const BUFFER_BYTES: usize = 128 * 1024;

/// The content of `file`, decompressed as it is read if it starts as gzip or zstd does.
pub(super) fn decompress(mut file: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut start = Vec::with_capacity(ZSTD_MAGIC.len());
    file.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut start)?;
    let is_gzip = start.starts_with(&GZIP_MAGIC);
    let is_zstd = start == ZSTD_MAGIC;
    let whole = Cursor::new(start).chain(file);
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, whole)))
    } else if is_zstd {
        Box::new(ZstdFrames::new(BufReader::with_capacity(BUFFER_BYTES, whole)))
    } else {
        Box::new(whole)
    })
}

/// One frame after the other: a zstd file may hold several, and some to be skipped.
struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new() }
    }

    /// Of the frame that ended.
    fn check_sum(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(sum) if Some(sum) != self.decoder.get_calculated_checksum() => {
                Err(io::Error::other("a zstd frame differs from its checksum"))
            }
            _ => Ok(()),
        }
    }

    /// Goes to the next frame; false if there is none.
    fn next_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 {
            if self.decoder.is_finished() {
                self.check_sum()?;
                if !self.next_frame()? {
                    return Ok(0);
                }
                continue;
            }
            let strategy = BlockDecodingStrategy::UptoBlocks(1);
            self.decoder.decode_blocks(&mut self.source, strategy).map_err(io::Error::other)?;
        }
        self.decoder.read(out)
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};
    use std::io::Write;

    use super::*;

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

    fn zstd(text: &str) -> Vec<u8> {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
    }

    #[test]
    fn plain_gzip_and_zstd_read_alike() {
        assert_eq!(read(b"one\ntwo\n".to_vec()).unwrap(), "one\ntwo\n");
        assert_eq!(read([gzip("one\n"), gzip("two\n")].concat()).unwrap(), "one\ntwo\n");
        // A frame to be skipped: RFC 8878, section 3.1.2.
        let skippable = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        assert_eq!(read([zstd("one\n"), skippable, zstd(""), zstd("two\n")].concat()).unwrap(), "one\ntwo\n");
        let long = "0123456789 ".repeat(100_000);
        assert_eq!(read(zstd(&long)).unwrap(), long);
        assert_eq!(read(Vec::new()).unwrap(), "");
        assert_eq!(read(b"1".to_vec()).unwrap(), "1");
    }

    /// `printf 'one\ntwo\n' | zstd`, of the reference implementation.
    #[test]
    fn a_frame_of_the_reference_implementation_is_read() {
        let frame = [
            0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x41, 0x00, 0x00, 0x6f, 0x6e, 0x65, 0x0a, 0x74, 0x77, 0x6f,
            0x0a, 0xe6, 0xa6, 0x0e, 0x40,
        ];
        assert_eq!(read(frame.to_vec()).unwrap(), "one\ntwo\n");
    }

    #[test]
    fn a_cut_file_is_an_error() {
        for mut bytes in [gzip("one\ntwo\n"), zstd("one\ntwo\n")] {
            bytes.truncate(bytes.len() - 5);
            assert!(read(bytes).is_err());
        }
    }
}
