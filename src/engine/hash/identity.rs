//! Block identity without digests: exact, and a few instructions per block.
//!
//! All token sequences are kept in one trie whose nodes are maximal runs of consecutive ids. A place
//! after a token is a node and an offset into its run, and stands for the whole prefix up to it: two
//! prefixes have the same place exactly when they are equal. Extra keys of a block are an edge of
//! their own in front of its first token. So the place after the last token that a block's hash
//! covers is equal for two blocks exactly when vLLM's (parent, tokens, extra keys) are.
//!
//! A run that is part of another in the trie needs no splitting, since a child may leave a node at any
//! offset; and inside a run the blocks follow one another, so their numbers are given out in bulk
//! ([`BlockNumbers`]).

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::block_hash::BlockHash;
use super::block_numbers::BlockNumbers;
use super::cbor;
use super::extra_keys::{ExtraKey, end_of, generate_lookahead_block_hash_extra_keys};
use super::request_hasher::BlockLayout;
use crate::prompt::{PromptExtras, TokenRun, TokenRuns};

/// A place in the trie: the node in the high 32 bits, the number of tokens into its run in the low
/// ones. Place 0 is the root, before all tokens.
type Place = u64;

type FxHashMap<K, V> = HashMap<K, V, FxBuildHasher>;

#[derive(Debug, Default)]
pub(super) struct PrefixTrie {
    /// (place, next token) to the node whose run begins with that token.
    token_edges: FxHashMap<(Place, u64), u32>,
    /// (place, extra keys of the next block) to a node without tokens.
    extra_edges: FxHashMap<(Place, u32), u32>,
    /// Serialized extra keys to a number for them.
    extra_ids: HashMap<Box<[u8]>, u32>,
    numbers: BlockNumbers,
    serialized: Vec<u8>,
}

/// Where in the trie and in its own tokens a request is: at the end of its last hashed block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TrieCursor {
    place: Place,
    run: u32,
    /// Tokens of that run before the cursor.
    used: u32,
    /// Whether `place` lies in the node of that run; else the next token is looked up.
    entered: bool,
}

impl PrefixTrie {
    /// Whether there were more distinct blocks than numbers.
    pub fn is_exhausted(&self) -> bool {
        self.numbers.is_exhausted()
    }

    /// Appends the hashes of all blocks of `tokens` that `hashes` lacks.
    pub fn extend(
        &mut self,
        layout: BlockLayout,
        tokens: &TokenRuns,
        extras: Option<&PromptExtras>,
        cursor: &mut TrieCursor,
        mm_index: &mut usize,
        hashes: &mut Vec<BlockHash>,
    ) {
        let runs = tokens.runs();
        let num_blocks = layout.num_blocks(tokens);
        hashes.reserve(num_blocks.saturating_sub(hashes.len()));
        let plain_from = extras.map_or(0, plain_from);
        let mut keys = Vec::new();
        let mut at = *cursor;
        while hashes.len() < num_blocks {
            let block = layout.range(hashes.len());
            if let Some(extras) = extras
                && u64::from(block.start) < plain_from
            {
                *mm_index = generate_lookahead_block_hash_extra_keys(
                    extras,
                    block.start,
                    block.end,
                    layout.num_lookahead_tokens,
                    *mm_index,
                    &mut keys,
                );
                // The adapter of later blocks is that of block 0, which is part of their prefix.
                let implied = usize::from(extras.lora.is_some() && block.start > 0);
                if keys.len() > implied {
                    self.take_extra_edge(&mut at, &keys[implied..]);
                }
            } else {
                self.enter_run(&mut at, runs);
                let left = runs[at.run as usize].len - at.used;
                let fit = left.saturating_sub(layout.num_lookahead_tokens) / layout.block_size;
                let count = fit.min((num_blocks - hashes.len()) as u32);
                if count > 0 {
                    let first = at.place + u64::from(layout.block_size + layout.num_lookahead_tokens);
                    self.numbers.extend(node_of(first), block_in_node(layout, first), count, hashes);
                    at.step(count * layout.block_size);
                    continue;
                }
            }
            self.advance(&mut at, runs, layout.block_size);
            let mut ahead = at;
            self.advance(&mut ahead, runs, layout.num_lookahead_tokens);
            self.numbers.extend(node_of(ahead.place), block_in_node(layout, ahead.place), 1, hashes);
        }
        *cursor = at;
    }

