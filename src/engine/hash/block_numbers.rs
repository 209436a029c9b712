//! Dense numbers for the blocks of a trie, so that whoever keeps something for each block can use an
//! array.

use super::block_hash::BlockHash;

const NONE: u32 = u32::MAX;

/// Numbers in a row for blocks in a row of one node.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The first block of the node, and one past the last.
    first_block: u32,
    end_block: u32,
    /// Of the first block.
    number: u32,
    /// The node's extent after this one, or [`NONE`].
    next: u32,
}

/// Gives numbers to the blocks of each node. A node's blocks are asked for from its first on, since
/// every sequence enters a node at its begin; so a node's extents lie end to end.
#[derive(Debug, Default)]
pub(super) struct BlockNumbers {
    extents: Vec<Extent>,
    /// First and last extent of each node, or [`NONE`]. Node 0 is the root.
    nodes: Vec<(u32, u32)>,
    next_number: u32,
}

impl BlockNumbers {
    #[cfg(test)]
    pub fn num_nodes(&self) -> u32 {
        self.nodes.len().saturating_sub(1) as u32
    }

    /// A node without blocks yet, from 1 on.
    ///
    /// # Panics
    /// After 2^32 nodes, whose edges would fill more than 100 GB.
    pub fn add_node(&mut self) -> u32 {
        if self.nodes.is_empty() {
            self.nodes.push((NONE, NONE));
        }
        let node = u32::try_from(self.nodes.len()).expect("fewer than 2^32 distinct runs in one simulation");
        self.nodes.push((NONE, NONE));
        node
    }

    /// Appends the numbers of `count` blocks of a node from `block` on.
    pub fn extend(&mut self, node: u32, mut block: u32, count: u32, hashes: &mut Vec<BlockHash>) {
        let end = block + count;
        let (first, last) = self.nodes[node as usize];
        // A sequence that grows is at the node's last extent.
        let is_in_last = last != NONE && block >= self.extents[last as usize].first_block;
        let mut at = if is_in_last { last } else { first };
        while block < end {
            if at == NONE {
                at = self.grow(node, block, end);
            }
            let extent = self.extents[at as usize];
            if block < extent.end_block {
                let stop = end.min(extent.end_block);
                let number = extent.number + (block - extent.first_block);
                hashes.extend((number..number + (stop - block)).map(BlockHash));
                block = stop;
            }
            at = extent.next;
        }
    }

    /// Makes numbers for the blocks `block..end`, and returns their extent.
    ///
    /// # Panics
    /// After 2^32 blocks.
    fn grow(&mut self, node: u32, block: u32, end: u32) -> u32 {
        let (first, last) = self.nodes[node as usize];
        let old = if last == NONE {
            0
        } else {
            self.extents[last as usize].end_block - self.extents[last as usize].first_block
        };
        debug_assert!(last == NONE || self.extents[last as usize].end_block == block);
        // A sequence that grows block by block would else leave an extent for each.
        let len = (end - block).max(if end - block == 1 { old.min(256) } else { 0 });
        let extent =
            Extent { first_block: block, end_block: block + len, number: self.next_number, next: NONE };
        self.next_number =
            self.next_number.checked_add(len).expect("fewer than 2^32 distinct blocks in one simulation");
        let at = self.extents.len() as u32;
        self.extents.push(extent);
        match last {
            NONE => self.nodes[node as usize] = (at, at),
            last => {
                self.extents[last as usize].next = at;
                self.nodes[node as usize] = (first, at);
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stay_with_their_blocks() {
        let mut numbers = BlockNumbers::default();
        let (a, b) = (numbers.add_node(), numbers.add_node());
        let mut get = |node, block, count| {
            let mut hashes = Vec::new();
            numbers.extend(node, block, count, &mut hashes);
            hashes.into_iter().map(|hash| hash.0).collect::<Vec<_>>()
        };
        assert_eq!(get(a, 3, 4), [0, 1, 2, 3]);
        assert_eq!(get(b, 0, 2), [4, 5]);
        // Longer than before: the rest comes after what node b took.
        assert_eq!(get(a, 3, 6), [0, 1, 2, 3, 6, 7]);
        assert_eq!(get(a, 5, 3), [2, 3, 6]);
        // One by one, with room ahead.
        assert_eq!(
            (get(a, 9, 1), get(b, 2, 1), get(a, 10, 1), get(b, 3, 1)),
            (vec![8], vec![10], vec![9], vec![11])
        );
    }
}
