//! Dense numbers for the blocks of a trie, so that whoever keeps something for each block can use an
//! array. Blocks that follow one another in a sequence get numbers that do, as far as that can be known, so
//! that what is kept for them lies together.

use super::block_hash::BlockHash;

const NONE: u32 = u32::MAX;

/// Numbers are set aside so many at a time, for a sequence that is new or leaves all others.
const SET_ASIDE: u32 = 32;

/// From this number on none is set aside.
const SPARING_FROM: u32 = 1 << 31;

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

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Its first and last extent, or [`NONE`].
    first: u32,
    last: u32,
    /// Numbers that are set aside for its next blocks, or for those of the node that follows it first.
    spare: u32,
    num_spare: u32,
}

const NEW_NODE: Node = Node { first: NONE, last: NONE, spare: 0, num_spare: 0 };

/// Gives numbers to the blocks of each node. A node's blocks are asked for from its first on, since
/// every sequence enters a node at its begin; so a node's extents lie end to end.
#[derive(Debug)]
pub(super) struct BlockNumbers {
    extents: Vec<Extent>,
    /// Node 0 is the root.
    nodes: Vec<Node>,
    next_number: u32,
    is_exhausted: bool,
}

impl Default for BlockNumbers {
    fn default() -> Self {
        Self { extents: Vec::new(), nodes: vec![NEW_NODE], next_number: 0, is_exhausted: false }
    }
}

impl BlockNumbers {
    #[cfg(test)]
    pub fn num_nodes(&self) -> u32 {
        self.nodes.len() as u32 - 1
    }

    /// Whether more numbers were asked for than there are: those that were given since mean nothing.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// A node without blocks yet, from 1 on, that follows `parent`. What is set aside there goes over to
    /// it: of a sequence that grows nobody else follows its end.
    pub fn add_node(&mut self, parent: u32) -> u32 {
        let Ok(node) = u32::try_from(self.nodes.len()) else {
            self.is_exhausted = true;
            return parent;
        };
        let Node { spare, num_spare, .. } = self.nodes[parent as usize];
        self.nodes[parent as usize].num_spare = 0;
        self.nodes.push(Node { spare, num_spare, ..NEW_NODE });
        node
    }

    /// Appends the numbers of `count` blocks of a node from `block` on.
    pub fn extend(&mut self, node: u32, mut block: u32, count: u32, hashes: &mut Vec<BlockHash>) {
        if self.is_exhausted {
            hashes.extend(std::iter::repeat_n(BlockHash(0), count as usize));
            return;
        }
        let end = block + count;
        let Node { first, last, .. } = self.nodes[node as usize];
        // A sequence that grows is at the node's last extent.
        let is_in_last = last != NONE && block >= self.extents[last as usize].first_block;
        let mut at = if is_in_last { last } else { first };
        while block < end {
            if at == NONE {
                match self.grow(node, block, end) {
                    Some(extent) => at = extent,
                    None => return self.extend(node, block, end - block, hashes),
                }
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

    /// Gives numbers to some blocks from `block` on, at most up to `end`, and returns their extent; `None`
    /// when there are no numbers left.
    fn grow(&mut self, node: u32, block: u32, end: u32) -> Option<u32> {
        let place = &mut self.nodes[node as usize];
        if place.num_spare == 0 {
            let asked = end - block;
            // Short prompts would waste most numbers; when half are gone none is set aside.
            let num_spare =
                if self.next_number < SPARING_FROM { asked.next_multiple_of(SET_ASIDE) } else { asked };
            let next_number = self.next_number.checked_add(num_spare);
            let Some(next_number) = next_number.filter(|_| self.extents.len() < NONE as usize) else {
                self.is_exhausted = true;
                return None;
            };
            (place.spare, place.num_spare) = (self.next_number, num_spare);
            self.next_number = next_number;
        }
        let number = place.spare;
        let len = place.num_spare.min(end - block);
        place.spare += len;
        place.num_spare -= len;
        if place.last != NONE {
            let last = &mut self.extents[place.last as usize];
            debug_assert!(last.end_block == block);
            if last.number + (last.end_block - last.first_block) == number {
                last.end_block += len;
                return Some(place.last);
            }
        }
        let at = self.extents.len() as u32;
        match place.last {
            NONE => place.first = at,
            last => self.extents[last as usize].next = at,
        }
        place.last = at;
        self.extents.push(Extent { first_block: block, end_block: block + len, number, next: NONE });
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stay_with_their_blocks() {
        let mut numbers = BlockNumbers::default();
        let (a, b) = (numbers.add_node(0), numbers.add_node(0));
        let mut get = |node, block, count| {
            let mut hashes = Vec::new();
            numbers.extend(node, block, count, &mut hashes);
            hashes.into_iter().map(|hash| hash.0).collect::<Vec<_>>()
        };
        assert_eq!(get(a, 3, 4), [0, 1, 2, 3]);
        assert_eq!(get(b, 0, 2), [32, 33]);
        // Longer than before: what was set aside, and after that what nobody has taken.
        assert_eq!(get(a, 3, 6), [0, 1, 2, 3, 4, 5]);
        assert_eq!(get(a, 5, 30), (2..32).collect::<Vec<_>>());
        assert_eq!(get(a, 34, 3), [31, 64, 65]);
        assert_eq!(get(a, 5, 3), [2, 3, 4]);
        // One by one.
        assert_eq!((get(a, 37, 1), get(b, 2, 1), get(a, 38, 1)), (vec![66], vec![34], vec![67]));
        // What follows goes on where the sequence ended; others do not.
        let (c, d) = (numbers.add_node(a), numbers.add_node(a));
        let mut hashes = Vec::new();
        numbers.extend(c, 0, 1, &mut hashes);
        numbers.extend(d, 0, 1, &mut hashes);
        numbers.extend(a, 39, 1, &mut hashes);
        assert_eq!(hashes, [68, 96, 128].map(BlockHash));
    }

    #[test]
    fn numbers_are_saved_when_half_are_gone_and_run_out_without_a_panic() {
        let mut numbers = BlockNumbers { next_number: SPARING_FROM - 1, ..BlockNumbers::default() };
        let nodes = [0; 3].map(|parent| numbers.add_node(parent));
        let mut hashes = Vec::new();
        nodes.iter().for_each(|&node| numbers.extend(node, 0, 1, &mut hashes));
        assert_eq!(hashes, [SPARING_FROM - 1, SPARING_FROM + 31, SPARING_FROM + 32].map(BlockHash));

        numbers.next_number = u32::MAX - 2;
        hashes.clear();
        numbers.extend(nodes[1], 1, 2, &mut hashes);
        assert_eq!(
            (hashes.as_slice(), numbers.is_exhausted()),
            ([u32::MAX - 2, u32::MAX - 1].map(BlockHash).as_slice(), false)
        );
        numbers.extend(nodes[2], 1, 3, &mut hashes);
        numbers.extend(nodes[0], 1, 40, &mut hashes);
        assert_eq!((hashes.len(), numbers.is_exhausted()), (45, true));
    }
}
