//! How much of a request a store of blocks can give when the engine has several KV cache groups:
//! `_lookup_complete_chunks` and `_sliding_window_lookup` of vLLM's `OffloadingConnector`
//! (`distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py`).

use crate::engine::kv_cache::KvCacheSpec;

/// A KV cache group whose blocks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierGroup {
    /// Tokens of a block over all ranks.
    pub block_size: u32,
    pub reach: TierReach,
}

/// How much of what lies before the end of a hit a group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierReach {
    /// All of it.
    FullAttention,
    /// So many tokens.
    SlidingWindow(u32),
    /// A chunk of so many tokens: no layer reads from further back, wherever chunks begin.
    ChunkedLocalAttention(u32),
    /// The state at the end, which lies at the end of a block (`MambaSpec` in cache mode "align").
    MambaState,
}

impl TierGroup {
    /// Of a group of an engine, a block of which has so many tokens over all ranks.
    pub fn new(spec: &KvCacheSpec, block_size: u32) -> Self {
        let reach = match *spec {
            KvCacheSpec::FullAttention { .. } => TierReach::FullAttention,
            KvCacheSpec::SlidingWindow { sliding_window, .. } => TierReach::SlidingWindow(sliding_window),
            KvCacheSpec::ChunkedLocalAttention { attention_chunk_size, .. } => {
                TierReach::ChunkedLocalAttention(attention_chunk_size)
            }
            KvCacheSpec::Mamba { .. } => TierReach::MambaState,
        };
        Self { block_size, reach }
    }

    pub(super) fn is_mamba(&self) -> bool {
        self.reach == TierReach::MambaState
    }

    /// Blocks in a row that a hit needs, of all groups but full attention
    /// (`get_sliding_window_size_in_chunks`). A window that ends at `end` tokens needs one more if that lies
    /// inside of a block.
    fn window_blocks(&self, end: u32) -> Option<u32> {
        match self.reach {
            TierReach::FullAttention => None,
            TierReach::SlidingWindow(window) => {
                let padding = end.next_multiple_of(self.block_size) - end;
                let least = window.div_ceil(self.block_size);
                Some(least.max((window - 1 + padding).div_ceil(self.block_size)))
            }
            TierReach::ChunkedLocalAttention(chunk) => Some(chunk.div_ceil(self.block_size)),
            TierReach::MambaState => Some(1),
        }
    }
}

/// The order of lookups: full attention cuts the most, then the widest windows.
pub(super) fn lookup_order(groups: &[TierGroup]) -> Vec<usize> {
    let blocks = |group: &TierGroup| group.window_blocks(0);
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|&at| match blocks(&groups[at]) {
        None => (0, 0),
        Some(blocks) => (1, u32::MAX - blocks),
    });
    order
}

/// How many tokens after the first `num_computed_tokens` can be loaded, of a request of `num_tokens`.
///
/// `num_keys` is the number of blocks of a group that have a hash, `is_held` says whether the store
/// has a block of a group. A group shortens what the ones before it agreed on; then all are asked
/// again.
pub(super) fn longest_hit(
    groups: &[TierGroup],
    order: &[usize],
    num_tokens: u32,
    num_computed_tokens: u32,
    num_keys: impl Fn(usize) -> u32,
    is_held: impl Fn(usize, u32) -> bool,
) -> u32 {
    // The last token is computed for its logits. A full-attention hit may be cut by it afterwards, the
    // hit of a window may not.
    let has_windows = groups.iter().any(|group| group.reach != TierReach::FullAttention);
    let mut end = num_tokens - u32::from(has_windows);
    // A state is kept at the ends of blocks only (`_mamba_align_size`).
    if let Some(group) = groups.iter().find(|group| group.is_mamba()) {
        end -= end % group.block_size;
    }
    loop {
        let before = end;
        for &at in order {
            let group = &groups[at];
            let size = group.block_size;
            end = end.min(num_keys(at) * size);
            if end < num_computed_tokens + size {
                return 0;
            }
            let first = num_computed_tokens / size;
            let last = end.div_ceil(size).min(num_keys(at));
            let num_hits = match group.window_blocks(0).zip(group.window_blocks(end)) {
                None => (first..last).take_while(|&block| is_held(at, block)).count() as u32,
                Some((needed, needed_at_end)) => {
                    last_run(first..last, needed_at_end, needed, |block| is_held(at, block))
                }
            };
            end = end.min((first + num_hits) * size);
            if end < num_computed_tokens + size {
                return 0;
            }
        }
        if end == before {
            return end - num_computed_tokens;
        }
    }
}

