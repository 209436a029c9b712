//! In the place of `parquet.rs` where kvsim is built without it: there are no such tables.

use std::io;
use std::path::Path;

use super::table_column::Column;

pub(super) fn parquet_beside(_csv: &Path, _columns: &[Column<&str>]) -> io::Result<()> {
    Ok(())
}

pub(crate) fn parquet_bytes(_csv: &str, _columns: &[Column<String>]) -> io::Result<Option<Vec<u8>>> {
    Ok(None)
}

pub(super) struct CountsWriter;

impl CountsWriter {
    pub fn create(_path: &Path, _columns: &[&str]) -> io::Result<Self> {
        Ok(Self)
    }

    pub fn push(&mut self, _row: &[u64], _times: u32) -> io::Result<()> {
        Ok(())
    }

    pub fn finish(self) -> io::Result<()> {
        Ok(())
    }
}
