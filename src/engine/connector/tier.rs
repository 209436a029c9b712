//! One store of KV blocks outside of the GPU, by the hash of their prefix.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::engine::hash::BlockHash;

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
    stamps: FxHashMap<BlockHash, u64>,
    /// The next to leave first.
    order: BTreeMap<u64, BlockHash>,
    next_stamp: u64,
}

impl Tier {
    pub fn new(capacity_blocks: usize, eviction: EvictionOrder) -> Self {
        Self {
            capacity_blocks,
            eviction,
            stamps: FxHashMap::default(),
            order: BTreeMap::new(),
            next_stamp: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    pub fn contains(&self, hash: BlockHash) -> bool {
        self.stamps.contains_key(&hash)
    }

    /// The block was used.
    pub fn touch(&mut self, hash: BlockHash) {
        if self.eviction == EvictionOrder::Lru
            && let Some(stamp) = self.stamps.get_mut(&hash)
        {
            self.order.remove(stamp);
            *stamp = self.next_stamp;
            self.order.insert(self.next_stamp, hash);
            self.next_stamp += 1;
        }
    }

    /// Takes a block in; returns the one that had to leave for it. A tier without room gives the
    /// block straight back.
    pub fn insert(&mut self, hash: BlockHash) -> Option<BlockHash> {
        if self.contains(hash) {
            self.touch(hash);
            return None;
        }
        if self.capacity_blocks == 0 {
            return Some(hash);
        }
        let evicted = if self.len() == self.capacity_blocks { self.order.pop_first() } else { None };
        if let Some((_, hash)) = evicted {
            self.stamps.remove(&hash);
        }
        self.stamps.insert(hash, self.next_stamp);
        self.order.insert(self.next_stamp, hash);
        self.next_stamp += 1;
        evicted.map(|(_, hash)| hash)
    }

    pub fn clear(&mut self) {
        self.stamps.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted(eviction: EvictionOrder) -> Vec<u32> {
        let mut tier = Tier::new(2, eviction);
        let mut left = Vec::new();
        for hash in [1, 2, 1, 3, 4] {
            left.extend(tier.insert(BlockHash(hash)).map(|hash| hash.0));
        }
        left
    }

    #[test]
    fn the_order_of_eviction_is_the_one_asked_for() {
        assert_eq!(evicted(EvictionOrder::Lru), [2, 1]);
        assert_eq!(evicted(EvictionOrder::Fifo), [1, 2]);
        assert_eq!(Tier::new(0, EvictionOrder::Lru).insert(BlockHash(7)), Some(BlockHash(7)));
    }
}
