//! What requests look up one after the other, and where on an LRU stack it lies.

use super::{BlockChains, PrefixStack, Reuse, TooManyBlocks};
use crate::prompt::TokenRuns;
use crate::workload::trace::TraceRequest;

/// Follows requests at one block size.
#[derive(Debug)]
pub struct Lookups {
    chains: BlockChains,
    stack: PrefixStack,
    queries_tokens: u64,
    touched_blocks: u64,
}

/// Blocks of a prompt, one after the other, that an earlier request had too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Position in the prompt of the first block.
    pub first: usize,
    /// At least 1.
    pub len: u32,
    pub reuse: Reuse,
}

impl Lookups {
    /// # Panics
    /// When `block_size` is 0.
    pub fn new(block_size: u32) -> Self {
        Self {
            chains: BlockChains::new(block_size),
            stack: PrefixStack::default(),
            queries_tokens: 0,
            touched_blocks: 0,
        }
    }

    /// Looks up the prompt of a request, hands out what is found, and touches the blocks of
    /// `computed`. Returns the tokens that were looked up: of a prompt all, as vLLM counts them.
    ///
    /// # Errors
    /// There are too many blocks.
    pub fn add(
        &mut self,
        request: &TraceRequest,
        computed: &TokenRuns,
        mut found: impl FnMut(Found),
    ) -> Result<u64, TooManyBlocks> {
        let prompt_tokens = looked_up_tokens(request);
        let num_lookup = self.chains.num_lookup_blocks(prompt_tokens);
        self.queries_tokens += u64::from(prompt_tokens);
        let chain = self.chains.of(computed, &request.extras)?;
        self.touched_blocks += chain.len() as u64;
        self.stack.touch(chain, |part| {
            let len = part.len.min(num_lookup.saturating_sub(part.first)) as u32;
            if let Some(reuse) = part.reuse
                && len > 0
            {
                found(Found { first: part.first, len, reuse });
            }
        });
        Ok(u64::from(prompt_tokens))
    }

    /// In tokens.
    pub fn block_size(&self) -> u32 {
        self.chains.block_size()
    }

    /// The tokens of all prompts that look into the cache.
    pub fn queries_tokens(&self) -> u64 {
        self.queries_tokens
    }

    /// Full blocks of prompts and answers.
    pub fn touched_blocks(&self) -> u64 {
        self.touched_blocks
    }

    /// Of these, the distinct ones.
    pub fn unique_blocks(&self) -> u64 {
        self.stack.num_blocks()
    }
}

/// The tokens that a request looks up.
pub(super) fn looked_up_tokens(request: &TraceRequest) -> u32 {
    if request.skip_reading_prefix_cache { 0 } else { request.prompt.len() }
}
