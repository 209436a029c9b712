//! Which replicas were there, when, and what they took with them when they failed.

use serde::Serialize;

use crate::simulation::{ReplicaState, ServerLoss};
use crate::units::SimTime;

/// Replicas that came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LifecycleSummary {
    /// Replicas times seconds in which they had their GPUs: while they started, served and drained. This
    /// is what is paid for.
    pub paid_replica_s: f64,
    /// The same of each of their GPUs.
    pub paid_gpu_s: f64,
    /// In which they took requests.
    pub ready_replica_s: f64,
    /// The latter over the time of the run.
    pub mean_ready_replicas: f64,
    pub least_ready_replicas: u32,
    pub most_ready_replicas: u32,
    /// Starts after the beginning.
    pub starts: u64,
    pub failures: u64,
    /// Replicas that ended what they had and went.
    pub drains: u64,
    /// In flight on replicas that failed; one can be lost several times.
    pub lost_requests: u64,
    /// Sampled for them, in vain.
    pub lost_output_tokens: u64,
}

/// Of one replica, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ReplicaTimes {
    pub paid_s: f64,
    pub ready_s: f64,
}

/// What happens to a replica, as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    Starts,
    Ready,
    Failed {
        was_ready: bool,
    },
    /// It takes no more requests.
    Drains,
    Drained,
}

impl Happening {
    fn of(before: ReplicaState, state: ReplicaState, has_failed: bool) -> Self {
        match state {
            ReplicaState::Starting(_) => Self::Starts,
            ReplicaState::Ready => Self::Ready,
            ReplicaState::Draining => Self::Drains,
            ReplicaState::Off if has_failed => Self::Failed { was_ready: before == ReplicaState::Ready },
            ReplicaState::Off => Self::Drained,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Starts => "starts",
            Self::Ready => "is ready",
            Self::Failed { .. } => "fails",
            Self::Drains => "takes no more requests",
            Self::Drained => "is done and goes",
        }
    }

