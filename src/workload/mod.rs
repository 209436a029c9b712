//! Who asks what when: recorded traces and generated traffic, as one stream of [`Arrival`]s.
//!
//! A trace format is one file in `trace/` and its registration in [`trace::TraceFormat`]. A generator
//! is a file or folder beside it that says what its sessions say (`generator.rs`), and its lines in
//! [`WorkloadConfig`]; when sessions start and wait for answers is the same for all
//! (`sessions.rs`). Both are a [`Workload`] to the simulation.

pub mod agents;
mod arrival;
mod arrival_process;
pub mod chat;
mod config;
mod conversation;
mod distribution;
mod error;
mod generator;
mod load;
pub mod mix;
mod notes;
pub mod prefix_repetition;
pub mod rag;
pub mod random;
mod recording;
pub mod rng;
mod sessions;
pub mod shared_prefix;
mod starts;
#[cfg(test)]
mod testing;
mod token_ids;
pub mod trace;
mod zipf;

pub use arrival::{Arrival, Patience, RequestSpec, WaitsFor};
pub use arrival_process::{ArrivalProcess, ArrivalTimes, MmppState};
pub use config::WorkloadConfig;
pub use distribution::{Bin, Distribution};
pub(crate) use error::require;
pub use error::{ConfigError, WorkloadError};
pub use notes::WorkloadNotes;
pub use recording::TraceFile;

use crate::units::SimTime;

/// A source of requests. The simulation asks it for the next arrival and tells it of answers that
/// ended, so that users who wait for an answer can go on.
pub trait Workload: Send {
    /// The time of the next arrival known so far. [`Self::finished`] can bring in an earlier one,
    /// or one where there was none.
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError>;

    /// Takes the next arrival known so far. Times never decrease as long as [`Self::finished`] is
    /// not called with a time before that of an arrival already taken.
    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError>;

    /// The answer to the request with this [`RequestSpec::index`] ended at `at`. Whoever sent it
    /// may now send the next. A request that failed ends too; its user goes on as if answered.
    fn finished(&mut self, index: u64, at: SimTime);

    /// The [`RequestSpec::patience`] with the request with this index ended at `at`, before the
    /// answer was there.
    fn aborted(&mut self, index: u64, at: SimTime) {
        self.finished(index, at);
    }

    /// The share of its requests that have been taken, 0 to 1, as far as that can be known: users who
    /// wait for answers can still send some at 1.
    fn progress(&self) -> Option<f64> {
        None
    }

    /// The names that [`RequestSpec::tenant`] points into; empty when there is only one tenant
    /// without a name.
    fn tenants(&self) -> &[String];

    /// What the report has to say of where the requests come from.
    fn notes(&self) -> WorkloadNotes {
        WorkloadNotes::default()
    }
}
