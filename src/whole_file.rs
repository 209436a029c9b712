//! Files that are there when all of them is: written beside their place, and moved there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

/// A file that is being written. Until [`Self::publish`] whatever is at its place stays; dropped before, nothing is
/// left of it.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    partial: TempPath,
}

impl WholeFile {
    /// Begins the file that will be at `path`, and opens it for writing.
    ///
    /// # Errors
    /// Something else than a file is there, which a file must not replace, or there is no folder for it, or it cannot be
    /// written.
    pub fn create(path: &Path) -> io::Result<(Self, File)> {
        // Follows links, as those of /dev/stdout.
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(io::Error::other("it is a folder; name a file")),
            Ok(there) if !there.is_file() => {
                return Err(io::Error::other("it is a pipe or a device; name a file"));
            }
            _ => {}
        }
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(io::Error::other(format!("there is no folder {}", folder.display())));
        }
        let mut builder = tempfile::Builder::new();
        builder.prefix(".kvsim-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any new file: the umask takes from it.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let (file, partial) = builder.tempfile_in(folder)?.into_parts();
        Ok((Self { path: path.to_owned(), partial }, file))
    }

    /// Opens what was written for reading.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> io::Result<File> {
        File::open(&self.partial)
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// The folder does not let it; then nothing has changed.
    pub fn publish(self) -> io::Result<()> {
        // A link stays one.
        let place = fs::canonicalize(&self.path).unwrap_or(self.path);
        self.partial.persist(place).map_err(|error| error.error)
    }
}

/// Writes a whole file.
///
/// # Errors
/// See [`WholeFile::create`]; whatever was there stays.
pub fn write_whole(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let (whole, mut file) = WholeFile::create(path)?;
    file.write_all(content.as_ref())?;
    whole.publish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_whole(&path, "before").unwrap();
        let (whole, mut file) = WholeFile::create(&path).unwrap();
        file.write_all(b"af").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        drop(whole);
        assert_eq!(names(dir.path()), ["a.txt"]);
        write_whole(&path, "after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");
    }

    #[test]
    fn what_is_no_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let error = |path: &Path| write_whole(path, "x").unwrap_err().to_string();
        assert_eq!(error(dir.path()), "it is a folder; name a file");
        assert!(error(&dir.path().join("no/a.txt")).starts_with("there is no folder "));
        #[cfg(unix)]
        {
            assert_eq!(error(Path::new("/dev/null")), "it is a pipe or a device; name a file");
            let link = dir.path().join("stdout");
            std::os::unix::fs::symlink("/dev/null", &link).unwrap();
            assert_eq!(error(&link), "it is a pipe or a device; name a file");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, "after").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
    }
}
