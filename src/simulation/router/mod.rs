//! Who gets a request: one file for each policy.
//!
//! A router sees of the replicas what a router in front of servers can see, as [`ReplicaView`]s, and
//! of a request what stands in it. The simulation tells it of what it sent and of what ended, and if it
//! reads them, of the replicas' KV events. [`PrefixIndex`] is what the policies that look at prefixes
//! have in common.

mod cache_aware;
mod config;
mod hash_match;
mod holders;
mod kv_cost;
mod least_kv_usage;
mod least_requests;
mod lru;
mod metrics;
mod prefix_index;
mod random;
mod round_robin;
mod session_affinity;
#[cfg(test)]
mod tests;
mod turn;
mod weighted;

pub use cache_aware::{CacheAware, CacheAwareThresholds};
pub use config::{EventSource, PrefixSource, RouterConfig, RouterPolicy};
pub use hash_match::RouterHash;
pub use kv_cost::KvCost;
pub use least_kv_usage::LeastKvUsage;
pub use least_requests::LeastRequests;
pub(super) use metrics::{Gauges, Metrics};
pub use prefix_index::{EventSettings, PrefixIndex, PrefixIndexStats};
pub use random::Random;
pub use round_robin::RoundRobin;
pub use session_affinity::SessionAffinity;
pub use weighted::{ScoreWeights, Weighted};

use crate::engine::hash::PromptHashes;
use crate::engine::kv_events::CacheChange;
use crate::units::SimTime;
use crate::workload::RequestSpec;

/// What a router knows of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaView {
    /// It takes requests.
    pub is_ready: bool,
    /// Requests that were sent to it and have not ended: the router's own count.
    pub num_in_flight: u32,
    /// The gauges of `vllm:num_requests_running` and `vllm:num_requests_waiting`.
    pub num_running: u32,
    pub num_waiting: u32,
    /// Blocks that requests hold, and all blocks, the null block left out:
    /// `vllm:kv_cache_usage_perc` is the one over the other.
    pub used_blocks: u32,
    pub num_blocks: u32,
}

impl ReplicaView {
    /// Share of the blocks in use, 0 to 1.
    pub fn kv_usage(&self) -> f64 {
        f64::from(self.used_blocks) / f64::from(self.num_blocks.max(1))
    }
}

/// Chooses a replica for each request.
pub trait Router {
    /// The index of a replica that is ready; at least one is.
    fn choose(&mut self, now: SimTime, request: &RequestSpec, replicas: &[ReplicaView]) -> usize;

    /// The request, the last that was chosen for, goes to that replica.
    fn sent(&mut self, _request: &RequestSpec, _replica: usize) {}

    /// The hashes of the prompt that was chosen for last, all of them, if the router has made them. An
    /// engine that hashes with a clone of the router's hasher takes them over.
    fn take_prompt_hashes(&mut self) -> Option<PromptHashes> {
        None
    }

    /// The first token of the request with this [`RequestSpec::index`] has come.
    fn started(&mut self, _index: u64, _replica: usize) {}

    /// The request with this [`RequestSpec::index`] is no longer there: answered, aborted or failed.
    fn ended(&mut self, _index: u64, _replica: usize) {}

    /// Whether [`Self::on_events`] wants to be called.
    fn reads_events(&self) -> bool {
        false
    }

    /// An engine core publishes, after a step, what changed in its prefix cache. They are counted over all
    /// replicas; one with data-parallel ranks has several.
    fn on_events(&mut self, _now: SimTime, _engine: usize, _changes: &[CacheChange]) {}

    /// How well the router knew the prefix caches, if it looks at prefixes.
    fn index_stats(&self) -> Option<PrefixIndexStats> {
        None
    }
}
