//! One store of KV blocks outside of the GPU, by the hash of their prefix.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::engine::hash::BlockHash;

/// A block of a KV cache group, by the hash of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TierKey {
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
    order: BTreeMap<u64, TierKey>,
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

    pub fn contains(&self, key: TierKey) -> bool {
        self.stamps.contains_key(&key)
    }

    /// The block was used.
    pub fn touch(&mut self, key: TierKey) {
        if self.eviction == EvictionOrder::Lru
            && let Some(stamp) = self.stamps.get_mut(&key)
        {
            self.order.remove(stamp);
            *stamp = self.next_stamp;
            self.order.insert(self.next_stamp, key);
            self.next_stamp += 1;
        }
    }

    /// Takes a block in; returns the one that had to leave for it. A tier without room gives the
    /// block straight back.
    pub fn insert(&mut self, key: TierKey) -> Option<TierKey> {
        if self.contains(key) {
            self.touch(key);
            return None;
        }
        if self.capacity_blocks == 0 {
            return Some(key);
        }
        let evicted = if self.len() == self.capacity_blocks { self.order.pop_first() } else { None };
        if let Some((_, key)) = evicted {
            self.stamps.remove(&key);
        }
        self.stamps.insert(key, self.next_stamp);
        self.order.insert(self.next_stamp, key);
        self.next_stamp += 1;
        evicted.map(|(_, key)| key)
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
        TierKey { group: 0, hash: BlockHash(hash) }
    }

    fn evicted(eviction: EvictionOrder) -> Vec<u32> {
        let mut tier = Tier::new(2, eviction);
        let mut left = Vec::new();
        for hash in [1, 2, 1, 3, 4] {
            left.extend(tier.insert(key(hash)).map(|key| key.hash.0));
        }
        left
    }

    #[test]
    fn the_order_of_eviction_is_the_one_asked_for() {
        assert_eq!(evicted(EvictionOrder::Lru), [2, 1]);
        assert_eq!(evicted(EvictionOrder::Fifo), [1, 2]);
        assert_eq!(Tier::new(0, EvictionOrder::Lru).insert(key(7)), Some(key(7)));
    }
}
