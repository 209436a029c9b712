//! Sliding window attention (`SlidingWindowManager`): a token reads the last `sliding_window`
//! tokens, itself included.

use super::Lookup;
use crate::engine::kv_cache::NULL_BLOCK;
use crate::engine::kv_cache::block::BlockId;
use crate::engine::kv_cache::block_pool::BlockMask;

/// Blocks in a row that hold the window before the next token, and one more that EAGLE drops.
fn contiguous_blocks_for_hit(sliding_window: u32, block_size: u32, use_eagle: bool) -> u32 {
    (sliding_window - 1).div_ceil(block_size) + u32::from(use_eagle)
}

/// From the right: the last run of blocks that fills a window. A shorter run counts when it begins
/// at the first block.
pub(super) fn find_longest_cache_hit(
    lookup: &Lookup<'_>,
    sliding_window: u32,
    hits: &mut [Vec<BlockId>],
) -> u32 {
    let (block_size, alignment) = (lookup.block_size, lookup.alignment_tokens);
    let needed = contiguous_blocks_for_hit(sliding_window, block_size, lookup.drop_eagle_block);
    let max_num_blocks = lookup.max_length / block_size;
    for &group_id in lookup.group_ids {
        hits[group_id as usize].resize(max_num_blocks as usize, NULL_BLOCK);
    }
    let is_aligned = |num_blocks: u32| (num_blocks * block_size).is_multiple_of(alignment);
    let mut num_contiguous_blocks = 0;
    let mut num_blocks = None;
    for index in (0..max_num_blocks).rev() {
        let hit = lookup.full_block_hash(index).is_some_and(|hash| {
            // A run may only end where the groups can agree.
            let ends_here = num_contiguous_blocks == 0;
            let end = if lookup.drop_eagle_block { index } else { index + 1 };
            let keep = !ends_here || is_aligned(end);
            lookup.pool.get_cached_block(hash, lookup.group_ids, |at, block| {
                if keep {
                    hits[lookup.group_ids[at] as usize][index as usize] = block;
                }
            }) && {
                num_contiguous_blocks += u32::from(keep);
                true
            }
        });
        if !hit {
            num_contiguous_blocks = 0;
        } else if num_contiguous_blocks > 0 && num_contiguous_blocks >= needed {
            num_blocks = Some(index + num_contiguous_blocks);
            break;
        }
    }
    let found = num_blocks.is_some();
    let mut num_blocks = num_blocks.unwrap_or(num_contiguous_blocks);
    let round_down = |mut blocks: u32| {
        while !is_aligned(blocks) {
            blocks -= 1;
        }
        blocks
    };
    if !found {
        num_blocks = round_down(num_blocks);
    }
    if lookup.drop_eagle_block && num_blocks > 0 {
        // Dropping a block may leave the boundary that the groups agree on.
        num_blocks = round_down(num_blocks - 1);
    }
    for &group_id in lookup.group_ids {
        hits[group_id as usize].truncate(num_blocks as usize);
    }
    num_blocks * block_size
}

/// Only the window before each boundary at which all groups can agree serves a hit.
pub(super) fn reachable_block_mask(
    sliding_window: u32,
    block_size: u32,
    alignment_tokens: u32,
    use_eagle: bool,
) -> BlockMask {
    if !alignment_tokens.is_multiple_of(block_size) {
        return BlockMask::All;
    }
    let need = contiguous_blocks_for_hit(sliding_window, block_size, use_eagle);
    let per_segment = alignment_tokens / block_size;
    if need >= per_segment {
        return BlockMask::All;
    }
    // EAGLE looks one block past the boundary.
    BlockMask::SegmentTails { per_segment, need, shift: u32::from(use_eagle) }
}
