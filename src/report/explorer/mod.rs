//! The block explorer: a part of a run, step by step and block by block, as the engine's journal and
//! state tell it, in a page that plays it.

mod hashes;
mod page;
mod recorder;
mod requests;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub(super) use page::explorer_page;
pub(super) use recorder::Recorder;

/// Steps that are recorded where nobody says how many.
pub const DEFAULT_STEPS: u64 = 400;

/// What of a run to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExploreOptions {
    /// Of the replica, counted from 0.
    pub steps: Range<u64>,
    /// Counted from 0.
    pub replica: u32,
}
