//! To the replica with the smallest share of its KV cache in use (`vllm:kv_cache_usage_perc`).

use super::turn::Turn;
use super::{ReplicaView, Router};
use crate::workload::RequestSpec;

#[derive(Debug, Default)]
pub struct LeastKvUsage {
    turn: Turn,
}

impl Router for LeastKvUsage {
    fn choose(&mut self, _request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        // Requests that wait hold no block, so of equally full caches the shorter queue comes first.
        self.turn.least(replicas, |_, view| (view.kv_usage(), view.num_in_flight))
    }
}
