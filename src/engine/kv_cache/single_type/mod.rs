//! One manager for each KV cache group: which blocks a request holds in it, how many it needs,
//! which are cached (`v1/core/single_type_kv_cache_manager.py`).

mod chunked_local;
mod full_attention;
mod mamba;
mod sliding_window;

pub(in crate::engine) use mamba::get_mamba_prefill_checkpoint_position;
use rustc_hash::FxHashSet;

use super::NULL_BLOCK;
use super::block::BlockId;
use super::block_pool::{BlockMask, BlockPool, FullBlocks};
use super::spec::KvCacheSpec;
use crate::engine::config::EngineConfig;
use crate::engine::hash::BlockHash;
use crate::engine::request::Request;
use crate::engine::request_table::RequestSlot;

/// What a request holds in one group.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestBlocks {
    /// The block table (`req_to_blocks`).
    pub blocks: Vec<BlockId>,
    /// `num_cached_block`: full blocks that need no hash any more; `None` before the first.
    pub num_cached_block: Option<u32>,
    /// The hit that ended inside a block: its index and the shared block, which must be copied
    /// before the request writes into it (`_partial_hit_reqs`).
    partial_hit: Option<(u32, BlockId)>,
    /// Mamba: the request has been given blocks (`_allocated_block_reqs`).
    is_allocated: bool,
    /// Mamba: index of the block with the state before the last step (`last_state_block_idx`).
    last_state_block_idx: Option<u32>,
    /// Mamba: leading blocks that have been given back (`_num_retired_blocks`).
    num_retired_blocks: u32,
}

/// What a request needs blocks for. All numbers are tokens from the start of the sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeededTokens {
    /// Tokens that need a slot, drafts and look-ahead included.
    pub num_tokens: u32,
    /// The same without the look-ahead of a drafter.
    pub num_tokens_main_model: u32,
    /// Local and external hits and what was computed before.
    pub total_computed_tokens: u32,
    pub num_local_computed_tokens: u32,
    /// Count no more than a request can hold at once, for kinds that give blocks back.
    pub apply_admission_cap: bool,
}

/// A lookup of one group of equal specs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lookup<'a> {
    pub pool: &'a BlockPool,
    pub block_hashes: &'a [BlockHash],
    /// The hit is no longer than this, in tokens.
    pub max_length: u32,
    /// Groups that must all hold a block for it to be a hit.
    pub group_ids: &'a [u32],
    /// Tokens in a block over all ranks.
    pub block_size: u32,
    /// Leave the last matched unit to be recomputed, for EAGLE.
    pub drop_eagle_block: bool,
    /// The hit length is a multiple of this, in tokens.
    pub alignment_tokens: u32,
}

impl Lookup<'_> {
    /// The hash of block `index` at `block_size`: hashes are chained, so it is the hash of its last
    /// hash block (`BlockHashListWithBlockSize`).
    fn full_block_hash(&self, index: u32) -> Option<BlockHash> {
        let scale = self.block_size / self.pool.hash_block_size();
        self.block_hashes.get(((index + 1) * scale - 1) as usize).copied()
    }

    fn num_full_block_hashes(&self) -> u32 {
        self.block_hashes.len() as u32 / (self.block_size / self.pool.hash_block_size())
    }

    /// Hits may end inside a block.
    fn is_fine_grained(&self) -> bool {
        self.alignment_tokens < self.block_size && self.block_size.is_multiple_of(self.alignment_tokens)
    }
}

#[derive(Clone, Debug)]
pub(super) struct SingleTypeKvCacheManager {
    pub spec: KvCacheSpec,
    /// Tokens in a block over all ranks.
    pub block_size: u32,
    pub kv_cache_group_id: u32,
    pub cache_hit_alignment_tokens: u32,
    /// Hits in this group drop a block for EAGLE.
    pub use_eagle: bool,
    max_admission_blocks_per_request: Option<u32>,
    requests: Vec<RequestBlocks>,
    /// Source and destination of copies that this step's execution makes first.
    pending_cow_copies: Vec<(BlockId, BlockId)>,
    /// Mamba: hashes whose state this step computes, so that no request of the step may hit them.
    cached_blocks_this_step: FxHashSet<BlockHash>,
    /// Blocks on their way back to the pool, kept for its capacity.
    freed: Vec<BlockId>,
}

