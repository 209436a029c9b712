//! `journal.jsonl`: the plan in the first line, then a line for each finished run, in the order in
//! which they finish. What is in it is safe: each line is on the disk before the next is begun.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::SweepError;
use super::plan::{Plan, Row, Shard};
use super::results::RESULTS;
use super::run::REPORTS;

pub(super) const JOURNAL: &str = "journal.jsonl";

/// Which run of which point.
pub(super) type RunKey = (usize, u32);

/// What a journal is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub shard: Shard,
    /// Each run has a report of its own.
    pub reports: bool,
    pub plan: Plan,
}

/// A journal that runs are being added to.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// Tells other sweeps that this one lives; the system lets go of it when the process ends.
    _lock: File,
    pub rows: HashMap<RunKey, Row>,
}

impl Journal {
    /// Goes on with the journal of `folder`, or begins one; `restart` clears what is there.
    ///
    /// # Errors
    /// The folder is that of another sweep or of something else, another process writes it, or it
    /// cannot be written.
    pub fn open(folder: &Path, header: &Header, restart: bool) -> Result<Self, SweepError> {
        let path = folder.join(JOURNAL);
        let is_other =
            !path.exists() && fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        if is_other {
            return Err(SweepError::NotASweep { folder: folder.to_owned() });
        }
        fs::create_dir_all(folder).map_err(SweepError::write(folder))?;
        let lock = File::open(folder).map_err(SweepError::read(folder))?;
        lock.try_lock().map_err(|_| SweepError::Busy { folder: folder.to_owned() })?;
        if restart {
            clear(folder).map_err(SweepError::write(folder))?;
        }
        if !path.exists() {
            // Appears whole or not at all.
            write_whole(&path, json_line(header).as_bytes())?;
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(SweepError::write(&path))?;
        let (found, rows, good_bytes) = read(&path)?;
        if let Some(change) = change(&found, header) {
            return Err(SweepError::Changed { folder: folder.to_owned(), change });
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
    pub fn append(&mut self, rows: &[Row]) -> Result<(), SweepError> {
        let mut text = String::new();
        for row in rows {
            text.push_str(&json_line(row));
            self.rows.insert((row.point, row.replication), row.clone());
        }
        self.try_io(|file| {
            file.write_all(text.as_bytes())?;
            file.sync_data()
        })
    }

    fn try_io(&mut self, action: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), SweepError> {
        action(&mut self.file).map_err(SweepError::write(&self.path))
    }
}

/// What the runs that are asked for have changed, in words.
fn change(found: &Header, header: &Header) -> Option<String> {
    if let Some(change) = found.plan.change(&header.plan) {
        return Some(change);
    }
    if found.shard != header.shard {
        return Some(format!("it was shard {} and is {}", found.shard, header.shard));
    }
    (found.reports != header.reports).then(|| {
        let (was, is) = if found.reports { ("with", "without") } else { ("without", "with") };
        format!("it was {was} --reports and is {is}")
    })
}

/// Removes what a sweep writes, the journal last.
fn clear(folder: &Path) -> io::Result<()> {
    let absent_is_fine = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    absent_is_fine(fs::remove_dir_all(folder.join(REPORTS)))?;
    RESULTS.iter().chain([&JOURNAL]).try_for_each(|name| absent_is_fine(fs::remove_file(folder.join(name))))
}

/// Reads a journal: what it is of, its rows, and the length of all whole lines in bytes.
pub(super) fn read(path: &Path) -> Result<(Header, HashMap<RunKey, Row>, u64), SweepError> {
    let text = fs::read(path).map_err(SweepError::read(path))?;
    let damaged = |line| SweepError::Damaged { path: path.to_owned(), line };
    // What follows the last line end was torn by a kill.
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut lines = text[..whole].split_inclusive(|&byte| byte == b'\n').enumerate();
    let (_, first) = lines.next().ok_or_else(|| damaged(1))?;
    let header: Header = serde_json::from_slice(first).map_err(|_| damaged(1))?;
    let mut rows = HashMap::new();
    let mut good = first.len();
    for (index, line) in lines {
        let row: Row = match serde_json::from_slice(line) {
            Ok(row) => row,
            // A power cut can leave the end of the last line without its middle.
            Err(_) if good + line.len() == text.len() => break,
            Err(_) => return Err(damaged(index + 1)),
        };
        good += line.len();
        rows.insert((row.point, row.replication), row);
    }
    Ok((header, rows, good as u64))
}

/// Writes a file that appears whole or not at all.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), SweepError> {
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
    write().map_err(SweepError::write(path))
}

pub(super) fn json_line(value: &impl Serialize) -> String {
    // Structs of numbers and texts always are JSON.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}
