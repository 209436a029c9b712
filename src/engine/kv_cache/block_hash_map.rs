//! From the hash of a prefix to the blocks of one group that hold it (`BlockHashToBlockMap` in
//! `v1/core/block_pool.py`). Equal blocks are not merged: ids in block tables never change.

use rustc_hash::FxHashMap;

use super::block::{BlockId, NULL_BLOCK};
use crate::engine::hash::BlockHash;

/// The first block of a hash, and whether more follow: a bit that almost always spares a look into
/// the table of duplicates.
#[derive(Clone, Copy, Debug)]
struct FirstBlock(u32);

impl FirstBlock {
    const NONE: Self = Self(NULL_BLOCK.0);
    /// No GPU holds 2^31 blocks.
    const HAS_OTHERS: u32 = 1 << 31;

    fn alone(block: BlockId) -> Self {
        Self(block.0)
    }

    fn block(self) -> BlockId {
        BlockId(self.0 & !Self::HAS_OTHERS)
    }

    fn has_others(self) -> bool {
        self.0 & Self::HAS_OTHERS != 0
    }

    fn set_has_others(&mut self, has_others: bool) {
        self.0 = self.block().0 | if has_others { Self::HAS_OTHERS } else { 0 };
    }
}

/// Almost every hash has one block; the others keep theirs in order of insertion, since a lookup
/// takes the first.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockHashToBlockMap {
    /// The first block of each hash, or the null block, which is never cached. Hashes are dense
    /// numbers, and those of blocks in a row mostly lie in a row: four bytes for each hash that the
    /// run has ever seen are much faster than a hash table.
    first: Vec<FirstBlock>,
    num_hashes: usize,
    /// The blocks after the first.
    duplicates: FxHashMap<BlockHash, Vec<BlockId>>,
}

impl BlockHashToBlockMap {
    #[inline]
    pub fn get_one_block(&self, hash: BlockHash) -> Option<BlockId> {
        self.first.get(hash.0 as usize).map(|first| first.block()).filter(|block| !block.is_null())
    }

    pub fn contains(&self, hash: BlockHash, block: BlockId) -> bool {
        self.get_one_block(hash).is_some_and(|first| {
            first == block || self.duplicates.get(&hash).is_some_and(|others| others.contains(&block))
        })
    }

    /// Adds a block that is not yet under this hash.
    #[inline]
    pub fn insert(&mut self, hash: BlockHash, block: BlockId) {
        let at = hash.0 as usize;
        if at >= self.first.len() {
            self.grow(at + 1);
        }
        let first = &mut self.first[at];
        if first.block().is_null() {
            *first = FirstBlock::alone(block);
            self.num_hashes += 1;
        } else {
            first.set_has_others(true);
            self.duplicates.entry(hash).or_default().push(block);
        }
    }

    /// By a part of its size: doubling would touch much memory that is never used.
    #[cold]
    fn grow(&mut self, len: usize) {
        self.first.resize(len + len / 8 + 1024, FirstBlock::NONE);
    }

    /// Takes the block from under the hash; false if it is not there.
    #[inline]
    pub fn pop(&mut self, hash: BlockHash, block: BlockId) -> bool {
        let Some(first) = self.first.get_mut(hash.0 as usize) else { return false };
        if first.has_others() {
            return self.pop_duplicate(hash, block);
        }
        let found = !block.is_null() && first.block() == block;
        if found {
            *first = FirstBlock::NONE;
            self.num_hashes -= 1;
        }
        found
    }

    fn pop_duplicate(&mut self, hash: BlockHash, block: BlockId) -> bool {
        let first = &mut self.first[hash.0 as usize];
        let Some(others) = self.duplicates.get_mut(&hash) else { return false };
        let found = if first.block() == block {
            *first = FirstBlock::alone(others.remove(0));
            true
        } else if let Some(at) = others.iter().position(|&other| other == block) {
            others.remove(at);
            true
        } else {
            false
        };
        first.set_has_others(!others.is_empty());
        if others.is_empty() {
            self.duplicates.remove(&hash);
        }
        found
    }

    pub fn clear(&mut self) {
        self.first.fill(FirstBlock::NONE);
        self.num_hashes = 0;
        self.duplicates.clear();
    }

    /// Whether all lists of duplicates are in use and have a first block, and hashes are counted right.
    pub fn is_consistent(&self) -> bool {
        let has_others = |first: &&FirstBlock| first.has_others();
        self.duplicates.iter().all(|(&hash, others)| !others.is_empty() && self.get_one_block(hash).is_some())
            && self.first.iter().filter(has_others).count() == self.duplicates.len()
            && self.first.iter().filter(|first| !first.block().is_null()).count() == self.num_hashes
    }

    /// The number of hashes.
    pub fn len(&self) -> usize {
        self.num_hashes
    }

    /// The number of (hash, block) pairs.
    pub fn num_blocks(&self) -> usize {
        self.num_hashes + self.duplicates.values().map(Vec::len).sum::<usize>()
    }
}
