//! The free blocks in eviction order (`FreeKVCacheBlockQueue` in `v1/core/kv_cache_utils.py`). vLLM links
//! them; here they lie in a row, with a gap where a hit has taken a block out of the middle, so that the next
//! blocks to hand out are known without following links through memory.

use std::collections::VecDeque;

use super::block::{BlockId, NULL_BLOCK};

/// Stands where a block was taken out. The null block is never in the queue.
const GAP: BlockId = NULL_BLOCK;

#[derive(Clone, Debug)]
pub(super) struct FreeKvCacheBlockQueue {
    /// The head first.
    row: VecDeque<BlockId>,
    /// Places are numbered through all time, and the numbers wrap. Of each block in the queue its place.
    place_of: Vec<u32>,
    /// The place of the head.
    head: u32,
    num_free_blocks: u32,
}

impl FreeKvCacheBlockQueue {
    /// A queue that holds all blocks but the null block in the order of their ids.
    pub fn new(num_blocks: u32) -> Self {
        // For all blocks and as many gaps.
        let mut row = VecDeque::with_capacity(2 * num_blocks as usize);
        row.extend((1..num_blocks).map(BlockId));
        // The null block's place is not in use.
        let place_of = (0..num_blocks).map(|id| id.wrapping_sub(1)).collect();
        Self { row, place_of, head: 0, num_free_blocks: num_blocks - 1 }
    }

    pub fn num_free_blocks(&self) -> u32 {
        self.num_free_blocks
    }

    /// Puts blocks at the end, in order.
    #[inline]
    pub fn append_n(&mut self, blocks: impl Iterator<Item = BlockId>) {
        let mut place = self.head.wrapping_add(self.row.len() as u32);
        for block in blocks {
            self.row.push_back(block);
            self.place_of[block.index()] = place;
            place = place.wrapping_add(1);
            self.num_free_blocks += 1;
        }
    }

    pub fn prepend(&mut self, block: BlockId) {
        self.row.push_front(block);
        self.head = self.head.wrapping_sub(1);
        self.place_of[block.index()] = self.head;
        self.num_free_blocks += 1;
    }

    /// Takes out a block that is in the queue.
    pub fn remove(&mut self, block: BlockId) {
        let at = self.place_of[block.index()].wrapping_sub(self.head);
        self.row[at as usize] = GAP;
        self.num_free_blocks -= 1;
        // So the row is never longer than it has room for.
        let num_gaps = self.row.len() - self.num_free_blocks as usize;
        if num_gaps > self.place_of.len() {
            self.close_gaps();
        }
    }

    /// Takes the first `num_blocks` blocks, or all if there are fewer.
    #[inline]
    pub fn popleft_n(&mut self, num_blocks: u32, mut take: impl FnMut(BlockId)) {
        let num_blocks = num_blocks.min(self.num_free_blocks);
        self.num_free_blocks -= num_blocks;
        let mut num_left = num_blocks;
        while num_left > 0
            && let Some(block) = self.row.pop_front()
        {
            self.head = self.head.wrapping_add(1);
            if block != GAP {
                take(block);
                num_left -= 1;
            }
        }
    }

    #[cold]
    fn close_gaps(&mut self) {
        self.row.retain(|&block| block != GAP);
        for (at, block) in (0..).zip(&self.row) {
            self.place_of[block.index()] = self.head.wrapping_add(at);
        }
    }

    /// The blocks from the head on.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = BlockId> + '_ {
        self.row.iter().copied().filter(|&block| block != GAP)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_deque(operations in prop::collection::vec((0u8..4, 1u32..9), 0..200)) {
            let mut queue = FreeKvCacheBlockQueue::new(9);
            // Numbers of places wrap.
            queue.head = u32::MAX - 3;
            queue.close_gaps();
            let mut model: VecDeque<u32> = (1..9).collect();
            for (operation, block) in operations {
                match operation {
                    0 => {
                        let mut taken = Vec::new();
                        queue.popleft_n(block, |b| taken.push(b.0));
                        let count = model.len().min(block as usize);
                        prop_assert_eq!(taken, model.drain(..count).collect::<Vec<_>>());
                    }
                    1 if !model.contains(&block) => {
                        queue.append_n(std::iter::once(BlockId(block)));
                        model.push_back(block);
                    }
                    2 if !model.contains(&block) => {
                        queue.prepend(BlockId(block));
                        model.push_front(block);
                    }
                    3 if model.contains(&block) => {
                        queue.remove(BlockId(block));
                        model.retain(|&b| b != block);
                    }
                    _ => {}
                }
                prop_assert_eq!(queue.num_free_blocks() as usize, model.len());
                prop_assert!(queue.iter().map(|b| b.0).eq(model.iter().copied()));
                prop_assert!(queue.iter().rev().map(|b| b.0).eq(model.iter().rev().copied()));
            }
        }
    }
}
