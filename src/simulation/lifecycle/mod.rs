//! Replicas that come and go: failures, restarts, drains, and an autoscaler.
//!
//! A replica that is not there costs nothing; one that starts up, serves or drains is paid for. The
//! router sees those that are ready. While none is, requests wait at the router.

mod autoscaler;
mod config;
mod control;
#[cfg(test)]
pub(super) mod tests;

use std::collections::VecDeque;
use std::ops::Range;

pub use autoscaler::{Autoscaler, AutoscalerConfig, ScalingMetric, ScalingRules, SelectPolicy};
pub use config::OnFailure;
use rustc_hash::FxHashMap;

use crate::units::SimTime;
use crate::workload::Arrival;

/// What a replica is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// Not there: failed, drained, or not needed yet.
    Off,
    /// Ready at the time.
    Starting(SimTime),
    /// Takes requests.
    Ready,
    /// Takes no more, and ends those that it has.
    Draining,
}

impl ReplicaState {
    /// It has its GPUs.
    pub const fn is_paid(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// It serves, or will.
    const fn is_active(self) -> bool {
        matches!(self, Self::Starting(_) | Self::Ready)
    }
}

/// How replicas come and go.
#[derive(Debug, Default)]
pub struct LifecycleConfig {
    /// Whether each replica is there from the start; all, if there is nothing.
    pub is_there: Vec<bool>,
    pub on_failure: OnFailure,
    pub autoscalers: Vec<PoolScaler>,
}

/// An autoscaler and the replicas that it starts and drains.
#[derive(Debug)]
pub struct PoolScaler {
    pub autoscaler: Autoscaler,
    pub replicas: Range<usize>,
}

/// Where the replicas and the requests outside of them stand.
pub(super) struct Lifecycle {
    pub states: Vec<ReplicaState>,
    /// When each replica was last started.
    started_at: Vec<SimTime>,
    on_failure: OnFailure,
    /// Replicas can fail.
    pub can_lose_requests: bool,
    /// Requests that would have to be sent again, if replicas can fail.
    in_flight: Option<FxHashMap<u64, Arrival>>,
    /// Nobody is ready for them.
    pub at_router: VecDeque<Arrival>,
    scalers: Vec<PoolScaler>,
}

impl Lifecycle {
    /// All are ready.
    pub fn new(num_replicas: usize) -> Self {
        Self {
            states: vec![ReplicaState::Ready; num_replicas],
            started_at: vec![SimTime::ZERO; num_replicas],
            on_failure: OnFailure::default(),
            can_lose_requests: false,
            in_flight: None,
            at_router: VecDeque::new(),
            scalers: Vec::new(),
        }
    }

    /// A request is on its way to a replica.
    pub fn sent(&mut self, arrival: &Arrival) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.insert(arrival.request.index, arrival.clone());
        }
    }

    /// A request has ended.
    pub fn ended(&mut self, index: u64) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.remove(&index);
        }
    }

    /// The request that nobody has been ready for leaves the router; `None` if it has been sent.
    pub fn give_up(&mut self, index: u64) -> Option<Arrival> {
        let at = self.at_router.iter().position(|arrival| arrival.request.index == index)?;
        self.at_router.remove(at)
    }

    /// Replicas of a scaler that serve, or will.
    fn num_active(&self, replicas: &Range<usize>) -> usize {
        self.states[replicas.clone()].iter().filter(|state| state.is_active()).count()
    }
}
