//! The report's folder: nothing is there before all is. Files are written into a folder beside it,
//! which takes its place at the end.

use std::fs;
use std::path::{Path, PathBuf};

use super::ReportError;
use super::manifest::MANIFEST;

#[derive(Debug)]
pub(super) struct Folder {
    target: PathBuf,
    partial: PathBuf,
    is_published: bool,
}

impl Folder {
    /// # Errors
    /// The target is there and no report, or nothing can be written beside it.
    pub fn create(target: &Path) -> Result<Self, ReportError> {
        let is_other = target.exists()
            && !target.join(MANIFEST).exists()
            && fs::read_dir(target).map_or(true, |mut entries| entries.next().is_some());
        if is_other {
            return Err(ReportError::NotAReport { path: target.to_owned() });
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let partial = target.with_file_name(format!(".{name}.{}.partial", std::process::id()));
        fs::create_dir_all(&partial).map_err(ReportError::write(&partial))?;
        Ok(Self { target: target.to_owned(), partial, is_published: false })
    }

    /// Where a file is written.
    pub fn file(&self, name: &str) -> PathBuf {
        self.partial.join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> Result<(), ReportError> {
        let path = self.file(name);
        fs::write(&path, content).map_err(ReportError::write(path))
    }

    /// Puts the report in its place; an older one goes only now.
    pub fn publish(mut self) -> Result<(), ReportError> {
        let old = self.partial.with_extension("old");
        if self.target.exists() {
            fs::rename(&self.target, &old).map_err(ReportError::write(&self.target))?;
        }
        fs::rename(&self.partial, &self.target).map_err(ReportError::write(&self.target))?;
        self.is_published = true;
        if old.exists() {
            fs::remove_dir_all(&old).map_err(ReportError::write(old))?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_published {
            // The run has failed already; what is left here is only litter.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_report_stays_until_the_new_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("run");
        let first = Folder::create(&target).unwrap();
        first.write(MANIFEST, "1").unwrap();
        first.publish().unwrap();
        let dropped = Folder::create(&target).unwrap();
        dropped.write(MANIFEST, "2").unwrap();
        drop(dropped);
        assert_eq!(fs::read_to_string(target.join(MANIFEST)).unwrap(), "1");
        let second = Folder::create(&target).unwrap();
        second.write(MANIFEST, "3").unwrap();
        second.publish().unwrap();
        assert_eq!(fs::read_to_string(target.join(MANIFEST)).unwrap(), "3");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_no_report_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
        assert!(matches!(Folder::create(dir.path()), Err(ReportError::NotAReport { .. })));
    }
}
