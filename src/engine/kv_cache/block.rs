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

/// State of a block: 16 bytes, and the links of the free queue and the residency lie apart, since
/// with some ten thousand blocks what is touched together must stay in the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvCacheBlock {
    /// Requests that hold the block.
    pub ref_cnt: u32,
    /// Prefix length in tokens that the hash stands for; 0 without a hash.
    pub block_hash_num_tokens: u32,
    /// The primary hash, or [`NO_HASH`].
    hash: BlockHash,
    group_id: u32,
}

/// No run has so many hashes.
const NO_HASH: BlockHash = BlockHash(u32::MAX);

impl Default for KvCacheBlock {
    fn default() -> Self {
        Self { ref_cnt: 0, block_hash_num_tokens: 0, hash: NO_HASH, group_id: 0 }
    }
}

impl KvCacheBlock {
    #[inline]
    pub fn has_hash(&self) -> bool {
        self.hash != NO_HASH
    }

    #[inline]
    pub fn block_hash(&self) -> Option<BlockHashWithGroupId> {
        self.has_hash().then_some(BlockHashWithGroupId { hash: self.hash, group_id: self.group_id })
    }

    #[inline]
    pub fn set_block_hash(&mut self, key: BlockHashWithGroupId, num_tokens: u32) {
        self.hash = key.hash;
        self.group_id = key.group_id;
        self.block_hash_num_tokens = num_tokens;
    }

    /// Takes the primary hash away.
    #[inline]
    pub fn reset_hash(&mut self) -> Option<BlockHashWithGroupId> {
        let key = self.block_hash();
        self.hash = NO_HASH;
        self.block_hash_num_tokens = 0;
        key
    }
}
