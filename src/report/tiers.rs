//! What the tiers behind the GPUs' caches did.

use serde::Serialize;

use super::summary::HitRate;
use crate::engine::connector::{SharedBy, TierKind};
use crate::simulation::{ReplicaTierEnding, TierEnding};

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExternalCache {
    /// Lookups of what the GPU's cache did not have (`vllm:external_prefix_cache_queries`).
    #[serde(flatten)]
    pub total: HitRate,
    pub preempted: HitRate,
    /// Why nothing of what replicas store in common tiers is hit by others, if that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_shared_because: Option<String>,
    pub tiers: Vec<TierSummary>,
}

/// The tiers of one kind of all replicas.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierSummary {
    pub kind: TierKind,
    /// Who has a store in common; each replica its own, if nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedBy>,
    pub stores: u64,
    pub hit_tokens: u64,
    /// Of these, in blocks that other replicas stored.
    pub hit_tokens_of_others: u64,
    pub written_blocks: u64,
    pub evicted_blocks: u64,
    /// Of all stores, at the end.
    pub held_blocks: u64,
    /// The most of each store at any time, added up.
    pub peak_held_blocks: u64,
    pub capacity_blocks: u64,
    pub read: TierTraffic,
    pub write: TierTraffic,
    /// Of each replica that shares it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaTierSummary>,
}

/// One way of the copies to or from a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TierTraffic {
    /// Over all ranks.
    pub bytes: u64,
    pub copies: u64,
    /// Share of the run in which the link was busy: of a shared tier the store's own end, mean of the stores.
    pub busy: f64,
    /// From the time at which a copy was ready to its begin, because links were busy with others.
    pub mean_wait_ms: f64,
}

/// Tokens of hits, by who stored them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ReplicaTierSummary {
    pub replica: u32,
    /// Of the stores, counted from 0.
    pub store: u64,
    /// In blocks that it stored itself.
    pub own_hit_tokens: u64,
    /// In blocks that others stored.
    pub hit_tokens_of_others: u64,
    /// That others hit in what it stored.
    pub hit_tokens_by_others: u64,
}

impl ReplicaTierSummary {
    fn new(ending: &ReplicaTierEnding) -> Self {
        let of_others = ending.stats.hit_tokens_of_others;
        Self {
            replica: ending.replica,
            store: ending.store,
            own_hit_tokens: ending.stats.hit_tokens - of_others,
            hit_tokens_of_others: of_others,
            hit_tokens_by_others: ending.given_tokens,
        }
    }
}

impl TierSummary {
    /// Of a run that took so long.
    pub(super) fn new(ending: &TierEnding, duration_s: f64) -> Self {
        let over = |sum: f64, count: f64| if count > 0.0 { sum / count } else { 0.0 };
        let traffic = |way: usize| TierTraffic {
            bytes: ending.links.bytes[way],
            copies: ending.links.copies[way],
            busy: over(ending.store_busy[way].as_secs_f64(), duration_s * ending.num_stores as f64),
            mean_wait_ms: over(ending.links.waited[way].as_secs_f64() * 1e3, ending.links.copies[way] as f64),
        };
        let replicas = ending.replicas.iter().filter(|_| ending.shared.is_some());
        Self {
            kind: ending.kind,
            shared: ending.shared,
            stores: ending.num_stores,
            hit_tokens: ending.stats.hit_tokens,
            hit_tokens_of_others: ending.stats.hit_tokens_of_others,
            written_blocks: ending.stats.written_blocks,
            evicted_blocks: ending.stats.evicted_blocks,
            held_blocks: ending.held_blocks,
            peak_held_blocks: ending.peak_held_blocks,
            capacity_blocks: ending.capacity_blocks,
            read: traffic(0),
            write: traffic(1),
            replicas: replicas.map(ReplicaTierSummary::new).collect(),
        }
    }
}
