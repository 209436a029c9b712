//! The report's folder: nothing is there before all is. Files are written into a folder beside it,
//! which takes its place at the end.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::ReportError;
use super::manifest::MANIFEST;
use super::parquet::parquet_beside;
use super::table_column::Column;

#[derive(Debug)]
pub(crate) struct Folder {
    target: PathBuf,
    /// Holds the new report until it is published, and then the one that it replaced.
    partial: PathBuf,
    /// Tells other runs that this one lives; the system lets go of it when the process ends.
    _lock: File,
}

impl Folder {
    /// Takes over what a killed run has left.
    ///
    /// # Errors
    /// The target is there and no report, another run is writing it, or nothing can be written
    /// beside it.
    pub fn create(target: &Path) -> Result<Self, ReportError> {
        // The place itself, where the path is a link to it or `.`.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let is_other = target.exists()
            && !target.join(MANIFEST).exists()
            && fs::read_dir(&target).map_or(true, |mut entries| entries.next().is_some());
        if is_other {
            return Err(ReportError::NotAReport { path: target });
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let partial = target.with_file_name(format!(".{name}.partial"));
        let lock = claim(&partial).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ReportError::Busy { path: target.clone() },
            _ => ReportError::write(&partial)(error),
        })?;
        Ok(Self { target, partial, _lock: lock })
    }

    /// Where a file is written.
    pub fn file(&self, name: &str) -> PathBuf {
        self.partial.join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> Result<(), ReportError> {
        let path = self.file(name);
        fs::write(&path, content).map_err(ReportError::write(path))
    }

    /// Writes the table in the file `csv` as Parquet too.
    pub fn parquet_beside(&self, csv: &str, columns: &[Column<&str>]) -> Result<(), ReportError> {
        let csv = self.file(csv);
        parquet_beside(&csv, columns).map_err(ReportError::write(csv.with_extension("parquet")))
    }

    /// Puts the report in its place; an older one goes only now.
    pub fn publish(self) -> Result<(), ReportError> {
        let published = if self.target.exists() {
            exchange(&self.partial, &self.target)
        } else {
            fs::rename(&self.partial, &self.target)
        };
        published.map_err(ReportError::write(&self.target))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A run that failed or a report that was replaced: only litter, which the next run clears.
        let _ = fs::remove_dir_all(&self.partial);
    }
}

/// Makes a folder, or empties the one that is there, for this process alone.
fn claim(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let lock = File::open(folder)?;
    lock.try_lock()?;
    for entry in fs::read_dir(folder)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(lock)
}

/// Lets two folders trade places, so that neither is missing at any moment.
fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
            // Some file systems cannot do it.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
            result => return Ok(result?),
        }
    }
    let aside = one.with_extension("old");
    fs::rename(other, &aside)?;
    fs::rename(one, other)?;
    fs::rename(&aside, one)
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

    #[test]
    fn what_a_killed_run_left_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("run");
        let killed = Folder::create(&target).unwrap();
        killed.write("kv_events.jsonl", "half a li").unwrap();
        let partial = killed.partial.clone();
        let left = dir.path().join("left");
        fs::create_dir(&left).unwrap();
        fs::copy(killed.file("kv_events.jsonl"), left.join("kv_events.jsonl")).unwrap();
        drop(killed);
        fs::rename(&left, &partial).unwrap();
        let next = Folder::create(&target).unwrap();
        next.write(MANIFEST, "1").unwrap();
        next.publish().unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn two_runs_cannot_write_one_report() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("run");
        let first = Folder::create(&target).unwrap();
        first.write(MANIFEST, "1").unwrap();
        assert!(matches!(Folder::create(&target), Err(ReportError::Busy { .. })));
        first.publish().unwrap();
        assert_eq!(fs::read_to_string(target.join(MANIFEST)).unwrap(), "1");
        assert!(Folder::create(&target).is_ok());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_report_is_replaced_where_a_link_points() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        fs::create_dir(&place).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&place, &link).unwrap();
        let folder = Folder::create(&link).unwrap();
        folder.write(MANIFEST, "1").unwrap();
        folder.publish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(place.join(MANIFEST)).unwrap(), "1");
    }
}
