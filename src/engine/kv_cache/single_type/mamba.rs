//! Mamba layers in cache mode "align" (`MambaManager`): a block holds the state after its last
//! token, so a hit needs one block and a running request one or two.

use super::{BlockPool, Lookup, NeededTokens, SingleTypeKvCacheManager, num_evictable_blocks};
use crate::engine::hash::BlockHash;
use crate::engine::kv_cache::NULL_BLOCK;
use crate::engine::kv_cache::block::BlockId;
use crate::engine::request::Request;
use crate::engine::request_table::RequestSlot;

/// From the right: the last boundary whose state is cached.
pub(super) fn find_longest_cache_hit(lookup: &Lookup<'_>, hits: &mut [Vec<BlockId>]) -> u32 {
    let block_size = lookup.block_size;
    let mut try_boundary = |hash: BlockHash, block_index: u32| {
        lookup.pool.get_cached_block(hash, lookup.group_ids, |at, block| {
            let group = &mut hits[lookup.group_ids[at] as usize];
            group.resize(block_index as usize, NULL_BLOCK);
            group.push(block);
        })
    };
    if lookup.is_fine_grained() {
        let unit = lookup.alignment_tokens;
        let num_units = (lookup.max_length / unit).min(lookup.block_hashes.len() as u32);
        return (0..num_units)
            .rev()
            .find(|&at| try_boundary(lookup.block_hashes[at as usize], at / (block_size / unit)))
            .map_or(0, |at| (at + 1) * unit);
    }
    (0..lookup.max_length / block_size)
        .rev()
        .filter(|index| ((index + 1) * block_size).is_multiple_of(lookup.alignment_tokens))
        .find(|&index| lookup.full_block_hash(index).is_some_and(|hash| try_boundary(hash, index)))
        .map_or(0, |index| (index + 1) * block_size)
}

/// The last boundary of a prefill that a later request can resume at
/// (`get_mamba_prefill_checkpoint_position` in `v1/kv_cache_interface.py`).
pub(in crate::engine) fn get_mamba_prefill_checkpoint_position(
    num_tokens: u32,
    unit_tokens: u32,
    drop_eagle_block: bool,
    num_hash_lookahead_tokens: u32,
) -> u32 {
    if drop_eagle_block {
        // The dropped unit leaves enough to recompute.
        return (num_tokens / unit_tokens * unit_tokens).saturating_sub(unit_tokens);
    }
    num_tokens.saturating_sub(num_hash_lookahead_tokens.max(1)) / unit_tokens * unit_tokens
}

impl SingleTypeKvCacheManager {
    pub(super) fn get_num_mamba_blocks_to_allocate(
        &self,
        slot: RequestSlot,
        pool: &BlockPool,
        needed: &NeededTokens,
        new_computed_blocks: &[BlockId],
    ) -> i64 {
        let last_hash = new_computed_blocks.last().and_then(|&block| pool.block_hash(block));
        if last_hash.is_some_and(|key| self.cached_blocks_this_step.contains(&key.hash)) {
            // The state that was hit does not exist before this step has run: ask for more than
            // there is, so that the request waits a step.
            return i64::from(pool.num_gpu_blocks()) + 1;
        }
        let request = &self.requests[slot.index()];
        let held = new_computed_blocks.len() + request.blocks.len();
        let mut num_new_blocks =
            i64::from(needed.num_tokens_main_model.div_ceil(self.block_size)) - held as i64;
        let has_partial_hit = request.partial_hit.is_some()
            || self.has_partial_local_hit(new_computed_blocks, needed.num_local_computed_tokens);
        if has_partial_hit {
            num_new_blocks = num_new_blocks.max(0) + 1;
        }
        num_new_blocks = num_new_blocks.min(1 + i64::from(has_partial_hit));
        num_new_blocks + num_evictable_blocks(pool, new_computed_blocks)
    }

    /// Blocks that an allocation takes from the free queue. [`Self::get_num_blocks_to_allocate`] says
    /// less when a connector loads tokens or the request holds more than it needs.
    pub fn num_mamba_blocks_taken(
        &self,
        slot: RequestSlot,
        pool: &BlockPool,
        needed: &NeededTokens,
        new_computed_blocks: &[BlockId],
    ) -> i64 {
        let request = &self.requests[slot.index()];
        let total = needed.total_computed_tokens;
        let num_external_tokens = total - needed.num_local_computed_tokens;
        let mut hits: &[BlockId] = &[];
        let mut held = request.blocks.len() as u32;
        let mut num_loaded = 0;
        if !new_computed_blocks.is_empty() || num_external_tokens > 0 {
            let num_skipped_blocks = self.get_num_skipped_tokens(total) / self.block_size;
            hits = new_computed_blocks.get(num_skipped_blocks as usize..).unwrap_or_default();
            held = held.max(num_skipped_blocks + hits.len() as u32);
            if num_external_tokens > 0 {
                num_loaded = total.div_ceil(self.block_size).saturating_sub(held);
            }
        }
        held += num_loaded;
        let has_partial_hit = request.partial_hit.is_some()
            || self.has_partial_local_hit(hits, needed.num_local_computed_tokens);
        // Blocks before the last are null.
        let num_new = u32::from(needed.num_tokens_main_model.div_ceil(self.block_size) > held);
        i64::from(num_loaded + num_new + u32::from(has_partial_hit)) + num_evictable_blocks(pool, hits)
    }

