//! Which replicas hold which blocks: a set of replicas for each block.

use std::ops::Range;

use crate::engine::hash::BlockHash;

const BITS: usize = u64::BITS as usize;

/// Blocks whose sets lie together.
const PAGE_LEN: usize = 64;

/// Block hashes are dense numbers, and those of blocks in a row mostly lie in a row, so their sets
/// are kept in pages that are found by number. A page whose last set becomes empty serves again: what
/// is touched stays as small as the replicas' caches, however many blocks there have been.
#[derive(Debug)]
pub(super) struct Holders {
    num_replicas: usize,
    words_per_set: usize,
    /// By the hash over the length of a page, which page it is in. Page 0 has empty sets.
    page_of: Vec<u32>,
    /// The sets of each page, a bit for each replica.
    words: Vec<u64>,
    /// Of each page, how many sets are not empty.
    num_held_in: Vec<u8>,
    empty_pages: Vec<u32>,
}

impl Holders {
    pub fn new(num_replicas: usize) -> Self {
        let words_per_set = num_replicas.div_ceil(BITS);
        Self {
            num_replicas,
            words_per_set,
            page_of: Vec::new(),
            words: vec![0; PAGE_LEN * words_per_set],
            num_held_in: vec![0],
            empty_pages: Vec::new(),
        }
    }

    #[inline]
    fn page(&self, hash: BlockHash) -> usize {
        self.page_of.get(hash.0 as usize / PAGE_LEN).map_or(0, |&page| page as usize)
    }

    /// Where the set of a hash lies in its page.
    #[inline]
    fn range(&self, page: usize, hash: BlockHash) -> Range<usize> {
        let begin = (page * PAGE_LEN + hash.0 as usize % PAGE_LEN) * self.words_per_set;
        begin..begin + self.words_per_set
    }

    /// The replica holds the block from now on.
    pub fn insert(&mut self, hash: BlockHash, replica: usize) {
        let mut page = self.page(hash);
        if page == 0 {
            page = self.add_page(hash.0 as usize / PAGE_LEN);
        }
        let range = self.range(page, hash);
        let set = &mut self.words[range];
        let was_empty = set.iter().all(|&word| word == 0);
        set[replica / BITS] |= 1 << (replica % BITS);
        self.num_held_in[page] += u8::from(was_empty);
    }

    /// Gives hashes whose number over the length of a page is `number` a page.
    #[cold]
    fn add_page(&mut self, number: usize) -> usize {
        if number >= self.page_of.len() {
            // By a part of the size: doubling would touch much memory that is never used.
            self.page_of.resize(number + number / 8 + 64, 0);
        }
        let page = self.empty_pages.pop().unwrap_or_else(|| {
            self.words.resize(self.words.len() + PAGE_LEN * self.words_per_set, 0);
            self.num_held_in.push(0);
            self.num_held_in.len() as u32 - 1
        });
        self.page_of[number] = page;
        page as usize
    }

    /// The replica holds the block no longer.
    pub fn remove(&mut self, hash: BlockHash, replica: usize) {
        let page = self.page(hash);
        let range = self.range(page, hash);
        let set = &mut self.words[range];
        let bit = 1 << (replica % BITS);
        if set[replica / BITS] & bit == 0 {
            return;
        }
        set[replica / BITS] &= !bit;
        if set.iter().all(|&word| word == 0) {
            self.num_held_in[page] -= 1;
            if self.num_held_in[page] == 0 {
                self.empty_pages.push(std::mem::take(&mut self.page_of[hash.0 as usize / PAGE_LEN]));
            }
        }
    }

    /// The replica holds nothing any more.
    pub fn clear(&mut self, replica: usize) {
        for number in 0..self.page_of.len() {
            if self.page_of[number] == 0 {
                continue;
            }
            for at in 0..PAGE_LEN {
                self.remove(BlockHash((number * PAGE_LEN + at) as u32), replica);
            }
        }
    }

    /// For each replica, how many of the first `hashes` it holds without a gap.
    pub fn match_prefix(&self, hashes: &[BlockHash], matches: &mut Vec<u32>) {
        matches.clear();
        matches.resize(self.num_replicas, 0);
        for (word, matches) in matches.chunks_mut(BITS).enumerate() {
            let mut alive = u64::MAX;
            let mut length = 0;
            for &hash in hashes {
                let held = self.words[self.range(self.page(hash), hash).start + word];
                if alive & !held != 0 {
                    if length > 0 {
                        each_bit(alive & !held, |bit| matches[bit] = length);
                    }
                    alive &= held;
                    if alive == 0 {
                        break;
                    }
                }
                length += 1;
            }
            if length > 0 {
                each_bit(alive, |bit| matches[bit] = length);
            }
        }
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
                // On several pages.
                let (hash, replica) = (hash * 29, replica % num_replicas);
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
            let hashes: Vec<BlockHash> = chain.iter().map(|&hash| BlockHash(hash * 29)).collect();
            let mut matches = Vec::new();
            holders.match_prefix(&hashes, &mut matches);
            let expected = (0..num_replicas).map(|replica| {
                chain.iter().take_while(|&&hash| pairs.contains(&(hash * 29, replica))).count() as u32
            });
            prop_assert_eq!(matches, expected.collect::<Vec<_>>());
        }
    }
}
