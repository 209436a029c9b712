//! vLLM's real digests, each known to the engine by a dense number.

use hashbrown::HashTable;

use super::algorithm::PrefixCachingHashAlgo;
use super::block_hash::{BlockDigest, BlockHash};
use super::extra_keys::{BlockExtraKeys, generate_lookahead_block_hash_extra_keys};
use super::hash_function::HashFunction;
use super::request_hasher::BlockLayout;
use crate::prompt::{PromptExtras, TokenRuns};

#[derive(Debug)]
pub(super) struct DigestChain {
    function: HashFunction,
    none_hash: BlockDigest,
    /// The digest of each [`BlockHash`].
    digests: Vec<BlockDigest>,
    /// Indices into `digests`, found by the digest.
    indices: HashTable<u32>,
    lookahead_token_ids: Vec<u64>,
}

impl DigestChain {
    pub fn new(algo: PrefixCachingHashAlgo, none_hash: BlockDigest) -> Self {
        Self {
            function: HashFunction::new(algo),
            none_hash,
            digests: Vec::new(),
            indices: HashTable::new(),
            lookahead_token_ids: Vec::new(),
        }
    }

    pub fn get(&self, hash: BlockHash) -> Option<BlockDigest> {
        self.digests.get(hash.0 as usize).copied()
    }

    /// Appends the hashes of all blocks of `tokens` that `hashes` lacks.
    pub fn extend(
        &mut self,
        layout: BlockLayout,
        tokens: &TokenRuns,
        extras: Option<&PromptExtras>,
        mm_index: &mut usize,
        hashes: &mut Vec<BlockHash>,
    ) {
        let num_blocks = layout.num_blocks(tokens);
        let mut keys = Vec::new();
        let mut parent = hashes.last().map_or(self.none_hash, |hash| self.digests[hash.0 as usize]);
        while hashes.len() < num_blocks {
            let block = layout.range(hashes.len());
            if let Some(extras) = extras {
                *mm_index = generate_lookahead_block_hash_extra_keys(
                    extras,
                    block.start,
                    block.end,
                    layout.num_lookahead_tokens,
                    *mm_index,
                    &mut keys,
                );
            }
            self.lookahead_token_ids.clear();
            if layout.num_lookahead_tokens > 0 {
                self.lookahead_token_ids
                    .extend(tokens.ids(block.end, block.end + layout.num_lookahead_tokens));
            }
            let extra = BlockExtraKeys { keys: &keys, lookahead_token_ids: &self.lookahead_token_ids };
            parent = self.function.hash_block_tokens(&parent, tokens, block, extra);
            hashes.push(self.intern(parent));
        }
    }

    /// Whether there are as many digests as numbers, more than 140 GB of them.
    pub fn is_exhausted(&self) -> bool {
        self.digests.len() >= u32::MAX as usize
    }

    fn intern(&mut self, digest: BlockDigest) -> BlockHash {
        if self.is_exhausted() {
            return BlockHash(0);
        }
        let digests = &mut self.digests;
        let index = *self
            .indices
            .entry(
                table_hash(&digest),
                |&index| digests[index as usize] == digest,
                |&index| table_hash(&digests[index as usize]),
            )
            .or_insert_with(|| digests.len() as u32)
            .get();
        if index as usize == digests.len() {
            digests.push(digest);
        }
        BlockHash(index)
    }
}

/// A digest is random, so any 8 bytes of it are as good as a hash of all.
fn table_hash(digest: &BlockDigest) -> u64 {
    digest.low_u64()
}
