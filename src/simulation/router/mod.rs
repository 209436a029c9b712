//! Who gets a request: one file for each policy.
//!
//! A router sees of the replicas what a router in front of servers can see, as [`ReplicaView`]s, and
//! of a request what stands in it. The simulation tells it of what it sent and of what ended.

mod config;
mod least_kv_usage;
mod least_requests;
mod random;
mod round_robin;
mod turn;

pub use config::{RouterConfig, RouterPolicy};
pub use least_kv_usage::LeastKvUsage;
pub use least_requests::LeastRequests;
pub use random::Random;
pub use round_robin::RoundRobin;

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
    fn choose(&mut self, request: &RequestSpec, replicas: &[ReplicaView]) -> usize;

    /// The request goes to that replica.
    fn sent(&mut self, _request: &RequestSpec, _replica: usize) {}

    /// The request with this [`RequestSpec::index`] is no longer there: answered, aborted or failed.
    fn ended(&mut self, _index: u64, _replica: usize) {}
}