    pub(super) fn allocate_new_mamba_blocks(
        &mut self,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_tokens: u32,
        new_blocks: &mut Vec<BlockId>,
    ) {
        let num_required_blocks = num_tokens.div_ceil(self.block_size) as usize;
        let request = &mut self.requests[slot.index()];
        let partial_hit = request.partial_hit.take();
        let was_allocated = std::mem::replace(&mut request.is_allocated, true);
        let old_len = request.blocks.len();
        if num_required_blocks <= old_len && partial_hit.is_none() {
            return;
        }
        if old_len > 0 {
            request.last_state_block_idx = Some(old_len as u32 - 1);
        }
        if old_len + 1 < num_required_blocks {
            // States inside the chunk are never written.
            request.blocks.resize(num_required_blocks - 1, NULL_BLOCK);
        }
        let cow_block = partial_hit.map(|(block_idx, source)| {
            let mut fresh = Vec::with_capacity(1);
            pool.get_new_blocks(1, &mut fresh);
            (block_idx, source, fresh[0])
        });
        let padded_len = request.blocks.len();
        pool.get_new_blocks(num_required_blocks.saturating_sub(padded_len) as u32, &mut request.blocks);
        if let Some((block_idx, source, copy)) = cow_block {
            self.pending_cow_copies.push((source, copy));
            if was_allocated {
                // The table of a running request only grows, so it keeps writing into the block
                // that is cached; the cache gets the copy instead.
                pool.move_block_hashes(source, copy);
                pool.retain(source);
                if let Some(key) = pool.block_hash(copy) {
                    self.cached_blocks_this_step.insert(key.hash);
                }
            } else {
                request.blocks[block_idx as usize] = copy;
                pool.retain(copy);
                new_blocks.push(copy);
            }
        }
        new_blocks.extend_from_slice(&request.blocks[old_len..]);
    }

    /// Frees the states before block `num_blocks`; prefill leaves null blocks between them.
    pub(super) fn remove_retired_mamba_blocks(
        &mut self,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_blocks: u32,
    ) {
        let request = &mut self.requests[slot.index()];
        let first = request.num_retired_blocks as usize;
        let end = request.blocks.len().min(num_blocks as usize);
        if first >= end {
            return;
        }
        for block in request.blocks[first..end].iter_mut().rev().filter(|block| !block.is_null()) {
            self.freed.push(std::mem::replace(block, NULL_BLOCK));
        }
        request.num_retired_blocks = end as u32;
        pool.free_blocks(self.freed.drain(..));
    }

    /// Frees the state of two steps ago: the state of the last step is the one that this step reads.
    pub(super) fn remove_last_mamba_state(
        &mut self,
        slot: RequestSlot,
        pool: &mut BlockPool,
        processed_computed_tokens: u32,
    ) {
        let request = &mut self.requests[slot.index()];
        if let Some(index) = request.last_state_block_idx
            && index + 1 < processed_computed_tokens.div_ceil(self.block_size)
        {
            let block = std::mem::replace(&mut request.blocks[index as usize], NULL_BLOCK);
            pool.free_blocks(std::iter::once(block));
        }
    }

    pub(super) fn cache_mamba_blocks(
        &mut self,
        request: &Request,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_tokens: u32,
    ) {
        let before = self.requests[slot.index()].num_cached_block.unwrap_or(0);
        self.cache_full_blocks(request, slot, pool, num_tokens);
        let after = self.requests[slot.index()].num_cached_block.unwrap_or(0);
        if let Some(hash) = self.cache_mamba_partial_tail(request, slot, pool, num_tokens) {
            self.cached_blocks_this_step.insert(hash);
        }
        for index in before..after {
            let block = self.blocks(slot)[index as usize];
            if let Some(key) = pool.block_hash(block) {
                self.cached_blocks_this_step.insert(key.hash);
            }
        }
    }

    /// Makes the last reusable boundary of the prompt reachable when a chunk ends there, inside a
    /// block. The next step writes into that block, so it is copied first.
    fn cache_mamba_partial_tail(
        &mut self,
        request: &Request,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_tokens: u32,
    ) -> Option<BlockHash> {
        let unit = pool.hash_block_size();
        let boundary = get_mamba_prefill_checkpoint_position(
            request.num_prompt_tokens,
            unit,
            self.use_eagle,
            pool.num_hash_lookahead_tokens(),
        );
        if num_tokens == 0 || num_tokens != boundary {
            return None;
        }
        let block_idx = num_tokens.div_ceil(self.block_size) - 1;
        let source = *self.blocks(slot).get(block_idx as usize)?;
        if source.is_null() || pool.block_hash_num_tokens(source) == num_tokens {
            return None;
        }
        let key = pool.cache_partial_block(request, source, num_tokens, self.kv_cache_group_id)?;
        if !num_tokens.is_multiple_of(self.block_size) {
            let state = &mut self.requests[slot.index()];
            state.partial_hit = Some((block_idx, source));
            state.num_cached_block = Some(block_idx);
        }
        Some(key.hash)
    }
}
