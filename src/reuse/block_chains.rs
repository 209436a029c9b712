//! Token sequences as chains of blocks, by the engine's own exact identity.

use thiserror::Error;

use crate::engine::hash::{BlockHash, HashCursor, RequestBlockHasher};
use crate::prompt::{PromptExtras, TokenRuns};

/// Names the blocks of sequences: equal exactly when vLLM's hashes are, which is when all tokens up to
/// the block's end and all extra keys are equal. Names are dense numbers from 0.
#[derive(Debug)]
pub struct BlockChains {
    hasher: RequestBlockHasher,
    block_size: u32,
    blocks: Vec<BlockHash>,
}

/// There are more distinct blocks than 32 bits can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the trace has more than 4 billion distinct blocks of {block_size} tokens; take larger blocks")]
pub struct TooManyBlocks {
    pub block_size: u32,
}

impl BlockChains {
    /// # Panics
    /// When `block_size` is 0.
    pub fn new(block_size: u32) -> Self {
        Self { hasher: RequestBlockHasher::identity(block_size, 0), block_size, blocks: Vec::new() }
    }

    /// In tokens.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The number of full blocks that a lookup for a prompt can find: the last token is always
    /// computed anew (vLLM: `max_cache_hit_length` in `KVCacheManager.get_computed_blocks`).
    pub fn num_lookup_blocks(&self, prompt_tokens: u32) -> usize {
        (prompt_tokens.saturating_sub(1) / self.block_size) as usize
    }

    /// The full blocks of a sequence from its begin.
    ///
    /// # Errors
    /// There are too many blocks.
    pub fn of(&mut self, tokens: &TokenRuns, extras: &PromptExtras) -> Result<&[BlockHash], TooManyBlocks> {
        self.blocks.clear();
        self.hasher.extend(tokens, Some(extras), &mut HashCursor::default(), &mut self.blocks);
        if self.hasher.is_exhausted() {
            return Err(TooManyBlocks { block_size: self.block_size });
        }
        Ok(&self.blocks)
    }
}
