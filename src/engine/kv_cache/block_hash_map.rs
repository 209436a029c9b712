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

const PAGE_LEN: usize = 64;

type Page = [FirstBlock; PAGE_LEN];

const NO_BLOCKS: Page = [FirstBlock::NONE; PAGE_LEN];

/// Almost every hash has one block; the others keep theirs in order of insertion, since a lookup
/// takes the first.
#[derive(Clone, Debug)]
pub(super) struct BlockHashToBlockMap {
    /// The first block of each hash, or the null block, which is never cached. Hashes are dense
    /// numbers, and those of blocks in a row mostly lie in a row, so pages that are looked up by number
    /// are much faster than a hash table. A page whose last hash goes serves again: what is touched
    /// stays small, however many hashes there have been.
    pages: Vec<Page>,
    /// Of each page, how many hashes have a block.
    num_hashes_in: Vec<u8>,
    empty_pages: Vec<u32>,
    /// By the hash over the length of a page, which page it is in. Page 0 has no block.
    page_of: Vec<u32>,
    num_hashes: usize,
    /// The blocks after the first.
    duplicates: FxHashMap<BlockHash, Vec<BlockId>>,
}

impl Default for BlockHashToBlockMap {
    fn default() -> Self {
        Self {
            pages: vec![NO_BLOCKS],
            num_hashes_in: vec![0],
            empty_pages: Vec::new(),
            page_of: Vec::new(),
            num_hashes: 0,
            duplicates: FxHashMap::default(),
        }
    }
}

impl BlockHashToBlockMap {
    #[inline]
    fn first(&self, hash: BlockHash) -> FirstBlock {
        let at = hash.0 as usize;
        let page = self.page_of.get(at / PAGE_LEN).map_or(0, |&page| page as usize);
        self.pages[page][at % PAGE_LEN]
    }

    /// Of a hash whose page there is.
    #[inline]
    fn first_mut(&mut self, hash: BlockHash) -> &mut FirstBlock {
        let at = hash.0 as usize;
        &mut self.pages[self.page_of[at / PAGE_LEN] as usize][at % PAGE_LEN]
    }

    #[inline]
    pub fn get_one_block(&self, hash: BlockHash) -> Option<BlockId> {
        Some(self.first(hash).block()).filter(|block| !block.is_null())
    }

    /// Appends the block of each hash, up to the first hash that has none.
    pub fn get_blocks(&self, hashes: &[BlockHash], blocks: &mut Vec<BlockId>) {
        // Hashes in a row mostly lie in one page.
        let (mut number, mut page) = (usize::MAX, 0);
        for hash in hashes {
            let at = hash.0 as usize;
            if at / PAGE_LEN != number {
                number = at / PAGE_LEN;
                page = self.page_of.get(number).map_or(0, |&page| page as usize);
            }
            let block = self.pages[page][at % PAGE_LEN].block();
            if block.is_null() {
                break;
            }
            blocks.push(block);
        }
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
        let page = match self.page_of.get(at / PAGE_LEN) {
            Some(&page) if page != 0 => page as usize,
            _ => self.add_page(at / PAGE_LEN),
        };
        let first = &mut self.pages[page][at % PAGE_LEN];
        if first.block().is_null() {
            *first = FirstBlock::alone(block);
            self.num_hashes_in[page] += 1;
            self.num_hashes += 1;
        } else {
            first.set_has_others(true);
            self.duplicates.entry(hash).or_default().push(block);
        }
    }

    /// Gives hashes whose number over the length of a page is `number` a page.
    #[cold]
    fn add_page(&mut self, number: usize) -> usize {
        if number >= self.page_of.len() {
            self.page_of.resize(number + number / 8 + 64, 0);
        }
        let page = self.empty_pages.pop().unwrap_or_else(|| {
            self.pages.push(NO_BLOCKS);
            self.num_hashes_in.push(0);
            self.pages.len() as u32 - 1
        });
        self.page_of[number] = page;
        page as usize
    }

    #[cold]
    fn give_page_back(&mut self, number: usize) {
        self.empty_pages.push(std::mem::take(&mut self.page_of[number]));
    }

    /// Takes the block from under the hash; false if it is not there.
    #[inline]
    pub fn pop(&mut self, hash: BlockHash, block: BlockId) -> bool {
        let at = hash.0 as usize;
        let page = self.page_of.get(at / PAGE_LEN).map_or(0, |&page| page as usize);
        let first = &mut self.pages[page][at % PAGE_LEN];
        if first.has_others() {
            return self.pop_duplicate(hash, block);
        }
        let found = !block.is_null() && first.block() == block;
        if found {
            *first = FirstBlock::NONE;
            self.num_hashes -= 1;
            self.num_hashes_in[page] -= 1;
            if self.num_hashes_in[page] == 0 {
                self.give_page_back(at / PAGE_LEN);
            }
        }
        found
    }

    fn pop_duplicate(&mut self, hash: BlockHash, block: BlockId) -> bool {
        let mut first = self.first(hash);
        let Some(others) = self.duplicates.get_mut(&hash) else { return false };
        let found = if first.block() == block {
            first = FirstBlock::alone(others.remove(0));
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
        *self.first_mut(hash) = first;
        found
    }

    pub fn clear(&mut self) {
        self.pages.truncate(1);
        self.num_hashes_in.truncate(1);
        self.empty_pages.clear();
        self.page_of.fill(0);
        self.num_hashes = 0;
        self.duplicates.clear();
    }

    /// Whether all lists of duplicates are in use and have a first block, hashes are counted right, and
    /// pages without one are out of use.
    pub fn is_consistent(&self) -> bool {
        let firsts = || self.pages.iter().flatten();
        let has_others = |first: &&FirstBlock| first.has_others();
        let num_in = |page: &Page| page.iter().filter(|first| !first.block().is_null()).count();
        let num_empty = self.num_hashes_in.iter().skip(1).filter(|&&num_hashes| num_hashes == 0).count();
        let num_in_use = self.page_of.iter().filter(|&&page| page != 0).count();
        let pages = self.pages.iter().zip(&self.num_hashes_in);
        pages.into_iter().all(|(page, &num_hashes)| num_in(page) == usize::from(num_hashes))
            && num_empty == self.empty_pages.len()
            && num_in_use + num_empty + 1 == self.pages.len()
            && self
                .duplicates
                .iter()
                .all(|(&hash, others)| !others.is_empty() && self.get_one_block(hash).is_some())
            && firsts().filter(has_others).count() == self.duplicates.len()
            && firsts().filter(|first| !first.block().is_null()).count() == self.num_hashes
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
