//! Writes a page that is no part of a folder.

use std::path::Path;

use super::ReportError;
use crate::whole_file::write_whole;

/// The file is there when all of it is.
pub(crate) fn write_page(path: &Path, html: &str) -> Result<(), ReportError> {
    write_whole(path, html).map_err(ReportError::write(path))
}