/// From the right: the blocks up to the end of the last run of `needed` held ones; the run at the very
/// end needs `needed_at_end`. A shorter run counts when it begins at the first block.
fn last_run(
    blocks: std::ops::Range<u32>,
    needed_at_end: u32,
    needed: u32,
    is_held: impl Fn(u32) -> bool,
) -> u32 {
    let first = blocks.start;
    let (mut run, mut required) = (0, needed_at_end);
    for block in blocks.rev() {
        if is_held(block) {
            run += 1;
        } else {
            (run, required) = (0, needed);
        }
        if run == required {
            return block + run - first;
        }
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: TierGroup = TierGroup { block_size: 16, reach: TierReach::FullAttention };
    const WINDOW: TierGroup = TierGroup { block_size: 16, reach: TierReach::SlidingWindow(40) };
    const CHUNK: TierGroup = TierGroup { block_size: 16, reach: TierReach::ChunkedLocalAttention(40) };
    const MAMBA: TierGroup = TierGroup { block_size: 16, reach: TierReach::MambaState };

    /// Of a prompt of 161 tokens: ten blocks, of which each group holds some.
    fn hit(groups: &[TierGroup], num_computed_tokens: u32, held: &[&[u32]]) -> u32 {
        let order = lookup_order(groups);
        longest_hit(
            groups,
            &order,
            161,
            num_computed_tokens,
            |at| 160 / groups[at].block_size,
            |at, block| held[at].contains(&block),
        )
    }

    const ALL: &[u32] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

    #[test]
    fn full_attention_takes_what_follows_without_a_gap() {
        assert_eq!(hit(&[FULL], 0, &[ALL]), 160);
        assert_eq!(hit(&[FULL], 32, &[&[2, 3, 5, 6]]), 32);
        assert_eq!(hit(&[FULL], 32, &[&[0, 1, 3]]), 0);
    }

    #[test]
    fn a_window_takes_the_last_run_that_fills_it() {
        // 40 tokens reach over three blocks.
        assert_eq!(hit(&[WINDOW], 0, &[&[1, 2, 3, 5, 6, 7, 9]]), 128);
        assert_eq!(hit(&[WINDOW], 0, &[&[1, 2, 3, 6, 7, 9]]), 64);
        // A shorter run counts after what is computed already.
        assert_eq!(hit(&[WINDOW], 48, &[&[3, 4, 6, 7]]), 32);
        assert_eq!(hit(&[WINDOW], 0, &[&[6, 7]]), 0);
    }

    #[test]
    fn groups_agree_on_a_length_that_all_can_give() {
        assert_eq!(hit(&[FULL, WINDOW], 0, &[ALL, ALL]), 160);
        assert_eq!(hit(&[WINDOW, FULL], 0, &[ALL, &[0, 1, 2, 3, 4]]), 80);
        // The window holds blocks 2 to 4, and 7 to 9 where full attention has nothing.
        assert_eq!(hit(&[FULL, WINDOW], 0, &[&[0, 1, 2, 3, 4, 5], &[2, 3, 4, 7, 8, 9]]), 80);
        assert_eq!(hit(&[FULL, WINDOW], 0, &[&[0, 1, 2, 3], &[3, 4, 5]]), 0);
    }

    #[test]
    fn a_chunk_takes_as_many_blocks_as_it_can_reach_over() {
        assert_eq!(hit(&[CHUNK], 0, &[&[1, 2, 3, 5, 6, 7, 9]]), 128);
        assert_eq!(hit(&[FULL, CHUNK], 0, &[ALL, &[2, 3, 4, 8, 9]]), 80);
        assert_eq!(hit(&[FULL, CHUNK], 0, &[ALL, &[8, 9]]), 0);
    }

    #[test]
    fn a_mamba_group_takes_the_last_state_and_no_more() {
        assert_eq!(hit(&[FULL, MAMBA], 0, &[ALL, &[3, 6]]), 112);
        // The prefix ends before the state.
        assert_eq!(hit(&[FULL, MAMBA], 0, &[&[0, 1, 2, 3, 4], &[3, 6]]), 64);
        assert_eq!(hit(&[FULL, MAMBA], 64, &[ALL, &[3]]), 0);
        // States are at the ends of their own blocks: 160 tokens hold two of 64.
        let coarse = TierGroup { block_size: 64, ..MAMBA };
        assert_eq!(hit(&[FULL, coarse], 0, &[ALL, &[0, 1]]), 128);
    }

    #[test]
    fn blocks_of_two_sizes_meet_at_the_larger() {
        let coarse = TierGroup { block_size: 32, reach: TierReach::FullAttention };
        // Five blocks of 32, of which four; the window ends with the fourth, at block 7 of 16.
        assert_eq!(hit(&[coarse, WINDOW], 0, &[&[0, 1, 2, 3], ALL]), 128);
        // Here the end of the window, 112, lies inside of the fourth.
        assert_eq!(hit(&[coarse, WINDOW], 0, &[&[0, 1, 2, 3], &[4, 5, 6]]), 112);
    }
}
