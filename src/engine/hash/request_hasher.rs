//! The hashes of a request's full blocks (vLLM: `get_request_block_hasher` in
//! `v1/core/kv_cache_utils.py`).

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::algorithm::PrefixCachingHashAlgo;
use super::block_hash::{BlockDigest, BlockHash};
use super::digest_chain::DigestChain;
use super::identity::{PrefixTrie, TrieCursor};
use crate::prompt::{PromptExtras, TokenRuns};

/// Hashes the blocks of all requests of one engine, in one of two modes with the same answers about
/// equality: by identity, which is fast, or by vLLM's digests, where somebody sees them.
///
/// A [`BlockHash`] has a meaning only to the hasher that made it and its clones, which share what they
/// know: engines and a router that agree on their hashes.
#[derive(Clone, Debug)]
pub struct RequestBlockHasher {
    layout: BlockLayout,
    mode: Rc<RefCell<Mode>>,
    num_hashed_blocks: u64,
}

#[derive(Debug)]
enum Mode {
    Identity(PrefixTrie),
    Digests(Box<DigestChain>),
}

/// How far a request is hashed. Kept with the request, beside its hashes.
#[derive(Clone, Debug, Default)]
pub struct HashCursor {
    trie: TrieCursor,
    /// The first multimodal item that can overlap the next block.
    mm_index: usize,
}

/// The hashes of a prompt that somebody made before the engine asks for them.
#[derive(Clone, Debug)]
pub struct PromptHashes {
    hasher: RequestBlockHasher,
    cursor: HashCursor,
    hashes: Vec<BlockHash>,
}

impl PromptHashes {
    pub fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }
}

/// Which tokens a block has, and how many after it its hash covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockLayout {
    pub block_size: u32,
    pub num_lookahead_tokens: u32,
}

impl BlockLayout {
    /// The number of blocks whose tokens are all there, those after the block included.
    pub fn num_blocks(self, tokens: &TokenRuns) -> usize {
        (tokens.len().saturating_sub(self.num_lookahead_tokens) / self.block_size) as usize
    }

    /// The positions of a block that [`Self::num_blocks`] counts.
    pub fn range(self, block: usize) -> Range<u32> {
        let start = block as u32 * self.block_size;
        start..start + self.block_size
    }
}

impl RequestBlockHasher {
    /// Hashes are exact identities, without digests.
    ///
    /// `num_hash_lookahead_tokens` is 0, or the number of tokens after a block that its hash covers
    /// too (1 with an EAGLE drafter).
    ///
    /// # Panics
    /// When `hash_block_size` is 0.
    pub fn identity(hash_block_size: u32, num_hash_lookahead_tokens: u32) -> Self {
        Self::new(hash_block_size, num_hash_lookahead_tokens, Mode::Identity(PrefixTrie::default()))
    }

    /// Hashes stand for vLLM's digests, which [`Self::digest`] returns. `none_hash` comes from
    /// [`init_none_hash`](super::init_none_hash) with the same algorithm.
    ///
    /// # Panics
    /// When `hash_block_size` is 0.
    pub fn digests(
        algo: PrefixCachingHashAlgo,
        none_hash: BlockDigest,
        hash_block_size: u32,
        num_hash_lookahead_tokens: u32,
    ) -> Self {
        let mode = Mode::Digests(Box::new(DigestChain::new(algo, none_hash)));
        Self::new(hash_block_size, num_hash_lookahead_tokens, mode)
    }

    fn new(block_size: u32, num_lookahead_tokens: u32, mode: Mode) -> Self {
        assert!(block_size > 0, "a block has at least one token");
        Self {
            layout: BlockLayout { block_size, num_lookahead_tokens },
            mode: Rc::new(RefCell::new(mode)),
            num_hashed_blocks: 0,
        }
    }

    /// Appends the hashes of the blocks of `tokens` that became full since the last call.
    ///
    /// `tokens` are all tokens of the request and only grow between calls; `extras` stay the same.
    /// `cursor` and `hashes` are the request's own, empty at first; nobody else changes them.
    pub fn extend(
        &mut self,
        tokens: &TokenRuns,
        extras: Option<&PromptExtras>,
        cursor: &mut HashCursor,
        hashes: &mut Vec<BlockHash>,
    ) {
        let HashCursor { trie: place, mm_index } = cursor;
        let num_before = hashes.len();
        match &mut *self.mode.borrow_mut() {
            Mode::Identity(trie) => trie.extend(self.layout, tokens, extras, place, mm_index, hashes),
            Mode::Digests(chain) => chain.extend(self.layout, tokens, extras, mm_index, hashes),
        }
        self.num_hashed_blocks += (hashes.len() - num_before) as u64;
    }

    /// Hashes a prompt for a request that an engine will have.
    pub fn hash_prompt(&mut self, prompt: &TokenRuns, extras: Option<&PromptExtras>) -> PromptHashes {
        let (mut cursor, mut hashes) = (HashCursor::default(), Vec::new());
        self.extend(prompt, extras, &mut cursor, &mut hashes);
        PromptHashes { hasher: self.clone(), cursor, hashes }
    }

    /// Takes over what a hasher has made of a prompt: what [`Self::extend`] would come to. `None` if
    /// that was not a clone of this one, so that its hashes mean nothing here.
    pub fn take_over(&mut self, prompt: PromptHashes) -> Option<(HashCursor, Vec<BlockHash>)> {
        let PromptHashes { hasher, cursor, hashes } = prompt;
        let is_clone = Rc::ptr_eq(&hasher.mode, &self.mode) && hasher.layout == self.layout;
        is_clone.then(|| {
            self.num_hashed_blocks += hashes.len() as u64;
            (cursor, hashes)
        })
    }

    /// Blocks hashed so far, of all requests.
    pub fn num_hashed_blocks(&self) -> u64 {
        self.num_hashed_blocks
    }

    /// Whether there were more distinct blocks than 32 bits can tell apart. Hashes that were made since mean
    /// nothing.
    pub fn is_exhausted(&self) -> bool {
        match &*self.mode.borrow() {
            Mode::Identity(trie) => trie.is_exhausted(),
            Mode::Digests(chain) => chain.is_exhausted(),
        }
    }

    /// The number of tokens from which on a sequence has `num_blocks` hashes.
    pub fn num_tokens_for(&self, num_blocks: usize) -> u32 {
        num_blocks as u32 * self.layout.block_size + self.layout.num_lookahead_tokens
    }

    /// vLLM's digest of a hash; None for an engine that hashes by identity.
    pub fn digest(&self, hash: BlockHash) -> Option<BlockDigest> {
        match &*self.mode.borrow() {
            Mode::Identity(_) => None,
            Mode::Digests(chain) => chain.get(hash),
        }
    }
}
