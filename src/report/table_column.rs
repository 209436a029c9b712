//! What a column of a table holds.

use std::fs::File;
use std::io;
use std::path::Path;

/// The name of a column and what it holds.
pub(crate) type Column<N> = (N, Kind);

/// Empty cells of a table are null, where there may be some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number, never null.
    Count,
    /// A whole number.
    Int,
    /// A whole number from 0 to 2^64, such as a checksum.
    Id,
    Float,
    Text,
    Bool,
}

/// A file of rows that begins with the names of its columns, also where no row follows.
pub(super) fn csv_with_header(path: &Path, columns: &[Column<&str>]) -> io::Result<csv::Writer<File>> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(File::create(path)?);
    writer.write_record(columns.iter().map(|(name, _)| name)).map_err(io::Error::from)?;
    Ok(writer)
}
