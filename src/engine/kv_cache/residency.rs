//! How long blocks live and wait (`v1/core/kv_cache_metrics.py`), of every block instead of a
//! sample.

use super::block::BlockId;

/// Blocks that had been handed out before and are handed out again
/// (`KVCacheEvictionEvent`; vLLM counts blocks without a hash too). One after the other, and alike: the
/// blocks of a request are taken, left and taken again together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEviction {
    pub evicted_at_ns: u64,
    /// Since the block was handed out the time before.
    pub lifetime_ns: u64,
    /// Since the last hit, or since it was handed out.
    pub idle_ns: u64,
    /// Hits on each in this life.
    pub num_hits: u32,
    /// Whether a hash was lost with it.
    pub cached: bool,
    pub num_blocks: u32,
}

/// Evictions and reuse gaps since they were last taken.
#[derive(Clone, Debug, Default)]
pub struct Residency {
    pub evictions: Vec<BlockEviction>,
    /// Time between two hits on one block, in nanoseconds.
    pub reuse_gaps_ns: Vec<u64>,
    lives: Vec<Life>,
}

/// The time in which a block holds one content.
#[derive(Clone, Copy, Debug)]
struct Life {
    /// When it was handed out, or [`NEVER_NS`].
    birth_ns: u64,
    last_access_ns: u64,
    num_hits: u32,
}

const NEVER_NS: u64 = u64::MAX;
const NO_LIFE: Life = Life { birth_ns: NEVER_NS, last_access_ns: 0, num_hits: 0 };

impl Life {
    fn from(now_ns: u64) -> Self {
        Self { birth_ns: now_ns, last_access_ns: now_ns, num_hits: 0 }
    }
}

impl Residency {
    pub(super) fn new(num_gpu_blocks: u32) -> Self {
        Self { lives: vec![NO_LIFE; num_gpu_blocks as usize], ..Self::default() }
    }

    #[inline]
    pub(super) fn on_block_allocated(&mut self, block: BlockId, now_ns: u64) {
        self.lives[block.index()] = Life::from(now_ns);
    }

    /// It is evicted and allocated at the same time.
    #[inline]
    pub(super) fn on_block_allocated_anew(&mut self, block: BlockId, now_ns: u64, cached: bool) {
        let life = std::mem::replace(&mut self.lives[block.index()], Life::from(now_ns));
        self.end(life, now_ns, cached);
    }

    #[inline]
    pub(super) fn on_block_accessed(&mut self, block: BlockId, now_ns: u64) {
        let life = &mut self.lives[block.index()];
        if life.birth_ns == NEVER_NS {
            return;
        }
        if life.num_hits > 0 {
            self.reuse_gaps_ns.push(now_ns - life.last_access_ns);
        }
        life.last_access_ns = now_ns;
        life.num_hits += 1;
    }

    #[inline]
    pub(super) fn on_block_evicted(&mut self, block: BlockId, now_ns: u64, cached: bool) {
        let life = std::mem::replace(&mut self.lives[block.index()], NO_LIFE);
        self.end(life, now_ns, cached);
    }

    #[inline]
    fn end(&mut self, life: Life, now_ns: u64, cached: bool) {
        if life.birth_ns == NEVER_NS {
            return;
        }
        let eviction = BlockEviction {
            evicted_at_ns: now_ns,
            lifetime_ns: now_ns - life.birth_ns,
            idle_ns: now_ns - life.last_access_ns,
            num_hits: life.num_hits,
            cached,
            num_blocks: 1,
        };
        match self.evictions.last_mut() {
            Some(last) if (BlockEviction { num_blocks: 1, ..*last }) == eviction => last.num_blocks += 1,
            _ => self.evictions.push(eviction),
        }
    }

    /// All lives end without being counted (a reset of the cache).
    pub(super) fn reset(&mut self) {
        self.lives.fill(NO_LIFE);
        self.evictions.clear();
    }
}
