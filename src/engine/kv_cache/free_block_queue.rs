//! The free blocks in eviction order (`FreeKVCacheBlockQueue` in `v1/core/kv_cache_utils.py`): a
//! doubly linked list over the block ids, so that a hit can take a block out of the middle.

use super::block::BlockId;

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

/// Ids `0..num_blocks`, then one sentinel that closes the ring: its `next` is the head of the
/// queue, its `prev` the tail.
#[derive(Clone, Debug)]
pub(super) struct FreeKvCacheBlockQueue {
    links: Vec<Link>,
    num_free_blocks: u32,
}

impl FreeKvCacheBlockQueue {
    /// A queue that holds all blocks in the order of their ids.
    pub fn new(num_blocks: u32) -> Self {
        let ring = num_blocks + 1;
        let links = (0..ring).map(|i| Link { prev: (i + ring - 1) % ring, next: (i + 1) % ring }).collect();
        Self { links, num_free_blocks: num_blocks }
    }

    fn sentinel(&self) -> u32 {
        self.links.len() as u32 - 1
    }

    pub fn num_free_blocks(&self) -> u32 {
        self.num_free_blocks
    }

    /// Puts blocks at the end, in order.
    #[inline]
    pub fn append_n(&mut self, blocks: impl Iterator<Item = BlockId>) {
        let sentinel = self.sentinel();
        let mut last = self.links[sentinel as usize].prev;
        for block in blocks {
            self.links[last as usize].next = block.0;
            self.links[block.index()].prev = last;
            last = block.0;
            self.num_free_blocks += 1;
        }
        self.links[last as usize].next = sentinel;
        self.links[sentinel as usize].prev = last;
    }

    pub fn prepend(&mut self, block: BlockId) {
        let sentinel = self.sentinel();
        let next = self.links[sentinel as usize].next;
        self.links[block.index()] = Link { prev: sentinel, next };
        self.links[sentinel as usize].next = block.0;
        self.links[next as usize].prev = block.0;
        self.num_free_blocks += 1;
    }

    /// Takes out a block that is in the queue.
    pub fn remove(&mut self, block: BlockId) {
        let Link { prev, next } = self.links[block.index()];
        self.links[prev as usize].next = next;
        self.links[next as usize].prev = prev;
        self.num_free_blocks -= 1;
    }

    /// Takes the first `num_blocks` blocks, or all if there are fewer.
    #[inline]
    pub fn popleft_n(&mut self, num_blocks: u32, mut take: impl FnMut(BlockId)) {
        let sentinel = self.sentinel();
        let mut head = self.links[sentinel as usize].next;
        for _ in 0..num_blocks {
            if head == sentinel {
                break;
            }
            take(BlockId(head));
            head = self.links[head as usize].next;
            self.num_free_blocks -= 1;
        }
        self.links[sentinel as usize].next = head;
        self.links[head as usize].prev = sentinel;
    }

    /// The blocks from the head on.
    pub fn iter(&self) -> impl Iterator<Item = BlockId> + '_ {
        let sentinel = self.sentinel();
        let mut at = sentinel;
        std::iter::from_fn(move || {
            at = self.links[at as usize].next;
            (at != sentinel).then_some(BlockId(at))
        })
    }

    /// The blocks from the tail back.
    pub fn iter_rev(&self) -> impl Iterator<Item = BlockId> + '_ {
        let sentinel = self.sentinel();
        let mut at = sentinel;
        std::iter::from_fn(move || {
            at = self.links[at as usize].prev;
            (at != sentinel).then_some(BlockId(at))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_deque(operations in prop::collection::vec((0u8..4, 0u32..8), 0..80)) {
            let mut queue = FreeKvCacheBlockQueue::new(8);
            let mut model: VecDeque<u32> = (0..8).collect();
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
                prop_assert!(queue.iter_rev().map(|b| b.0).eq(model.iter().rev().copied()));
            }
        }
    }
}
