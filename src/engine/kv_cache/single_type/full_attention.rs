//! Full attention (`FullAttentionManager`): every token reads all before it.

use super::{BlockPool, Lookup, SingleTypeKvCacheManager};
use crate::engine::kv_cache::block::BlockId;
use crate::engine::request::Request;
use crate::engine::request_table::RequestSlot;

/// From the left: hashes are chained, so nothing can follow a miss.
pub(super) fn find_longest_cache_hit(lookup: &Lookup<'_>, hits: &mut [Vec<BlockId>]) -> u32 {
    let block_size = lookup.block_size;
    let num_blocks = (lookup.max_length / block_size).min(lookup.num_full_block_hashes());
    let mut num_hits = 0;
    if let &[group_id] = lookup.group_ids
        && block_size == lookup.pool.hash_block_size()
    {
        let blocks = &mut hits[group_id as usize];
        lookup.pool.get_cached_blocks(&lookup.block_hashes[..num_blocks as usize], group_id, blocks);
        num_hits = blocks.len() as u32;
    }
    let mut push = |hash| {
        lookup.pool.get_cached_block(hash, lookup.group_ids, |at, block| {
            hits[lookup.group_ids[at] as usize].push(block);
        })
    };
    while num_hits < num_blocks && lookup.full_block_hash(num_hits).is_some_and(&mut push) {
        num_hits += 1;
    }
    let mut hit_length = num_hits * block_size;
    if lookup.is_fine_grained() {
        // The longest hash boundary inside the next block that is cached.
        let unit = lookup.alignment_tokens;
        let scale = block_size / unit;
        let first = num_hits * scale;
        let end = (first + scale - 1).min(lookup.max_length / unit).min(lookup.block_hashes.len() as u32);
        if let Some(tail) = (first..end).rev().find(|&at| push(lookup.block_hashes[at as usize])) {
            hit_length = (tail + 1) * unit;
        }
    }
    if lookup.drop_eagle_block && hit_length > 0 {
        hit_length -= lookup.alignment_tokens.min(block_size);
    }
    hit_length -= hit_length % lookup.alignment_tokens;
    for &group_id in lookup.group_ids {
        hits[group_id as usize].truncate(hit_length.div_ceil(block_size) as usize);
    }
    hit_length
}

impl SingleTypeKvCacheManager {
    /// Makes the last hash boundary of the prompt reachable when it lies inside a block. The
    /// boundaries before it in the same block are left out on purpose.
    pub(super) fn cache_attention_partial_tail(
        &self,
        request: &Request,
        slot: RequestSlot,
        pool: &mut BlockPool,
        num_tokens: u32,
    ) {
        let unit = pool.hash_block_size();
        // The same prompt again matches all but its last token; EAGLE reads all and drops a unit.
        let limit = if self.use_eagle { request.num_prompt_tokens } else { request.num_prompt_tokens - 1 };
        let boundary = (limit / unit).min(request.block_hashes.len() as u32) * unit;
        if boundary == 0 || boundary > num_tokens || boundary.is_multiple_of(self.block_size) {
            return;
        }
        if let Some(&block) = self.blocks(slot).get((boundary / self.block_size) as usize) {
            pool.cache_partial_block(request, block, boundary, self.kv_cache_group_id);
        }
    }
}
