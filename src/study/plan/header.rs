//! What the journal of a plan holds.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use super::settings::Settings;
use super::write::RESULTS;
use crate::study::journal::{Journalled, remove};
use crate::study::sweep::Plan;

/// What a journal is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    /// The candidates as points, with the scenario, its models and its traces.
    pub candidates: Plan,
    pub settings: Settings,
}

/// Which run: of which candidate, at which load (its bits), with how many replicas, of which so many
/// prefill, behind which router, and the how manieth.
pub(super) type RunKey = (usize, u64, [u32; 2], usize, u32);

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub candidate: usize,
    /// Times the scenario's.
    pub load: f64,
    pub replicas: u32,
    /// Of these, those that prefill for the others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prefill: u32,
    /// Its position among the plan's.
    pub router: usize,
    /// From 0.
    pub replication: u32,
    /// Or why there is nothing.
    pub outcome: Result<Measured, String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Row {
    pub(super) fn key(&self) -> RunKey {
        (self.candidate, self.load.to_bits(), [self.replicas, self.prefill], self.router, self.replication)
    }
}

pub(super) struct PlanRuns;

impl Journalled for PlanRuns {
    const KIND: &'static str = "plan";
    type Header = Header;
    type Row = Row;
    type Key = RunKey;

    fn key(row: &Row) -> RunKey {
        row.key()
    }

    fn change(found: &Header, now: &Header) -> Option<String> {
        if let Some(change) = found.candidates.change(&now.candidates) {
            // A sweep's words.
            return Some(change.replace("points", "candidates").replace("sweep file", "plan"));
        }
        (found.settings != now.settings)
            .then(|| "the plan's targets, prices or settings have changed".to_owned())
    }

    fn clear(folder: &Path) -> io::Result<()> {
        RESULTS.iter().try_for_each(|name| remove(&folder.join(name)))
    }
}
