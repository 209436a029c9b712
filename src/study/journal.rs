//! `journal.jsonl` of a study: what it is of in the first line, then a line for each finished run, in
//! the order in which they finish. What is in it is safe: each line is on the disk before the next is
//! begun.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::hash::Hash;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

pub(in crate::study) const JOURNAL: &str = "journal.jsonl";

/// A study that keeps a journal.
pub(in crate::study) trait Journalled {
    /// What people call it.
    const KIND: &'static str;
    /// What the runs are of: everything that decides what they come to.
    type Header: Serialize + DeserializeOwned;
    /// A finished run.
    type Row: Serialize + DeserializeOwned + Clone;
    /// Which run it is.
    type Key: Copy + Eq + Hash;

    fn key(row: &Self::Row) -> Self::Key;

    /// What `now` has changed, in words; `None` if nothing.
    fn change(found: &Self::Header, now: &Self::Header) -> Option<String>;

    /// Removes everything it has written but the journal.
    fn clear(folder: &Path) -> io::Result<()>;
}

/// A journal that cannot be gone on with, or a file of results that cannot be written.
#[derive(Debug, Error)]
pub enum JournalError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// What is there belongs to another study.
    #[error(
        "{} was begun differently: {change}\n  help: undo the change to go on, give --restart to begin anew, or \
         another folder with --out",
        folder.display()
    )]
    Changed { folder: PathBuf, change: String },
    #[error(
        "{} is there and has no {kind} in it (no journal.jsonl); choose another folder with --out",
        folder.display()
    )]
    IsAnother { folder: PathBuf, kind: &'static str },
    #[error("another {kind} is writing {}; wait for its end, or choose another folder with --out", folder.display())]
    Busy { folder: PathBuf, kind: &'static str },
    #[error("{}: line {line} is damaged; give --restart to begin anew", path.display())]
    Damaged { path: PathBuf, line: usize },
}

impl JournalError {
    pub(in crate::study) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    pub(in crate::study) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Write { path, source }
    }
}

/// A journal that runs are being added to.
pub(in crate::study) struct Journal<S: Journalled> {
    path: PathBuf,
    file: File,
    /// Tells others that this one lives; the system lets go of it when the process ends.
    _lock: File,
    pub rows: HashMap<S::Key, S::Row>,
}

impl<S: Journalled> Journal<S> {
    /// Goes on with the journal of `folder`, or begins one; `restart` clears what is there.
    ///
    /// # Errors
    /// The folder is that of another study or of something else, another process writes it, or it
    /// cannot be written.
    pub fn open(folder: &Path, header: &S::Header, restart: bool) -> Result<Self, JournalError> {
        let path = folder.join(JOURNAL);
        let is_other =
            !path.exists() && fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        if is_other {
            return Err(JournalError::IsAnother { folder: folder.to_owned(), kind: S::KIND });
        }
        fs::create_dir_all(folder).map_err(JournalError::write(folder))?;
        let lock = File::open(folder).map_err(JournalError::read(folder))?;
        lock.try_lock().map_err(|_| JournalError::Busy { folder: folder.to_owned(), kind: S::KIND })?;
        if restart {
            S::clear(folder).map_err(JournalError::write(folder))?;
            // Last, so that the rest is still known to be ours.
            remove(&path).map_err(JournalError::write(folder))?;
        }
        if !path.exists() {
            // Appears whole or not at all.
            write_whole(&path, json_line(header).as_bytes())?;
        }
        let file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(JournalError::write(&path))?;
        let (found, rows, good_bytes) = read::<S>(&path)?;
        if let Some(change) = S::change(&found, header) {
            return Err(JournalError::Changed { folder: folder.to_owned(), change });
        }
        let mut journal = Self { path, file, _lock: lock, rows };
        // A line that was torn by a kill would spoil the next.
        journal.try_io(|file| {
            file.set_len(good_bytes)?;
            file.seek(SeekFrom::End(0)).map(|_| ())
        })?;
        Ok(journal)
    }

    /// Adds rows; they are on the disk when it returns.
    pub fn append(&mut self, rows: &[S::Row]) -> Result<(), JournalError> {
        let mut text = String::new();
        for row in rows {
            text.push_str(&json_line(row));
            self.rows.insert(S::key(row), row.clone());
        }
        self.try_io(|file| {
            file.write_all(text.as_bytes())?;
            file.sync_data()
        })
    }

    fn try_io(&mut self, action: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), JournalError> {
        action(&mut self.file).map_err(JournalError::write(&self.path))
    }
}

/// Removes a file, if it is there.
pub(in crate::study) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What is read of a journal.
pub(in crate::study) type Whole<S> =
    (<S as Journalled>::Header, HashMap<<S as Journalled>::Key, <S as Journalled>::Row>, u64);

/// Reads a journal: what it is of, its rows, and the length of all whole lines in bytes.
pub(in crate::study) fn read<S: Journalled>(path: &Path) -> Result<Whole<S>, JournalError> {
    let text = fs::read(path).map_err(JournalError::read(path))?;
    let damaged = |line| JournalError::Damaged { path: path.to_owned(), line };
    // What follows the last line end was torn by a kill.
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut lines = text[..whole].split_inclusive(|&byte| byte == b'\n').enumerate();
    let (_, first) = lines.next().ok_or_else(|| damaged(1))?;
    let header: S::Header = serde_json::from_slice(first).map_err(|_| damaged(1))?;
    let mut rows = HashMap::new();
    let mut good = first.len();
    for (index, line) in lines {
        let row: S::Row = match serde_json::from_slice(line) {
            Ok(row) => row,
            // A power cut can leave the end of the last line without its middle.
            Err(_) if good + line.len() == text.len() => break,
            Err(_) => return Err(damaged(index + 1)),
        };
        good += line.len();
        rows.insert(S::key(&row), row);
    }
    Ok((header, rows, good as u64))
}

/// Writes a file that appears whole or not at all.
pub(in crate::study) fn write_whole(path: &Path, content: &[u8]) -> Result<(), JournalError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.partial"));
    let write = || {
        let mut file = File::create(&partial)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        // The name itself; folders cannot be synced everywhere.
        let _ = path.parent().map(File::open).and_then(Result::ok).map(|folder| folder.sync_all());
        Ok(())
    };
    write().map_err(JournalError::write(path))
}

pub(in crate::study) fn json_line(value: &impl Serialize) -> String {
    // Structs of numbers and texts always are JSON.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}
