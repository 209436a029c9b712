//! The blocks of one replica in the order in which they were last used, at most so many.

use rustc_hash::FxHashMap;

use crate::engine::hash::BlockHash;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: BlockHash,
    /// Used longer ago, and more recently; [`NONE`] at the ends.
    older: u32,
    newer: u32,
}

/// What a use of a block did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It was there.
    Known,
    /// It came.
    New,
    /// It came, and this one had to leave for it.
    Replaced(BlockHash),
}

#[derive(Debug)]
pub(super) struct Lru {
    capacity: usize,
    entry_of: FxHashMap<BlockHash, u32>,
    entries: Vec<Entry>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    /// `capacity` is 1 or more.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, entry_of: FxHashMap::default(), entries: Vec::new(), oldest: NONE, newest: NONE }
    }

    /// Uses a block.
    pub fn touch(&mut self, hash: BlockHash) -> Use {
        if let Some(&at) = self.entry_of.get(&hash) {
            if at != self.newest {
                self.unlink(at);
                self.link_newest(at);
            }
            return Use::Known;
        }
        let mut done = Use::New;
        let at = if self.entries.len() < self.capacity {
            self.entries.push(Entry { hash, older: NONE, newer: NONE });
            self.entries.len() as u32 - 1
        } else {
            let at = self.oldest;
            let old = self.entries[at as usize].hash;
            self.unlink(at);
            self.entry_of.remove(&old);
            self.entries[at as usize].hash = hash;
            done = Use::Replaced(old);
            at
        };
        self.entry_of.insert(hash, at);
        self.link_newest(at);
        done
    }

    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let newest = std::mem::replace(&mut self.newest, at);
        let entry = &mut self.entries[at as usize];
        (entry.older, entry.newer) = (newest, NONE);
        match newest {
            NONE => self.oldest = at,
            newest => self.entries[newest as usize].newer = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_one_used_longest_ago_leaves(
            capacity in 1_usize..6,
            uses in prop::collection::vec(0_u32..9, 0..60),
        ) {
            let mut lru = Lru::new(capacity);
            let mut naive: Vec<u32> = Vec::new();
            for hash in uses {
                let known = naive.iter().position(|&other| other == hash);
                let done = match known {
                    Some(at) => {
                        naive.remove(at);
                        Use::Known
                    }
                    None if naive.len() == capacity => Use::Replaced(BlockHash(naive.remove(0))),
                    None => Use::New,
                };
                naive.push(hash);
                prop_assert_eq!(lru.touch(BlockHash(hash)), done);
            }
        }
    }
}
