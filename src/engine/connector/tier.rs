//! One store of KV blocks outside of the GPU, by the hash of their prefix.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::engine::hash::BlockHash;

/// A block of a KV cache group, by the hash of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TierKey {
    /// Whose hashes these are; see [`HashSpace`](super::HashSpace).
    pub space: u32,
    pub group: u32,
    pub hash: BlockHash,
}

/// Which block leaves a full tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionOrder {
    /// The one that was used longest ago.
    #[default]
    Lru,
    /// The one that came in first.
    Fifo,
}

#[derive(Clone, Debug)]
pub(super) struct Tier {
    capacity_blocks: usize,
    eviction: EvictionOrder,
    /// Block to its place in `order`.
    stamps: FxHashMap<TierKey, u64>,
    /// The next to leave first.
    order: BTreeMap<u64, HeldBlock>,
    next_stamp: u64,
    peak_blocks: usize,
}

#[derive(Clone, Copy, Debug)]
struct HeldBlock {
    key: TierKey,
    /// The replica that stored it.
    stored_by: u32,
}

impl Tier {
    pub fn new(capacity_blocks: usize, eviction: EvictionOrder) -> Self {
        Self {
            capacity_blocks,
            eviction,
            stamps: FxHashMap::default(),
            order: BTreeMap::new(),
            next_stamp: 0,
            peak_blocks: 0,
        }
    }

    pub fn capacity_blocks(&self) -> usize {
        self.capacity_blocks
    }

    /// The most blocks at any time.
    pub fn peak_blocks(&self) -> usize {
        self.peak_blocks
    }

    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    pub fn contains(&self, key: TierKey) -> bool {
        self.stamps.contains_key(&key)
    }

    /// The block was used. Who stored it, if it is held.
    pub fn touch(&mut self, key: TierKey) -> Option<u32> {
        let stamp = self.stamps.get_mut(&key)?;
        if self.eviction == EvictionOrder::Fifo {
            return self.order.get(stamp).map(|held| held.stored_by);
        }
        let held = self.order.remove(stamp)?;
        *stamp = self.next_stamp;
        self.order.insert(self.next_stamp, held);
        self.next_stamp += 1;
        Some(held.stored_by)
    }

    /// Takes a block in that a replica stores; returns the one that had to leave for it. A tier without
    /// room gives the block straight back. A block that is held stays that of who stored it first.
    pub fn insert(&mut self, key: TierKey, stored_by: u32) -> Option<TierKey> {
        if self.touch(key).is_some() {
            return None;
        }
        if self.capacity_blocks == 0 {
            return Some(key);
        }
        let evicted = if self.len() == self.capacity_blocks { self.order.pop_first() } else { None };
        if let Some((_, held)) = evicted {
            self.stamps.remove(&held.key);
        }
        self.stamps.insert(key, self.next_stamp);
        self.order.insert(self.next_stamp, HeldBlock { key, stored_by });
        self.next_stamp += 1;
        self.peak_blocks = self.peak_blocks.max(self.len());
        evicted.map(|(_, held)| held.key)
    }

    pub fn clear(&mut self) {
        self.stamps.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(hash: u32) -> TierKey {
        TierKey { space: 0, group: 0, hash: BlockHash(hash) }
    }

    fn evicted(eviction: EvictionOrder) -> Vec<u32> {
        let mut tier = Tier::new(2, eviction);
        let mut left = Vec::new();
        for hash in [1, 2, 1, 3, 4] {
            left.extend(tier.insert(key(hash), 0).map(|key| key.hash.0));
        }
        left
    }

    #[test]
    fn a_block_stays_that_of_who_stored_it_first() {
        for eviction in [EvictionOrder::Lru, EvictionOrder::Fifo] {
            let mut tier = Tier::new(2, eviction);
            tier.insert(key(1), 3);
            tier.insert(key(1), 4);
            assert_eq!((tier.touch(key(1)), tier.touch(key(2))), (Some(3), None));
            assert_eq!((tier.len(), tier.peak_blocks()), (1, 1));
        }
    }

    #[test]
    fn the_order_of_eviction_is_the_one_asked_for() {
        assert_eq!(evicted(EvictionOrder::Lru), [2, 1]);
        assert_eq!(evicted(EvictionOrder::Fifo), [1, 2]);
        assert_eq!(Tier::new(0, EvictionOrder::Lru).insert(key(7), 0), Some(key(7)));
    }
}
