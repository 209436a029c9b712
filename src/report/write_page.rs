//! Writes a page that is no part of a folder.

use std::io::Write;
use std::path::Path;

use super::ReportError;

/// The file is there when all of it is.
pub(crate) fn write_page(path: &Path, html: &str) -> Result<(), ReportError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(html.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(ReportError::write(path))
}
