//! Writes a page that is no part of a folder.

use std::io::Write;
use std::path::Path;

use super::ReportError;

/// The file is there when all of it is.
pub(crate) fn write_page(path: &Path, html: &str) -> Result<(), ReportError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any new file: the umask takes from it.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(html.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(ReportError::write(path))
}
