//! The process that tells the API servers of a replica how loaded its engine cores are (`DPCoordinatorProc`
//! in `v1/engine/coordinator.py`).
//!
//! An engine core reports its counts when they have changed. The coordinator publishes all of them when
//! some have changed and 100 ms have passed since the last time, else every 5 s. Where the ranks run their
//! steps together it waits until 50 ms have passed in which nobody reported, or until somebody reports of a
//! new step: then the counts as they stood at the end of the one before are what is published.
//!
//! Nothing has to happen at those times: whoever reports or reads finds out what was published until then.

use crate::units::SimTime;

const PUBLISH_INTERVAL: SimTime = SimTime::from_ms(100);
const IDLE_PUBLISH_INTERVAL: SimTime = SimTime::from_ms(5_000);
/// Without a report, before the counts of a step that ranks run together are taken for complete.
const STEP_SETTLED_AFTER: SimTime = SimTime::from_ms(50);

/// What an engine core says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EngineCounts {
    pub waiting: u64,
    pub running: u64,
    /// 0 to 1.
    pub kv_cache_usage: f64,
}

/// Which step of ranks that run together a report is of: waves are counted, and in each its steps.
pub(super) type StepOfWave = (u64, u64);

#[derive(Debug)]
pub(super) struct Coordinator {
    /// Ranks run their steps together.
    is_lockstep: bool,
    counts: Vec<EngineCounts>,
    has_changed: bool,
    last_step: Option<StepOfWave>,
    /// As they stood before the first report of the last step.
    last_step_counts: Option<Vec<EngineCounts>>,
    last_publish: SimTime,
    /// When the next publication is due, if nobody reports before.
    due: SimTime,
}

impl Coordinator {
    pub fn new(num_engines: usize, is_lockstep: bool) -> Self {
        Self {
            is_lockstep,
            counts: vec![EngineCounts::default(); num_engines],
            has_changed: false,
            last_step: None,
            last_step_counts: None,
            last_publish: SimTime::ZERO,
            due: if is_lockstep { STEP_SETTLED_AFTER } else { SimTime::ZERO },
        }
    }

    /// Publishes what is due by `now`: `publish` is called with each.
    pub fn run_until(&mut self, now: SimTime, mut publish: impl FnMut(&[EngineCounts])) {
        while self.due <= now {
            match self.last_step_counts.take() {
                Some(counts) => publish(&counts),
                None => {
                    publish(&self.counts);
                    self.has_changed = false;
                }
            }
            self.last_publish = self.due;
            self.wait_from(self.due);
        }
    }

    /// An engine core reports at `now`, after [`Self::run_until`] this time.
    pub fn report(&mut self, now: SimTime, engine: usize, counts: EngineCounts, step: StepOfWave) {
        if self.is_lockstep && self.last_step.is_none_or(|last| step > last) {
            if self.has_changed {
                self.last_step_counts = Some(self.counts.clone());
            }
            self.last_step = Some(step);
        }
        self.counts[engine] = counts;
        self.has_changed = true;
        self.wait_from(now);
    }

    /// Something else woke it: a wave begins or ends.
    pub fn wake(&mut self, now: SimTime) {
        self.wait_from(now);
    }

    fn wait_from(&mut self, now: SimTime) {
        let interval = if self.has_changed { PUBLISH_INTERVAL } else { IDLE_PUBLISH_INTERVAL };
        let settles = self.is_lockstep && self.last_step_counts.is_none();
        let least = if settles { STEP_SETTLED_AFTER } else { SimTime::ZERO };
        self.due = (now + least).max(self.last_publish + interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> SimTime {
        SimTime::from_ms(ms)
    }

    fn waiting(waiting: u64) -> EngineCounts {
        EngineCounts { waiting, ..EngineCounts::default() }
    }

    /// The waiting requests of both engines as they are published, with the time up to which they are.
    fn published(coordinator: &mut Coordinator, until: SimTime) -> Vec<[u64; 2]> {
        let mut all = Vec::new();
        coordinator.run_until(until, |counts| all.push([counts[0].waiting, counts[1].waiting]));
        all
    }

    #[test]
    fn changes_are_published_every_100_ms() {
        let mut coordinator = Coordinator::new(2, false);
        assert_eq!(published(&mut coordinator, ms(10)), [[0, 0]]);
        coordinator.report(ms(10), 0, waiting(3), (0, 0));
        assert_eq!(published(&mut coordinator, ms(99)), [[0; 2]; 0]);
        coordinator.report(ms(99), 1, waiting(5), (0, 0));
        assert_eq!(published(&mut coordinator, ms(100)), [[3, 5]]);
        // Nothing new: 5 s after the last time. A change after more than 100 ms goes out at once.
        assert_eq!(published(&mut coordinator, ms(5_099)), [[0; 2]; 0]);
        assert_eq!(published(&mut coordinator, ms(5_100)), [[3, 5]]);
        coordinator.report(ms(5_300), 0, waiting(1), (0, 0));
        assert_eq!(published(&mut coordinator, ms(5_300)), [[1, 5]]);
        coordinator.report(ms(5_301), 0, waiting(2), (0, 0));
        assert_eq!(published(&mut coordinator, ms(5_399)), [[0; 2]; 0]);
        assert_eq!(published(&mut coordinator, ms(5_400)), [[2, 5]]);
    }

    #[test]
    fn counts_of_a_step_are_published_once_the_next_has_begun() {
        let mut coordinator = Coordinator::new(2, true);
        assert_eq!(published(&mut coordinator, ms(50)), [[0, 0]]);
        // Step 1 of both; more than 100 ms after the last time, but not settled.
        coordinator.report(ms(200), 0, waiting(3), (0, 1));
        assert_eq!(published(&mut coordinator, ms(210)), [[0; 2]; 0]);
        coordinator.report(ms(210), 1, waiting(4), (0, 1));
        // Step 2 begins: step 1 is complete, and goes out at once.
        coordinator.report(ms(230), 0, waiting(9), (0, 2));
        assert_eq!(published(&mut coordinator, ms(230)), [[3, 4]]);
        // Nobody reports for 50 ms, and 100 ms after the last time the rest goes out.
        coordinator.report(ms(240), 1, waiting(8), (0, 2));
        assert_eq!(published(&mut coordinator, ms(329)), [[0; 2]; 0]);
        assert_eq!(published(&mut coordinator, ms(330)), [[9, 8]]);
    }
}
