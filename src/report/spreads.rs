//! How the values of a run spread, for its page: what a summary is too short for.

use super::distribution::Distribution;
use super::log_histogram::LogHistogram;
use crate::cost::StepTime;

#[derive(Debug, Default)]
pub(super) struct Spreads {
    /// In nanoseconds, of the requests that finished.
    pub queue: Distribution,
    pub ttft: Distribution,
    pub tpot: Distribution,
    pub itl: Distribution,
    pub e2e: Distribution,
    /// Of blocks that were handed out again.
    pub lifetimes: LogHistogram,
    pub idle_times: LogHistogram,
    pub reuse_gaps: LogHistogram,
    /// Of steps with prefill, and of those that only decode.
    pub step_times: [StepTimes; 2],
}

/// Of some steps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepTimes {
    pub steps: u64,
    pub time: StepTime,
}
