//! One block of the pool (`KVCacheBlock` in `v1/core/kv_cache_utils.py`).

use crate::engine::hash::BlockHash;

/// Index of a block in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub const fn is_null(self) -> bool {
        self.0 == NULL_BLOCK.0
    }
}

/// Block 0 stands for "no block": the pool never hands it out and its `ref_cnt` is not kept.
pub const NULL_BLOCK: BlockId = BlockId(0);

/// Key of the hash map: the hash of a block's prefix and the KV cache group that holds it
/// (`BlockHashWithGroupId`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHashWithGroupId {
    pub hash: BlockHash,
    pub group_id: u32,
}

/// State of a block. The links of the free queue lie apart, so that walking the queue stays in
/// the cache.
#[derive(Clone, Debug)]
pub(super) struct KvCacheBlock {
    /// Requests that hold the block.
    pub ref_cnt: u32,
    /// Prefix length in tokens that `block_hash` stands for; 0 without a hash.
    pub block_hash_num_tokens: u32,
    /// The primary hash.
    pub block_hash: Option<BlockHashWithGroupId>,
    /// Residency: when the block was last handed out ([`NEVER_NS`] if that life has ended) and
    /// last hit, and how often it was hit.
    pub birth_ns: u64,
    pub last_access_ns: u64,
    pub num_hits: u32,
}

/// A time that does not come.
pub(super) const NEVER_NS: u64 = u64::MAX;

impl Default for KvCacheBlock {
    fn default() -> Self {
        Self {
            ref_cnt: 0,
            block_hash_num_tokens: 0,
            block_hash: None,
            birth_ns: NEVER_NS,
            last_access_ns: 0,
            num_hits: 0,
        }
    }
}
