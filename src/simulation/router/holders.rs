//! Which replicas hold which blocks: a set of replicas for each block.

use crate::engine::hash::BlockHash;

const BITS: usize = u64::BITS as usize;

/// Block hashes are dense numbers, so an array finds a block's set; sets that have become empty are
/// used again.
#[derive(Debug)]
pub(super) struct Holders {
    num_replicas: usize,
    words_per_set: usize,
    /// By hash, the number of its set; 0 for none.
    set_of: Vec<u32>,
    /// Sets, a bit for each replica. Set 0 is empty.
    words: Vec<u64>,
    unused: Vec<u32>,
    /// Of one lookup, kept for its memory.
    alive: Vec<u64>,
}

impl Holders {
    pub fn new(num_replicas: usize) -> Self {
        let words_per_set = num_replicas.div_ceil(BITS);
        Self {
            num_replicas,
            words_per_set,
            set_of: Vec::new(),
            words: vec![0; words_per_set],
            unused: Vec::new(),
            alive: Vec::new(),
        }
    }

    fn set(&self, number: u32) -> &[u64] {
        let begin = number as usize * self.words_per_set;
        &self.words[begin..begin + self.words_per_set]
    }

    fn set_mut(&mut self, number: u32) -> &mut [u64] {
        let begin = number as usize * self.words_per_set;
        &mut self.words[begin..begin + self.words_per_set]
    }

    /// The replica holds the block from now on.
    pub fn insert(&mut self, hash: BlockHash, replica: usize) {
        let at = hash.0 as usize;
        if at >= self.set_of.len() {
            // By a part of the size: doubling would touch much memory that is never used.
            self.set_of.resize(at + at / 8 + 1024, 0);
        }
        let mut number = self.set_of[at];
        if number == 0 {
            number = self.unused.pop().unwrap_or_else(|| {
                self.words.resize(self.words.len() + self.words_per_set, 0);
                (self.words.len() / self.words_per_set - 1) as u32
            });
            self.set_of[at] = number;
        }
        self.set_mut(number)[replica / BITS] |= 1 << (replica % BITS);
    }

    /// The replica holds the block no longer.
    pub fn remove(&mut self, hash: BlockHash, replica: usize) {
        let number = self.set_of.get(hash.0 as usize).copied().unwrap_or(0);
        if number == 0 {
            return;
        }
        let set = self.set_mut(number);
        set[replica / BITS] &= !(1 << (replica % BITS));
        if set.iter().all(|&word| word == 0) {
            self.set_of[hash.0 as usize] = 0;
            self.unused.push(number);
        }
    }

    /// The replica holds nothing any more.
    pub fn clear(&mut self, replica: usize) {
        for at in 0..self.set_of.len() {
            if self.set_of[at] != 0 {
                self.remove(BlockHash(at as u32), replica);
            }
        }
    }

    /// For each replica, how many of the first `hashes` it holds without a gap.
    pub fn match_prefix(&mut self, hashes: &[BlockHash], matches: &mut Vec<u32>) {
        matches.clear();
        matches.resize(self.num_replicas, 0);
        let mut alive = std::mem::take(&mut self.alive);
        alive.clear();
        alive.resize(self.words_per_set, u64::MAX);
        let mut length = 0;
        for &hash in hashes {
            let number = self.set_of.get(hash.0 as usize).copied().unwrap_or(0);
            if number == 0 {
                break;
            }
            let mut is_any_alive = false;
            for (word, (alive, held)) in alive.iter_mut().zip(self.set(number)).enumerate() {
                if length > 0 {
                    each_bit(*alive & !held, |bit| matches[word * BITS + bit] = length);
                }
                *alive &= held;
                is_any_alive |= *alive != 0;
            }
            if !is_any_alive {
                self.alive = alive;
                return;
            }
            length += 1;
        }
        if length > 0 {
            for (word, &alive) in alive.iter().enumerate() {
                each_bit(alive, |bit| matches[word * BITS + bit] = length);
            }
        }
        self.alive = alive;
    }
}

fn each_bit(mut word: u64, mut visit: impl FnMut(usize)) {
    while word != 0 {
        visit(word.trailing_zeros() as usize);
        word &= word - 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holders_behave_as_a_set_of_pairs(
            num_replicas in prop::sample::select(vec![1_usize, 3, 64, 65, 130]),
            changes in prop::collection::vec((0_u32..12, 0_usize..130, 0_u8..8), 0..80),
            chain in prop::collection::vec(0_u32..12, 0..6),
        ) {
            let mut holders = Holders::new(num_replicas);
            let mut pairs = BTreeSet::new();
            for (hash, replica, kind) in changes {
                let replica = replica % num_replicas;
                match kind {
                    0 => {
                        holders.clear(replica);
                        pairs.retain(|&(_, holder)| holder != replica);
                    }
                    1 | 2 => {
                        holders.remove(BlockHash(hash), replica);
                        pairs.remove(&(hash, replica));
                    }
                    _ => {
                        holders.insert(BlockHash(hash), replica);
                        pairs.insert((hash, replica));
                    }
                }
            }
            let hashes: Vec<BlockHash> = chain.iter().map(|&hash| BlockHash(hash)).collect();
            let mut matches = Vec::new();
            holders.match_prefix(&hashes, &mut matches);
            let expected = (0..num_replicas).map(|replica| {
                chain.iter().take_while(|&&hash| pairs.contains(&(hash, replica))).count() as u32
            });
            prop_assert_eq!(matches, expected.collect::<Vec<_>>());
        }
    }
}
