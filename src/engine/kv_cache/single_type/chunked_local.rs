//! Chunked local attention (`ChunkedLocalAttentionManager`): a token reads its own chunk only.

use super::Lookup;
use crate::engine::kv_cache::NULL_BLOCK;
use crate::engine::kv_cache::block::BlockId;

/// Blocks before the chunk of the next token count as hits, since nobody reads them; the blocks
/// of the chunk must be cached.
pub(super) fn find_longest_cache_hit(
    lookup: &Lookup<'_>,
    attention_chunk_size: u32,
    hits: &mut [Vec<BlockId>],
) -> u32 {
    let block_size = lookup.block_size;
    let max_num_blocks = lookup.max_length / block_size;
    let chunk_start = lookup.max_length / attention_chunk_size * attention_chunk_size;
    let mut num_blocks = chunk_start / block_size;
    for &group_id in lookup.group_ids {
        hits[group_id as usize].resize(num_blocks as usize, NULL_BLOCK);
    }
    while num_blocks < max_num_blocks
        && lookup.full_block_hash(num_blocks).is_some_and(|hash| {
            lookup.pool.get_cached_block(hash, lookup.group_ids, |at, block| {
                hits[lookup.group_ids[at] as usize].push(block);
            })
        })
    {
        num_blocks += 1;
    }
    num_blocks * block_size
}
