//! LRU stack distances of blocks (Mattson's stack), for chains of blocks.
//!
//! Whoever touches a block touches all blocks before it in its chain, and earlier blocks count as
//! touched later. So what is left on the stack of the chain that a request has touched is always its
//! tail, in one piece: it is enough to know how many blocks are left of each request, and which
//! request touched each block last. All blocks of a chain that were last touched by the same request
//! are dealt with at once, in time logarithmic in the number of requests; per block there is only a
//! number to read and to write.

use super::append_fenwick::AppendFenwick;
use crate::engine::hash::BlockHash;

const NEVER: u32 = u32::MAX;

/// All blocks touched so far, from the most to the least recently touched.
#[derive(Debug, Default)]
pub struct PrefixStack {
    /// The last request that touched a block, by the block's number.
    last_touch: Vec<u32>,
    /// How many blocks each request touched last.
    left: AppendFenwick,
    num_blocks: u64,
}

/// Blocks of a chain, one after the other, that were last touched by the same request, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Position in the chain of the first block.
    pub first: usize,
    pub len: usize,
    /// `None` for blocks that are touched for the first time.
    pub reuse: Option<Reuse>,
}

/// Where the blocks of a [`Part`] lay on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// The request that touched them last: 0 for the first call of [`PrefixStack::touch`].
    pub request: u32,
    /// The number of distinct blocks above the first of them when the request arrives; each further
    /// block lies one deeper. An LRU cache of more blocks than that still holds the block.
    pub distance_blocks: u32,
}

impl PrefixStack {
    /// Puts the blocks of a request's chain on top, the first of them uppermost, and hands out where
    /// they were. Every chain begins at its first block.
    pub fn touch(&mut self, chain: &[BlockHash], mut part: impl FnMut(Part)) {
        let request = self.left.len() as u32;
        let mut rest = chain;
        while let Some(&block) = rest.first() {
            let last = self.last_touch(block);
            let len = rest.iter().take_while(|&&block| self.last_touch(block) == last).count();
            let first = chain.len() - rest.len();
            let reuse = (last != NEVER).then(|| {
                // Blocks of this chain that came before were above, and have been taken off.
                let distance_blocks = self.left.sum_after(last as usize) + first as u32;
                self.left.subtract(last as usize, len as u32);
                Reuse { request: last, distance_blocks }
            });
            self.num_blocks += if last == NEVER { len as u64 } else { 0 };
            part(Part { first, len, reuse });
            rest = &rest[len..];
        }
        for &block in chain {
            let index = block.0 as usize;
            if index >= self.last_touch.len() {
                self.last_touch.resize(index + 1, NEVER);
            }
            self.last_touch[index] = request;
        }
        self.left.push(chain.len() as u32);
    }

    /// Forgets a block that has been touched: it counts no longer, and its number is free for another.
    pub fn remove(&mut self, block: BlockHash) {
        let last = std::mem::replace(&mut self.last_touch[block.0 as usize], NEVER);
        self.left.subtract(last as usize, 1);
        self.num_blocks -= 1;
    }

    /// The number of distinct blocks touched so far and not removed.
    pub fn num_blocks(&self) -> u64 {
        self.num_blocks
    }

    fn last_touch(&self, block: BlockHash) -> u32 {
        self.last_touch.get(block.0 as usize).copied().unwrap_or(NEVER)
    }
}
