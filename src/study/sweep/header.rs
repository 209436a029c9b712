//! What the journal of a sweep holds.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::plan::{Plan, Row, Shard};
use super::results::RESULTS;
use super::run::REPORTS;
use crate::study::journal::{Journalled, remove};

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

pub(super) struct SweepRuns;

impl Journalled for SweepRuns {
    const KIND: &'static str = "sweep";
    type Header = Header;
    type Row = Row;
    type Key = RunKey;

    fn key(row: &Row) -> RunKey {
        (row.point, row.replication)
    }

    fn change(found: &Header, now: &Header) -> Option<String> {
        if let Some(change) = found.plan.change(&now.plan) {
            return Some(change);
        }
        if found.shard != now.shard {
            return Some(format!("it was shard {} and is {}", found.shard, now.shard));
        }
        (found.reports != now.reports).then(|| {
            let (was, is) = if found.reports { ("with", "without") } else { ("without", "with") };
            format!("it was {was} --reports and is {is}")
        })
    }

    fn clear(folder: &Path) -> io::Result<()> {
        match fs::remove_dir_all(folder.join(REPORTS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        RESULTS.iter().try_for_each(|name| remove(&folder.join(name)))
    }
}
