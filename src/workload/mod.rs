//! Who asks what when: recorded traces and generated traffic, as one stream of [`Arrival`]s.
//!
//! A trace format is one file in `trace/` and its registration in [`trace::TraceFormat`]; a
//! generator is a folder beside it. Both are a [`Workload`] to the simulation.

mod arrival;
mod arrival_process;
pub mod chat;
mod distribution;
mod error;
pub mod rng;
pub mod trace;

pub use arrival::{Arrival, Patience, RequestSpec, WaitsFor};
pub use arrival_process::{ArrivalProcess, ArrivalTimes};
pub use distribution::Distribution;
pub use error::{ConfigError, WorkloadError};

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

    /// The names that [`RequestSpec::tenant`] points into; empty when there is only one tenant
    /// without a name.
    fn tenants(&self) -> &[String];
}
