//! KV cache events (`distributed/kv_events.py`): what an external router learns about the prefix
//! cache.

use super::hash::{BlockHash, EventExtraKey};
use super::request::Request;
use crate::prompt::TokenRuns;

/// The storage medium that all events of the engine's own pool name.
pub const MEDIUM_GPU: &str = "GPU";

#[derive(Clone, Debug, PartialEq)]
pub enum KvCacheEvent {
    BlockStored(BlockStored),
    /// vLLM sends one event for each hash.
    BlockRemoved {
        block_hash: BlockHash,
        group_idx: u32,
    },
    AllBlocksCleared,
}

/// A change of the prefix cache as an event tells of it, without what only its reader asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheChange {
    Stored { hash: BlockHash, group_id: u32 },
    Removed { hash: BlockHash, group_id: u32 },
    Cleared,
}

/// Blocks came under their hashes.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockStored {
    /// Of the blocks that were hashed: fewer than the token range holds when some were left out.
    pub block_hashes: Vec<BlockHash>,
    /// The hash before the token range.
    pub parent_block_hash: Option<BlockHash>,
    pub token_ids: TokenRuns,
    /// In tokens.
    pub block_size: u32,
    pub lora_id: Option<u64>,
    pub lora_name: Option<String>,
    /// One entry for each hash; none at all without hashes.
    pub extra_keys: Vec<Option<Vec<EventExtraKey>>>,
    pub group_idx: u32,
    pub session_id: Option<String>,
    /// The tokens after each block that its hash covers too, `None` for plain hashes.
    pub lookahead_token_ids: Option<Vec<Vec<u64>>>,
}

impl BlockStored {
    pub(super) fn new(
        request: &Request,
        block_size: u32,
        group_idx: u32,
        num_hash_lookahead_tokens: u32,
    ) -> Self {
        let lora = request.extras.as_deref().and_then(|extras| extras.lora.as_ref());
        Self {
            block_hashes: Vec::new(),
            parent_block_hash: None,
            token_ids: TokenRuns::new(),
            block_size,
            lora_id: lora.map(|lora| lora.id),
            lora_name: lora.map(|lora| lora.name.clone()),
            extra_keys: Vec::new(),
            group_idx,
            session_id: request.session_id.clone(),
            lookahead_token_ids: (num_hash_lookahead_tokens > 0).then(Vec::new),
        }
    }

    pub(super) fn set_token_ids(&mut self, request: &Request, start: u32, end: u32) {
        self.token_ids = TokenRuns::new();
        for run in request.all_token_ids.slice(start, end) {
            self.token_ids.push_run(run.start, run.len);
        }
    }

    /// Adds a hashed block that covers the tokens `start..end` of the request.
    pub(super) fn push_block(
        &mut self,
        request: &Request,
        hash: BlockHash,
        start: u32,
        end: u32,
        num_hash_lookahead_tokens: u32,
    ) {
        self.block_hashes.push(hash);
        self.extra_keys.push(request.event_extra_keys(start, end + num_hash_lookahead_tokens));
        if let Some(lookahead) = &mut self.lookahead_token_ids {
            lookahead.push(request.all_token_ids.ids(end, end + num_hash_lookahead_tokens).collect());
        }
    }
}