impl SingleTypeKvCacheManager {
    pub fn new(config: &EngineConfig, group_id: usize, scheduler_block_size: u32) -> Self {
        let spec = config.kv_cache_groups[group_id];
        Self {
            spec,
            block_size: config.group_block_size(&spec),
            kv_cache_group_id: group_id as u32,
            cache_hit_alignment_tokens: scheduler_block_size,
            use_eagle: false,
            max_admission_blocks_per_request: spec
                .max_admission_blocks_per_request(config.max_in_flight_tokens(), config.max_model_len),
            requests: Vec::new(),
            pending_cow_copies: Vec::new(),
            cached_blocks_this_step: FxHashSet::default(),
            freed: Vec::new(),
        }
    }

    /// Makes room for a request in this slot.
    pub fn ensure_slot(&mut self, slot: RequestSlot) {
        if slot.index() >= self.requests.len() {
            self.requests.resize_with(slot.index() + 1, RequestBlocks::default);
        }
    }

    #[inline]
    pub fn blocks(&self, slot: RequestSlot) -> &[BlockId] {
        &self.requests[slot.index()].blocks
    }

    /// Whether the request has been given blocks or hits before.
    #[inline]
    pub fn is_tracked(&self, slot: RequestSlot) -> bool {
        self.requests[slot.index()].num_cached_block.is_some()
    }

    /// Whether the request's table has room for `num_slots` tokens, and no block that is full after
    /// `num_known` of them waits for its hash. Always false for kinds that have more to do.
    #[inline]
    pub fn has_slots(&self, slot: RequestSlot, num_slots: u32, num_known: u32, enable_caching: bool) -> bool {
        let request = &self.requests[slot.index()];
        self.spec.is_full()
            && num_slots <= request.blocks.len() as u32 * self.block_size
            && (!enable_caching || num_known / self.block_size <= request.num_cached_block.unwrap_or(0))
    }

    /// Finds the longest cached prefix. `hits[group]` gets a block for each block of it, the null
    /// block where the kind of attention does not read any more. Returns the length in tokens.
    pub fn find_longest_cache_hit(spec: &KvCacheSpec, lookup: &Lookup<'_>, hits: &mut [Vec<BlockId>]) -> u32 {
        for &group_id in lookup.group_ids {
            hits[group_id as usize].clear();
        }
        match *spec {
            KvCacheSpec::FullAttention { .. } => full_attention::find_longest_cache_hit(lookup, hits),
            KvCacheSpec::SlidingWindow { sliding_window, .. } => {
                sliding_window::find_longest_cache_hit(lookup, sliding_window, hits)
            }
            KvCacheSpec::ChunkedLocalAttention { attention_chunk_size, .. } => {
                chunked_local::find_longest_cache_hit(lookup, attention_chunk_size, hits)
            }
            KvCacheSpec::Mamba { .. } => mamba::find_longest_cache_hit(lookup, hits),
        }
    }

    /// Leading tokens that attention no longer reads after `num_computed_tokens`.
    fn get_num_skipped_tokens(&self, num_computed_tokens: u32) -> u32 {
        match self.spec {
            KvCacheSpec::FullAttention { .. } => 0,
            KvCacheSpec::SlidingWindow { sliding_window, .. } => {
                (num_computed_tokens + 1).saturating_sub(sliding_window)
            }
            KvCacheSpec::ChunkedLocalAttention { attention_chunk_size, .. } => {
                num_computed_tokens / attention_chunk_size * attention_chunk_size
            }
            // Only the state after the last token is needed.
            KvCacheSpec::Mamba { .. } => num_computed_tokens.saturating_sub(1),
        }
    }

    /// Which blocks to hash; see [`BlockMask`].
    fn reachable_block_mask(&self) -> BlockMask {
        match self.spec {
            KvCacheSpec::SlidingWindow { sliding_window, .. } => sliding_window::reachable_block_mask(
                sliding_window,
                self.block_size,
                self.cache_hit_alignment_tokens,
                self.use_eagle,
            ),
            _ => BlockMask::All,
        }
    }

