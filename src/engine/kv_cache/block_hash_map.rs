//! From the hash of a prefix to the blocks of one group that hold it (`BlockHashToBlockMap` in
//! `v1/core/block_pool.py`). Equal blocks are not merged: ids in block tables never change.

use rustc_hash::FxHashMap;

use super::block::{BlockId, NULL_BLOCK};
use crate::engine::hash::BlockHash;

/// Almost every hash has one block; the others keep theirs in order of insertion, since a lookup
/// takes the first.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockHashToBlockMap {
    /// The first block of each hash, or the null block, which is never cached. Hashes are dense
    /// numbers, and those of blocks in a row mostly lie in a row: four bytes for each hash that the
    /// run has ever seen are much faster than a hash table.
    first: Vec<BlockId>,
    num_hashes: usize,
    /// The blocks after the first.
    duplicates: FxHashMap<BlockHash, Vec<BlockId>>,
}

impl BlockHashToBlockMap {
    #[inline]
    pub fn get_one_block(&self, hash: BlockHash) -> Option<BlockId> {
        self.first.get(hash.0 as usize).copied().filter(|block| !block.is_null())
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
            self.first.resize((at + 1).next_power_of_two(), NULL_BLOCK);
        }
        if self.first[at].is_null() {
            self.first[at] = block;
            self.num_hashes += 1;
        } else {
            self.duplicates.entry(hash).or_default().push(block);
        }
    }

    /// Takes the block from under the hash; false if it is not there.
    #[inline]
    pub fn pop(&mut self, hash: BlockHash, block: BlockId) -> bool {
        let Some(first) = self.first.get_mut(hash.0 as usize) else { return false };
        if first.is_null() {
            return false;
        }
        if self.duplicates.is_empty() || !self.duplicates.contains_key(&hash) {
            let found = *first == block;
            if found {
                *first = NULL_BLOCK;
                self.num_hashes -= 1;
            }
            return found;
        }
        self.pop_duplicate(hash, block)
    }

    fn pop_duplicate(&mut self, hash: BlockHash, block: BlockId) -> bool {
        let first = &mut self.first[hash.0 as usize];
        let Some(others) = self.duplicates.get_mut(&hash) else { return false };
        let found = if *first == block {
            *first = others.remove(0);
            true
        } else if let Some(at) = others.iter().position(|&other| other == block) {
            others.remove(at);
            true
        } else {
            false
        };
        if others.is_empty() {
            self.duplicates.remove(&hash);
        }
        found
    }

    pub fn clear(&mut self) {
        self.first.fill(NULL_BLOCK);
        self.num_hashes = 0;
        self.duplicates.clear();
    }

    /// Whether all lists of duplicates are in use and have a first block, and hashes are counted right.
    pub fn is_consistent(&self) -> bool {
        self.duplicates.iter().all(|(&hash, others)| !others.is_empty() && self.get_one_block(hash).is_some())
            && self.first.iter().filter(|block| !block.is_null()).count() == self.num_hashes
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
