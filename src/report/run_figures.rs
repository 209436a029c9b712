//! Follows a simulation for its summary alone: no file is written.

use super::blocks_csv::Residencies;
use super::collector::Collector;
use super::run_report::RunInfo;
use super::summary::RunSummary;
use crate::engine::kv_cache::BlockEviction;
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::scheduler::Scheduler;
use crate::simulation::{
    Observer, PullRecord, ReplicaState, RequestRecord, RunEnding, ServerLoss, StepRecord, StepSpan,
};
use crate::units::SimTime;

/// An [`Observer`] that comes to the same [`RunSummary`] as a [`RunReport`](super::RunReport).
pub struct RunFigures {
    info: RunInfo,
    collector: Collector,
    residencies: Residencies,
    kv_events: u64,
}

impl RunFigures {
    pub fn new(info: RunInfo) -> Self {
        let collector = Collector::new(&info);
        Self { info, collector, residencies: Residencies::default(), kv_events: 0 }
    }

    /// What the run came to.
    pub fn finish(mut self, ending: RunEnding) -> RunSummary {
        let kv_events = self.info.kv_events.then_some(self.kv_events);
        self.collector.summary(&self.info, &self.residencies, kv_events, ending)
    }
}

impl Observer for RunFigures {
    fn on_step(&mut self, step: &StepRecord) {
        self.collector.on_step(step);
    }

    fn on_output_steps(&mut self, request: &RequestRecord, spans: &[StepSpan]) {
        self.collector.on_output_steps(request, spans);
    }

    fn on_request(&mut self, request: &RequestRecord) {
        self.collector.on_request(request);
    }

    fn on_evictions(&mut self, replica: u32, evictions: &[BlockEviction]) {
        self.collector.on_evictions(replica, evictions);
        evictions.iter().for_each(|eviction| self.residencies.add(eviction));
    }

    fn on_reuse_gaps(&mut self, _replica: u32, gaps_ns: &[u64]) {
        self.collector.on_reuse_gaps(gaps_ns);
    }

    fn on_kv_events(&mut self, _replica: u32, _at: SimTime, events: &[KvCacheEvent], _scheduler: &Scheduler) {
        self.kv_events += events.len() as u64;
    }

    fn on_prefill(&mut self, replica: u32, num_prompt_tokens: u32) {
        self.collector.on_prefill(replica, num_prompt_tokens);
    }

    fn on_pull(&mut self, _replica: u32, pull: &PullRecord) {
        self.collector.on_pull(pull);
    }

    fn on_replica_state(&mut self, replica: u32, at: SimTime, state: ReplicaState) {
        self.collector.on_replica_state(replica, at, state);
    }

    fn on_failure(&mut self, loss: &ServerLoss) {
        self.collector.on_failure(loss);
    }

    fn on_reset(&mut self, replica: u32, _at: SimTime, done: bool, num_preempted: u32) {
        self.collector.on_reset(replica, done, num_preempted);
    }
}