    /// Blocks to take from the free queue: new ones, and hits that lie in it. Negative when a Mamba
    /// request holds more than it needs, which vLLM sets against the other groups.
    pub fn get_num_blocks_to_allocate(
        &self,
        slot: RequestSlot,
        pool: &BlockPool,
        needed: &NeededTokens,
        new_computed_blocks: &[BlockId],
    ) -> i64 {
        if self.spec.is_mamba() {
            return self.get_num_mamba_blocks_to_allocate(slot, pool, needed, new_computed_blocks);
        }
        let mut num_required_blocks = needed.num_tokens.div_ceil(self.block_size);
        if needed.apply_admission_cap
            && let Some(cap) = self.max_admission_blocks_per_request
        {
            num_required_blocks = num_required_blocks.min(cap);
        }
        let request = &self.requests[slot.index()];
        let num_req_blocks = request.blocks.len() as u32;
        if request.num_cached_block.is_some() {
            debug_assert!(new_computed_blocks.is_empty());
            return i64::from(num_required_blocks.saturating_sub(num_req_blocks));
        }
        let num_skipped_blocks = self.get_num_skipped_tokens(needed.total_computed_tokens) / self.block_size;
        let num_local_computed_blocks = new_computed_blocks.len() as u32 + num_req_blocks;
        let mut num_new_blocks =
            num_required_blocks.saturating_sub(num_skipped_blocks.max(num_local_computed_blocks));
        // A hit outside the window is not touched, so it stays in the free queue.
        let num_skipped_hits = num_skipped_blocks.saturating_sub(num_req_blocks) as usize;
        let touched = new_computed_blocks.get(num_skipped_hits..).unwrap_or_default();
        if self.has_partial_local_hit(new_computed_blocks, needed.num_local_computed_tokens) {
            num_new_blocks += 1;
        }
        i64::from(num_new_blocks) + num_evictable_blocks(pool, touched)
    }

    /// The hit ends inside a block, which other requests may share.
    fn has_partial_local_hit(&self, new_computed_blocks: &[BlockId], num_local_computed_tokens: u32) -> bool {
        !new_computed_blocks.is_empty() && !num_local_computed_tokens.is_multiple_of(self.block_size)
    }

    /// Gives a new request the blocks that it hit.
    pub fn add_local_computed_blocks(
        &mut self,
        slot: RequestSlot,
        pool: &mut BlockPool,
        new_computed_blocks: &[BlockId],
        num_local_computed_tokens: u32,
        num_external_computed_tokens: u32,
    ) {
        let total = num_local_computed_tokens + num_external_computed_tokens;
        let num_skipped_blocks = (self.get_num_skipped_tokens(total) / self.block_size) as usize;
        let hits = new_computed_blocks.get(num_skipped_blocks..).unwrap_or_default();
        pool.touch(hits);
        let partial = self.has_partial_local_hit(hits, num_local_computed_tokens);
        let block_size = self.block_size;
        let request = &mut self.requests[slot.index()];
        debug_assert!(request.blocks.is_empty());
        request.blocks.resize(num_skipped_blocks, NULL_BLOCK);
        request.blocks.extend_from_slice(hits);
        request.num_cached_block = Some(request.blocks.len() as u32);
        if partial && let Some(&tail) = hits.last() {
            let block_idx = num_local_computed_tokens / block_size;
            request.partial_hit = Some((block_idx, tail));
            request.num_cached_block = Some(block_idx);
        }
    }

    /// Allocates blocks for tokens that a connector will load. Only after all groups have touched
    /// their hits, so that this cannot evict them.
    pub fn allocate_external_computed_blocks(
        &mut self,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_local_computed_tokens: u32,
        num_external_computed_tokens: u32,
    ) {
        let total = num_local_computed_tokens + num_external_computed_tokens;
        if self.get_num_skipped_tokens(total) >= total {
            return;
        }
        let request = &mut self.requests[slot.index()];
        let num_new_blocks = total.div_ceil(self.block_size).saturating_sub(request.blocks.len() as u32);
        pool.get_new_blocks(num_new_blocks, &mut request.blocks);
    }

    /// Gives the request blocks for at least `num_tokens` tokens, and appends what is new in its
    /// table to `new_blocks`.
    pub fn allocate_new_blocks(
        &mut self,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_tokens: u32,
        num_tokens_main_model: u32,
        new_blocks: &mut Vec<BlockId>,
    ) {
        if self.spec.is_mamba() {
            self.allocate_new_mamba_blocks(slot, pool, num_tokens_main_model, new_blocks);
            return;
        }
        let request = &mut self.requests[slot.index()];
        if let Some((block_idx, source)) = request.partial_hit.take() {
            let at = new_blocks.len();
            pool.get_new_blocks(1, new_blocks);
            let copy = new_blocks[at];
            request.blocks[block_idx as usize] = copy;
            self.pending_cow_copies.push((source, copy));
            // Both ends stay until the copy has run.
            pool.retain(copy);
        }
        let num_required_blocks = num_tokens.div_ceil(self.block_size);
        let old_len = request.blocks.len();
        if let Some(num_new_blocks) = num_required_blocks.checked_sub(old_len as u32)
            && num_new_blocks > 0
        {
            pool.get_new_blocks(num_new_blocks, &mut request.blocks);
            new_blocks.extend_from_slice(&request.blocks[old_len..]);
        }
    }

