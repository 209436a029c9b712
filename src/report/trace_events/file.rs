//! The file, which takes its place only when it is whole.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::ReportError;
use crate::whole_file::WholeFile;

pub(super) struct TraceFile {
    out: Compressed,
    path: PathBuf,
    /// Where it is written, unless that is its place in a folder that is being made.
    partial: Option<WholeFile>,
}

enum Compressed {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl TraceFile {
    /// Begins a file that [`Self::publish`] moves to `path`.
    pub fn beside(path: &Path) -> Result<Self, ReportError> {
        let (partial, file) = WholeFile::create(path).map_err(ReportError::write(path))?;
        Ok(Self { out: Compressed::new(path, file), path: path.to_owned(), partial: Some(partial) })
    }

    /// Begins a file in a folder that takes its place later.
    pub fn inside(path: &Path) -> Result<Self, ReportError> {
        let file = File::create(path).map_err(ReportError::write(path))?;
        Ok(Self { out: Compressed::new(path, file), path: path.to_owned(), partial: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It lies in a folder that takes its place later.
    pub fn is_in_folder(&self) -> bool {
        self.partial.is_none()
    }

    /// Writes what is left and puts the file in its place.
    pub fn publish(mut self) -> Result<(), ReportError> {
        let written = self.out.finish();
        let published = match self.partial {
            Some(partial) => written.and_then(|()| partial.publish()),
            None => written,
        };
        published.map_err(ReportError::write(self.path))
    }
}

impl Write for TraceFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            Compressed::Plain(file) => file.write(bytes),
            Compressed::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Compressed {
    fn new(path: &Path, file: File) -> Self {
        let file = BufWriter::with_capacity(1 << 18, file);
        if path.extension().is_some_and(|extension| extension == "gz") {
            // Gigabytes of events are common: the fast level halves the time at a tenth more bytes.
            Self::Gzip(Box::new(GzEncoder::new(file, Compression::fast())))
        } else {
            Self::Plain(file)
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(encoder) => {
                encoder.try_finish()?;
                encoder.get_mut().flush()
            }
        }
    }
}
