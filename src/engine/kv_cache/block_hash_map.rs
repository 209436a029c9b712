//! From the hash of a prefix to the blocks of one group that hold it (`BlockHashToBlockMap` in
//! `v1/core/block_pool.py`). Equal blocks are not merged: ids in block tables never change.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::block::BlockId;
use crate::engine::hash::BlockHash;

/// Almost every hash has one block; the others keep theirs in order of insertion, since a lookup
/// takes the first.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockHashToBlockMap {
    /// The first block of each hash.
    first: FxHashMap<BlockHash, BlockId>,
    /// The blocks after the first.
    duplicates: FxHashMap<BlockHash, Vec<BlockId>>,
}

impl BlockHashToBlockMap {
    #[inline]
    pub fn get_one_block(&self, hash: BlockHash) -> Option<BlockId> {
        self.first.get(&hash).copied()
    }

    pub fn contains(&self, hash: BlockHash, block: BlockId) -> bool {
        self.first.get(&hash).is_some_and(|&first| {
            first == block || self.duplicates.get(&hash).is_some_and(|others| others.contains(&block))
        })
    }

    /// Adds a block that is not yet under this hash.
    #[inline]
    pub fn insert(&mut self, hash: BlockHash, block: BlockId) {
        match self.first.entry(hash) {
            Entry::Vacant(entry) => {
                entry.insert(block);
            }
            Entry::Occupied(_) => self.duplicates.entry(hash).or_default().push(block),
        }
    }

    /// Takes the block from under the hash; false if it is not there.
    #[inline]
    pub fn pop(&mut self, hash: BlockHash, block: BlockId) -> bool {
        let Entry::Occupied(mut first) = self.first.entry(hash) else { return false };
        if self.duplicates.is_empty() {
            let found = *first.get() == block;
            if found {
                first.remove();
            }
            return found;
        }
        let Entry::Occupied(mut others) = self.duplicates.entry(hash) else {
            let found = *first.get() == block;
            if found {
                first.remove();
            }
            return found;
        };
        let found = if *first.get() == block {
            first.insert(others.get_mut().remove(0));
            true
        } else if let Some(at) = others.get().iter().position(|&other| other == block) {
            others.get_mut().remove(at);
            true
        } else {
            false
        };
        if others.get().is_empty() {
            others.remove();
        }
        found
    }

    pub fn clear(&mut self) {
        self.first.clear();
        self.duplicates.clear();
    }

    /// Whether all lists of duplicates are in use and have a first block.
    pub fn is_consistent(&self) -> bool {
        self.duplicates.iter().all(|(hash, others)| !others.is_empty() && self.first.contains_key(hash))
    }

    /// The number of hashes.
    pub fn len(&self) -> usize {
        self.first.len()
    }

    /// The number of (hash, block) pairs.
    pub fn num_blocks(&self) -> usize {
        self.first.len() + self.duplicates.values().map(Vec::len).sum::<usize>()
    }
}