    /// Hashes the blocks that are full after `num_tokens` tokens.
    #[inline]
    pub fn cache_blocks(
        &mut self,
        request: &Request,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_tokens: u32,
    ) {
        match self.spec {
            KvCacheSpec::FullAttention { .. } => {
                self.cache_full_blocks(request, slot, pool, num_tokens);
                if self.block_size != pool.hash_block_size() {
                    self.cache_attention_partial_tail(request, slot, pool, num_tokens);
                }
            }
            KvCacheSpec::Mamba { .. } => self.cache_mamba_blocks(request, slot, pool, num_tokens),
            _ => self.cache_full_blocks(request, slot, pool, num_tokens),
        }
    }

    fn cache_full_blocks(
        &mut self,
        request: &Request,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_tokens: u32,
    ) {
        let num_cached_blocks = self.requests[slot.index()].num_cached_block.unwrap_or(0);
        let num_hashed_tokens = request.block_hashes.len() as u32 * pool.hash_block_size();
        let num_full_blocks = num_tokens.min(num_hashed_tokens) / self.block_size;
        if num_cached_blocks >= num_full_blocks {
            return;
        }
        let mask = self.reachable_block_mask();
        let state = &mut self.requests[slot.index()];
        let full = FullBlocks {
            num_cached_blocks,
            num_full_blocks,
            block_size: self.block_size,
            group_id: self.kv_cache_group_id,
            mask,
        };
        pool.cache_full_blocks(request, &state.blocks, &full);
        state.num_cached_block = Some(num_full_blocks);
    }

    /// Empties the request's table into `out`, in order, without the leading null blocks.
    pub fn pop_blocks_for_free(&mut self, slot: RequestSlot, out: &mut Vec<BlockId>) {
        let request = &mut self.requests[slot.index()];
        let num_null = request.blocks.iter().take_while(|block| block.is_null()).count();
        out.extend_from_slice(&request.blocks[num_null..]);
        // The table keeps its capacity for the next request in this slot.
        let mut blocks = std::mem::take(&mut request.blocks);
        blocks.clear();
        *request = RequestBlocks { blocks, ..RequestBlocks::default() };
    }

    /// Frees the request's blocks, the last ones first, so that they are evicted first.
    pub fn free(&mut self, slot: RequestSlot, pool: &mut BlockPool) {
        let mut freed = std::mem::take(&mut self.freed);
        self.pop_blocks_for_free(slot, &mut freed);
        pool.free_blocks(freed.iter().rev().copied());
        freed.clear();
        self.freed = freed;
    }

    /// Frees blocks that attention no longer reads and puts null blocks in their place.
    #[inline]
    pub fn remove_skipped_blocks(
        &mut self,
        slot: RequestSlot,
        pool: &mut BlockPool,
        processed_computed_tokens: u32,
    ) {
        let num_skipped_tokens = self.get_num_skipped_tokens(processed_computed_tokens);
        if num_skipped_tokens > 0 {
            let num_skipped_blocks = num_skipped_tokens / self.block_size;
            if self.spec.is_mamba() {
                self.remove_retired_mamba_blocks(slot, pool, num_skipped_blocks);
            } else {
                self.remove_leading_blocks(slot, pool, num_skipped_blocks);
            }
        }
        if self.spec.is_mamba() {
            self.remove_last_mamba_state(slot, pool, processed_computed_tokens);
        }
    }

    fn remove_leading_blocks(&mut self, slot: RequestSlot, pool: &mut BlockPool, num_blocks: u32) {
        let blocks = &mut self.requests[slot.index()].blocks;
        let end = blocks.len().min(num_blocks as usize);
        // From the back, up to what an earlier call has removed.
        for block in blocks[..end].iter_mut().rev() {
            if block.is_null() {
                break;
            }
            self.freed.push(std::mem::replace(block, NULL_BLOCK));
        }
        pool.free_blocks(self.freed.drain(..));
    }

    /// Copies that the next execution makes first, since the last call.
    pub fn take_pending_cow_copies(&mut self) -> impl Iterator<Item = (BlockId, BlockId)> + '_ {
        self.pending_cow_copies.drain(..)
    }

    pub fn new_step_starts(&mut self) {
        self.cached_blocks_this_step.clear();
    }
}

/// Hits that lie in the free queue.
fn num_evictable_blocks(pool: &BlockPool, blocks: &[BlockId]) -> i64 {
    blocks.iter().filter(|&&block| pool.is_evictable(block)).count() as i64
}
