//! Every step of a run for a picture, in bounded memory: when there are too many, neighbours become
//! one bar, all over the run and again and again. The slowest steps are kept as they were.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::simulation::StepRecord;
use crate::units::SimTime;

/// Bars of all replicas. Some 50 bytes each in a page.
const MAX_BARS: usize = 2_000;
/// No replica has fewer, so of a large fleet only the first are kept.
const MIN_BARS_OF_REPLICA: usize = 200;
pub(super) const NUM_SLOWEST: usize = 20;

/// One step, or several that followed one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bar {
    pub num_steps: u64,
    pub scheduled_at: SimTime,
    /// Of the host, when the last step was planned.
    pub planned_at: SimTime,
    pub host_ns: u64,
    pub started_at: SimTime,
    /// Of the GPU, with the last step.
    pub done_at: SimTime,
    pub gpu_ns: u64,
    pub num_prefill_tokens: u64,
    pub num_decode_tokens: u64,
    /// The most in a step.
    pub num_requests: u32,
    pub num_preempted: u32,
}

impl Bar {
    fn of(step: &StepRecord) -> Self {
        Self {
            num_steps: 1,
            scheduled_at: step.scheduled_at,
            planned_at: step.scheduled_at + SimTime(step.host_ns),
            host_ns: step.host_ns,
            started_at: step.started_at,
            done_at: step.started_at + SimTime(step.gpu_ns),
            gpu_ns: step.gpu_ns,
            num_prefill_tokens: step.num_prefill_tokens.into(),
            num_decode_tokens: step.num_decode_tokens.into(),
            num_requests: step.num_scheduled_requests,
            num_preempted: step.num_preempted,
        }
    }

    fn join(&mut self, later: &Self) {
        self.num_steps += later.num_steps;
        self.planned_at = later.planned_at;
        self.host_ns += later.host_ns;
        self.done_at = later.done_at;
        self.gpu_ns += later.gpu_ns;
        self.num_prefill_tokens += later.num_prefill_tokens;
        self.num_decode_tokens += later.num_decode_tokens;
        self.num_requests = self.num_requests.max(later.num_requests);
        self.num_preempted += later.num_preempted;
    }
}

#[derive(Clone, Debug)]
pub(super) struct ReplicaSteps {
    pub bars: Vec<Bar>,
    /// In each bar, but for the last.
    pub steps_in_bar: u64,
}

