//! How long blocks live and wait (`v1/core/kv_cache_metrics.py`), of every block instead of a
//! sample.

/// A block that had been handed out before and is handed out again
/// (`KVCacheEvictionEvent`; vLLM counts blocks without a hash too).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEviction {
    pub evicted_at_ns: u64,
    /// Since the block was handed out the time before.
    pub lifetime_ns: u64,
    /// Since the last hit, or since it was handed out.
    pub idle_ns: u64,
    /// Hits on it in this life.
    pub num_hits: u32,
    /// Whether a hash was lost with it.
    pub cached: bool,
}

/// Evictions and reuse gaps since they were last taken.
#[derive(Clone, Debug, Default)]
pub struct Residency {
    pub evictions: Vec<BlockEviction>,
    /// Time between two hits on one block, in nanoseconds.
    pub reuse_gaps_ns: Vec<u64>,
}
