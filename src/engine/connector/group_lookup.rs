//! How much of a request a store of blocks can give when the engine has several KV cache groups:
//! `_lookup_complete_chunks` and `_sliding_window_lookup` of vLLM's `OffloadingConnector`
//! (`distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py`).

/// A KV cache group whose blocks are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierGroup {
    /// Tokens of a block over all ranks.
    pub block_size: u32,
    /// `None` is full attention.
    pub sliding_window: Option<u32>,
}

impl TierGroup {
    /// Blocks in a row that a hit of a window needs; at `end` tokens, one more if that lies inside
    /// of a block.
    fn window_blocks(&self, sliding_window: u32, end: u32) -> u32 {
        let padding = end.next_multiple_of(self.block_size) - end;
        let least = sliding_window.div_ceil(self.block_size);
        least.max((sliding_window - 1 + padding).div_ceil(self.block_size))
    }
}

/// The order of lookups: full attention cuts the most, then the widest windows.
pub(super) fn lookup_order(groups: &[TierGroup]) -> Vec<usize> {
    let blocks = |group: &TierGroup| group.sliding_window.map(|window| window.div_ceil(group.block_size));
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
    let has_windows = groups.iter().any(|group| group.sliding_window.is_some());
    let mut end = num_tokens - u32::from(has_windows);
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
            let num_hits = match group.sliding_window {
                None => (first..last).take_while(|&block| is_held(at, block)).count() as u32,
                Some(window) => last_run(
                    first..last,
                    group.window_blocks(window, end),
                    group.window_blocks(window, 0),
                    |block| is_held(at, block),
                ),
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

    const FULL: TierGroup = TierGroup { block_size: 16, sliding_window: None };
    const WINDOW: TierGroup = TierGroup { block_size: 16, sliding_window: Some(40) };

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
    fn blocks_of_two_sizes_meet_at_the_larger() {
        let coarse = TierGroup { block_size: 32, sliding_window: None };
        // Five blocks of 32, of which four; the window ends with the fourth, at block 7 of 16.
        assert_eq!(hit(&[coarse, WINDOW], 0, &[&[0, 1, 2, 3], ALL]), 128);
        // Here the end of the window, 112, lies inside of the fourth.
        assert_eq!(hit(&[coarse, WINDOW], 0, &[&[0, 1, 2, 3], &[4, 5, 6]]), 112);
    }
}