impl ReplicaSteps {
    fn push(&mut self, step: &StepRecord, max_bars: usize) {
        let bar = Bar::of(step);
        match self.bars.last_mut() {
            Some(last) if last.num_steps < self.steps_in_bar => last.join(&bar),
            _ => self.bars.push(bar),
        }
        if self.bars.len() > max_bars {
            self.steps_in_bar *= 2;
            let mut joined = 0;
            for at in (0..self.bars.len()).step_by(2) {
                let mut bar = self.bars[at];
                if let Some(later) = self.bars.get(at + 1) {
                    bar.join(later);
                }
                self.bars[joined] = bar;
                joined += 1;
            }
            self.bars.truncate(joined);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct StepTimeline {
    /// The first of them.
    pub replicas: Vec<ReplicaSteps>,
    max_bars: usize,
    /// By time on the GPU, the earlier first, then by replica and number.
    slowest: BTreeSet<(Reverse<u64>, u64, u32)>,
    slowest_records: Vec<StepRecord>,
}

impl StepTimeline {
    pub fn new(num_replicas: usize) -> Self {
        let kept = num_replicas.clamp(1, MAX_BARS / MIN_BARS_OF_REPLICA);
        Self {
            replicas: vec![ReplicaSteps { bars: Vec::new(), steps_in_bar: 1 }; kept],
            max_bars: MAX_BARS / kept,
            slowest: BTreeSet::new(),
            slowest_records: Vec::new(),
        }
    }

    pub fn on_step(&mut self, step: &StepRecord) {
        // A step can compute nothing and only say who has ended.
        if step.num_scheduled_requests == 0 {
            return;
        }
        if let Some(replica) = self.replicas.get_mut(step.replica as usize) {
            replica.push(step, self.max_bars);
        }
        let is_slow = self.slowest.len() < NUM_SLOWEST
            || self.slowest.last().is_some_and(|&(Reverse(gpu_ns), ..)| step.gpu_ns > gpu_ns);
        if is_slow {
            self.slowest.insert((Reverse(step.gpu_ns), step.index, step.replica));
            self.slowest_records.push(*step);
            if self.slowest.len() > NUM_SLOWEST
                && let Some((_, index, replica)) = self.slowest.pop_last()
            {
                self.slowest_records.retain(|step| (step.index, step.replica) != (index, replica));
            }
        }
    }

    /// The steps that took the GPU longest, the longest first.
    pub fn slowest(&self) -> Vec<StepRecord> {
        let mut steps = self.slowest_records.clone();
        steps.sort_by_key(|step| (Reverse(step.gpu_ns), step.index, step.replica));
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(index: u64) -> StepRecord {
        StepRecord {
            index,
            scheduled_at: SimTime(100 * index),
            started_at: SimTime(100 * index + 10),
            host_ns: 10,
            gpu_ns: 60 + index % 7,
            num_decode_tokens: 3,
            num_prefill_tokens: u32::from(index.is_multiple_of(2)),
            num_scheduled_requests: 3 + (index % 5) as u32,
            ..StepRecord::default()
        }
    }

    #[test]
    fn few_steps_are_bars_of_their_own() {
        let mut timeline = StepTimeline::new(1);
        (0..10).for_each(|index| timeline.on_step(&step(index)));
        timeline.on_step(&StepRecord { index: 10, ..StepRecord::default() });
        let ReplicaSteps { bars, steps_in_bar } = &timeline.replicas[0];
        assert_eq!((bars.len(), *steps_in_bar), (10, 1));
        assert_eq!(bars[4], Bar::of(&step(4)));
        // 6 and 5 have the longest times, 66 and 65 ns.
        let slowest: Vec<u64> = timeline.slowest().iter().map(|step| step.index).collect();
        assert_eq!(slowest, [6, 5, 4, 3, 2, 9, 1, 8, 0, 7]);
    }

    #[test]
    fn many_steps_are_joined_and_nothing_is_lost() {
        let mut timeline = StepTimeline::new(2);
        for index in 0..10_001 {
            timeline.on_step(&step(index));
            timeline.on_step(&StepRecord { replica: 1, ..step(index) });
        }
        for ReplicaSteps { bars, steps_in_bar } in &timeline.replicas {
            assert_eq!((bars.len(), *steps_in_bar), (626, 16));
            assert_eq!(bars.iter().map(|bar| bar.num_steps).sum::<u64>(), 10_001);
            assert_eq!(bars.iter().map(|bar| bar.num_decode_tokens).sum::<u64>(), 30_003);
            assert!(bars.windows(2).all(|pair| pair[0].done_at <= pair[1].started_at));
            // Steps 16 to 31.
            assert_eq!((bars[1].scheduled_at, bars[1].done_at), (SimTime(1_600), SimTime(3_173)));
            assert_eq!((bars[1].num_requests, bars[1].num_prefill_tokens), (7, 8));
        }
        let slowest = timeline.slowest();
        assert_eq!(slowest.len(), NUM_SLOWEST);
        assert!(slowest.iter().all(|step| step.gpu_ns == 66));
        assert_eq!((slowest[0].index, slowest[0].replica, slowest[1].replica), (6, 0, 1));
    }

    #[test]
    fn a_large_fleet_keeps_some() {
        let mut timeline = StepTimeline::new(1_000);
        timeline.on_step(&StepRecord { replica: 999, ..step(1) });
        assert_eq!(timeline.replicas.len(), 10);
        assert_eq!(timeline.slowest().len(), 1);
    }
}