    fn advance(&mut self, at: &mut TrieCursor, runs: &[TokenRun], mut num_tokens: u32) {
        while num_tokens > 0 {
            self.enter_run(at, runs);
            let step = num_tokens.min(runs[at.run as usize].len - at.used);
            at.step(step);
            num_tokens -= step;
        }
    }

    /// Makes sure that the next token lies in the node of `at`.
    fn enter_run(&mut self, at: &mut TrieCursor, runs: &[TokenRun]) {
        if at.used == runs[at.run as usize].len {
            at.run += 1;
            at.used = 0;
            at.entered = false;
        }
        if !at.entered {
            let token = runs[at.run as usize].start.wrapping_add(u64::from(at.used));
            let (numbers, parent) = (&mut self.numbers, node_of(at.place));
            let node = *self.token_edges.entry((at.place, token)).or_insert_with(|| numbers.add_node(parent));
            at.place = u64::from(node) << 32;
            at.entered = true;
        }
    }

    fn take_extra_edge(&mut self, at: &mut TrieCursor, keys: &[ExtraKey<'_>]) {
        self.serialized.clear();
        cbor::encode_extra_keys(keys, &mut self.serialized);
        let id = match self.extra_ids.get(self.serialized.as_slice()) {
            Some(&id) => id,
            None => {
                let id = self.extra_ids.len() as u32;
                self.extra_ids.insert(self.serialized.as_slice().into(), id);
                id
            }
        };
        let (numbers, parent) = (&mut self.numbers, node_of(at.place));
        let node = *self.extra_edges.entry((at.place, id)).or_insert_with(|| numbers.add_node(parent));
        at.place = u64::from(node) << 32;
        at.entered = false;
    }
}

impl TrieCursor {
    fn step(&mut self, num_tokens: u32) {
        self.place += u64::from(num_tokens);
        self.used += num_tokens;
    }
}

fn node_of(place: Place) -> u32 {
    (place >> 32) as u32
}

/// Which block of its node a hashed place ends. All of a node lie the same distance past a multiple
/// of the block size, since a node begins at one position of the sequence.
fn block_in_node(layout: BlockLayout, place: Place) -> u32 {
    place as u32 / layout.block_size
}

/// The position from which on no block has an extra key besides the adapter.
fn plain_from(extras: &PromptExtras) -> u64 {
    if extras.prompt_embeds.is_some() {
        return u64::MAX;
    }
    let first_block = extras.lora.is_some() || extras.cache_salt.is_some();
    extras.mm.last().map_or(0, end_of).max(u64::from(first_block))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(trie: &mut PrefixTrie, num_lookahead_tokens: u32, tokens: &TokenRuns) -> Vec<BlockHash> {
        let layout = BlockLayout { block_size: 4, num_lookahead_tokens };
        let mut hashes = Vec::new();
        trie.extend(layout, tokens, None, &mut TrieCursor::default(), &mut 0, &mut hashes);
        hashes
    }

    #[test]
    fn a_run_costs_one_node_and_prefixes_share_it() {
        let mut trie = PrefixTrie::default();
        let long = hashes(&mut trie, 0, &TokenRuns::from_run(100, 4_000));
        assert_eq!((long.len(), trie.numbers.num_nodes()), (1_000, 1));
        // The same 10 tokens, then others: two blocks are shared, and one new run begins at token 10.
        let mut other = TokenRuns::from_run(100, 10);
        other.push_run(0, 10);
        let branch = hashes(&mut trie, 0, &other);
        assert_eq!((branch.len(), trie.numbers.num_nodes()), (5, 2));
        assert_eq!(branch[..2], long[..2]);
        assert!(branch[2..].iter().all(|hash| !long.contains(hash)));
    }

    #[test]
    fn a_lookahead_token_tells_blocks_apart() {
        let (straight, mut bent) = (TokenRuns::from_run(0, 9), TokenRuns::from_run(0, 8));
        bent.push(77);
        let mut trie = PrefixTrie::default();
        assert_eq!(hashes(&mut trie, 0, &straight), hashes(&mut trie, 0, &bent));
        let mut trie = PrefixTrie::default();
        let (straight, bent) = (hashes(&mut trie, 1, &straight), hashes(&mut trie, 1, &bent));
        assert_eq!(straight[0], bent[0]);
        assert_ne!(straight[1], bent[1]);
    }
}
