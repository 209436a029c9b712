//! To the replica that is believed to hold the longest beginning of the prompt, unless the load is too
//! uneven (`cache_aware` of SGLang's router).
//!
//! - If the most loaded replica has more than `balance_abs_threshold` requests more than the least
//!   loaded one, and more than `balance_rel_threshold` times as many: to the least loaded.
//! - Else, if the best match covers more than `cache_threshold` of the prompt: there; of equals to the
//!   least loaded.
//! - Else to the least loaded. SGLang takes the replica with the smallest tree, which is the one with
//!   the most room in its cache; by events as by sent prompts, that is the one that got the least.

use super::prefix_index::{PrefixIndex, PrefixIndexStats};
use super::turn::Turn;
use super::{ReplicaView, Router};
use crate::engine::hash::PromptHashes;
use crate::engine::kv_events::CacheChange;
use crate::units::SimTime;
use crate::workload::RequestSpec;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheAwareThresholds {
    /// Share of the prompt's blocks, 0 to 1.
    pub cache_threshold: f64,
    /// In requests.
    pub balance_abs_threshold: u32,
    /// 1 or more.
    pub balance_rel_threshold: f64,
}

#[derive(Debug)]
pub struct CacheAware {
    index: PrefixIndex,
    thresholds: CacheAwareThresholds,
    turn: Turn,
}

impl CacheAware {
    pub fn new(index: PrefixIndex, thresholds: CacheAwareThresholds) -> Self {
        Self { index, thresholds, turn: Turn::default() }
    }

    fn is_uneven(&self, replicas: &[ReplicaView]) -> bool {
        let loads = replicas.iter().filter(|view| view.is_ready).map(|view| view.num_in_flight);
        let (least, most) =
            loads.fold((u32::MAX, 0), |(least, most), load| (least.min(load), most.max(load)));
        let CacheAwareThresholds { balance_abs_threshold, balance_rel_threshold, .. } = self.thresholds;
        most.saturating_sub(least) > balance_abs_threshold
            && f64::from(most) > f64::from(least) * balance_rel_threshold
    }
}

impl Router for CacheAware {
    fn choose(&mut self, now: SimTime, request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        let is_uneven = self.is_uneven(replicas);
        let (num_blocks, matches) = self.index.look_up(now, request);
        let ready = replicas.iter().zip(matches).filter(|(view, _)| view.is_ready);
        let longest = ready.map(|(_, &length)| length).max().unwrap_or(0);
        let is_enough = f64::from(longest) > self.thresholds.cache_threshold * f64::from(num_blocks);
        if is_enough && !is_uneven {
            return self.turn.least(replicas, |at, view| (matches[at] < longest, view.num_in_flight));
        }
        self.turn.least(replicas, |_, view| view.num_in_flight)
    }

    fn sent(&mut self, _request: &RequestSpec, replica: usize) {
        self.index.sent(replica);
    }

    fn take_prompt_hashes(&mut self) -> Option<PromptHashes> {
        self.index.take_prompt()
    }

    fn reads_events(&self) -> bool {
        self.index.reads_events()
    }

    fn on_events(&mut self, now: SimTime, engine: usize, changes: &[CacheChange]) {
        self.index.on_events(now, engine, changes);
    }

    fn index_stats(&self) -> Option<PrefixIndexStats> {
        Some(self.index.stats())
    }
}
