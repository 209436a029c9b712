//! Joins the shards of a sweep.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::SweepError;
use super::header::{Header, RunKey, SweepRuns};
use super::plan::{Row, Shard};
use super::results::Results;
use crate::study::journal::{self, JOURNAL, Journal, JournalError};

/// Writes into `out` what one run of the whole sweep would have: the journals of all shards become
/// one. `restart` replaces what is there.
///
/// # Errors
/// The parts are not all shards of one sweep, or one of them is not complete.
pub fn merge(parts: &[PathBuf], out: &Path, restart: bool) -> Result<Results, SweepError> {
    let mut shards: BTreeMap<usize, &Path> = BTreeMap::new();
    let mut rows: HashMap<RunKey, Row> = HashMap::new();
    let mut whole: Option<(&Path, Header)> = None;
    for part in parts {
        if is_same_folder(part, out) {
            let part = part.display();
            return Err(SweepError::Merge(format!("{part} is both a part and --out; give another folder")));
        }
        let (header, part_rows, _) = journal::read::<SweepRuns>(&part.join(JOURNAL)).map_err(of_part)?;
        check_complete(part, &header, &part_rows)?;
        match &whole {
            None => whole = Some((part, header.clone())),
            Some((first, expected)) => {
                let of = |header: &Header| match header.shard {
                    Shard::ALL => "it is a whole sweep".to_owned(),
                    Shard { of, .. } => format!("it is one of {of} shards"),
                };
                let change = expected
                    .plan
                    .change(&header.plan)
                    .or_else(|| (expected.shard.of != header.shard.of).then(|| of(&header)));
                if let Some(change) = change {
                    let (part, first) = (part.display(), first.display());
                    return Err(SweepError::Merge(format!("{part} does not belong to {first}: {change}")));
                }
            }
        }
        if let Some(other) = shards.insert(header.shard.index, part) {
            let (part, other) = (part.display(), other.display());
            return Err(SweepError::Merge(format!("{part} and {other} are both shard {}", header.shard)));
        }
        rows.extend(part_rows);
    }
    let Some((_, header)) = whole else {
        return Err(SweepError::Merge("give the folders of all shards".to_owned()));
    };
    let missing: Vec<String> = (1..=header.shard.of)
        .filter(|index| !shards.contains_key(index))
        .map(|index| Shard { index, ..header.shard }.to_string())
        .collect();
    if !missing.is_empty() {
        let (shards, are) = if missing.len() == 1 { ("shard", "is") } else { ("shards", "are") };
        return Err(SweepError::Merge(format!(
            "{shards} {} {are} missing; give the folders of all",
            missing.join(", ")
        )));
    }
    // Reports of single runs stay in the parts.
    let header = Header { shard: Shard::ALL, reports: false, plan: header.plan };
    let mut journal = Journal::<SweepRuns>::open(out, &header, restart)?;
    let mut left: Vec<Row> =
        rows.into_iter().filter(|(key, _)| !journal.rows.contains_key(key)).map(|(_, row)| row).collect();
    left.sort_by_key(|row| (row.point, row.replication));
    journal.append(&left)?;
    let results = Results::new(&header.plan, std::mem::take(&mut journal.rows));
    results.write(out, false)?;
    Ok(results)
}

fn is_same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// What helps a sweep does not help its merging.
fn of_part(error: JournalError) -> SweepError {
    match error {
        JournalError::Damaged { path, line } => SweepError::Merge(format!(
            "{}: line {line} is not a sweep's journal; give the folder of a shard, or run the shard anew with --restart",
            path.display()
        )),
        other => other.into(),
    }
}

fn check_complete(part: &Path, header: &Header, rows: &HashMap<RunKey, Row>) -> Result<(), SweepError> {
    let points = (0..header.plan.points.len()).filter(|&point| header.shard.has(point));
    let all = points.count() * header.plan.replications as usize;
    if rows.len() == all {
        return Ok(());
    }
    Err(SweepError::Merge(format!(
        "{} has {} of {all} runs; run its shard ({}) again to its end",
        part.display(),
        rows.len(),
        header.shard
    )))
}