    /// In the number of replicas that are ready.
    pub fn ready_change(self) -> i32 {
        match self {
            Self::Ready => 1,
            Self::Failed { was_ready: true } | Self::Drains => -1,
            Self::Starts | Self::Failed { was_ready: false } | Self::Drained => 0,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct LifecycleTally {
    /// From the start.
    first: Vec<ReplicaState>,
    changes: Vec<(SimTime, u32, ReplicaState)>,
    failures: Vec<(SimTime, u32)>,
    lost_requests: u64,
    lost_output_tokens: u64,
}

impl LifecycleTally {
    /// `is_there` of each replica, at the start.
    pub fn new(is_there: &[bool]) -> Self {
        let state = |&is_there: &bool| if is_there { ReplicaState::Ready } else { ReplicaState::Off };
        Self { first: is_there.iter().map(state).collect(), ..Self::default() }
    }

    pub fn on_replica_state(&mut self, replica: u32, at: SimTime, state: ReplicaState) {
        self.changes.push((at, replica, state));
    }

    pub fn on_failure(&mut self, loss: &ServerLoss) {
        self.failures.push((loss.at, loss.replica));
        self.lost_requests += loss.num_requests;
        self.lost_output_tokens += loss.num_output_tokens;
    }

    /// Replicas that are ready from the start.
    pub fn first_ready(&self) -> impl Iterator<Item = usize> + '_ {
        let states = self.first.iter().enumerate();
        states.filter(|(_, state)| **state == ReplicaState::Ready).map(|(replica, _)| replica)
    }

    /// In order.
    pub fn happenings(&self) -> impl Iterator<Item = (SimTime, u32, Happening)> + '_ {
        let mut states = self.first.clone();
        self.changes.iter().map(move |&(at, replica, state)| {
            let before = std::mem::replace(&mut states[replica as usize], state);
            let has_failed = self.failures.contains(&(at, replica));
            (at, replica, Happening::of(before, state, has_failed))
        })
    }

    /// Replicas that are ready, as of the last change.
    pub fn num_ready(&self) -> u32 {
        let mut states = self.first.clone();
        for &(_, replica, state) in &self.changes {
            states[replica as usize] = state;
        }
        states.iter().filter(|&&state| state == ReplicaState::Ready).count() as u32
    }

    /// Up to the end of the run; what changes after it does not count. Each replica has so many GPUs.
    pub fn summary(&self, end: SimTime, num_gpus: &[u32]) -> (LifecycleSummary, Vec<ReplicaTimes>) {
        let mut states: Vec<(SimTime, ReplicaState)> =
            self.first.iter().map(|&state| (SimTime::ZERO, state)).collect();
        let mut times = vec![ReplicaTimes::default(); states.len()];
        let mut num_ready = states.iter().filter(|(_, state)| *state == ReplicaState::Ready).count() as u32;
        let mut summary = LifecycleSummary {
            least_ready_replicas: num_ready,
            most_ready_replicas: num_ready,
            failures: self.failures.len() as u64,
            lost_requests: self.lost_requests,
            lost_output_tokens: self.lost_output_tokens,
            ..LifecycleSummary::default()
        };
        let mut until = |replica: usize, since: SimTime, at: SimTime, state: ReplicaState| {
            let lasted_s = at.since(since).as_secs_f64();
            times[replica].paid_s += if state.is_paid() { lasted_s } else { 0.0 };
            times[replica].ready_s += if state == ReplicaState::Ready { lasted_s } else { 0.0 };
        };
        for &(at, replica, state) in self.changes.iter().filter(|(at, ..)| *at <= end) {
            let (since, before) = std::mem::replace(&mut states[replica as usize], (at, state));
            until(replica as usize, since, at, before);
            summary.starts += u64::from(matches!(state, ReplicaState::Starting(_)));
            summary.drains += u64::from(before == ReplicaState::Draining && state == ReplicaState::Off);
            num_ready -= u32::from(before == ReplicaState::Ready);
            num_ready += u32::from(state == ReplicaState::Ready);
            summary.least_ready_replicas = summary.least_ready_replicas.min(num_ready);
            summary.most_ready_replicas = summary.most_ready_replicas.max(num_ready);
        }
        for (replica, &(since, state)) in states.iter().enumerate() {
            until(replica, since, end, state);
        }
        summary.paid_replica_s = times.iter().map(|times| times.paid_s).sum();
        let paid = times.iter().zip(num_gpus).map(|(times, &gpus)| times.paid_s * f64::from(gpus));
        summary.paid_gpu_s = paid.sum();
        summary.ready_replica_s = times.iter().map(|times| times.ready_s).sum();
        let duration_s = end.as_secs_f64();
        summary.mean_ready_replicas =
            if duration_s > 0.0 { summary.ready_replica_s / duration_s } else { f64::from(num_ready) };
        (summary, times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_paid_from_the_start_of_a_replica_to_its_end() {
        let second = |s: u64| SimTime::from_ms(s * 1_000);
        let mut tally = LifecycleTally::new(&[true, true, false]);
        // The third starts at 10, is ready at 20 and drains from 50 to 60; the first fails at 30, with
        // four requests. The run ends at 80, the second fails after it.
        tally.on_replica_state(2, second(10), ReplicaState::Starting(second(20)));
        tally.on_replica_state(2, second(20), ReplicaState::Ready);
        tally.on_replica_state(0, second(30), ReplicaState::Off);
        tally.on_failure(&ServerLoss { replica: 0, at: second(30), num_requests: 4, num_output_tokens: 9 });
        assert_eq!(tally.num_ready(), 2);
        tally.on_replica_state(2, second(50), ReplicaState::Draining);
        tally.on_replica_state(2, second(60), ReplicaState::Off);
        tally.on_replica_state(1, second(90), ReplicaState::Off);
        let happenings: Vec<_> = tally.happenings().map(|(_, replica, what)| (replica, what)).collect();
        let expected = [
            (2, Happening::Starts),
            (2, Happening::Ready),
            (0, Happening::Failed { was_ready: true }),
            (2, Happening::Drains),
            (2, Happening::Drained),
            // Nothing says that this one failed.
            (1, Happening::Drained),
        ];
        assert_eq!(happenings, expected);
        let (summary, times) = tally.summary(second(80), &[1, 2, 4]);
        let of = |paid_s, ready_s| ReplicaTimes { paid_s, ready_s };
        assert_eq!(times, [of(30.0, 30.0), of(80.0, 80.0), of(50.0, 30.0)]);
        assert_eq!((summary.paid_replica_s, summary.ready_replica_s), (160.0, 140.0));
        assert_eq!(summary.paid_gpu_s, 30.0 + 2.0 * 80.0 + 4.0 * 50.0);
        assert_eq!(summary.mean_ready_replicas, 1.75);
        assert_eq!((summary.least_ready_replicas, summary.most_ready_replicas), (1, 3));
        assert_eq!((summary.starts, summary.failures, summary.drains), (1, 1, 1));
        assert_eq!((summary.lost_requests, summary.lost_output_tokens), (4, 9));
    }
}
