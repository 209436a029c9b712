//! Ends prefill chunks where Mamba state must be cached (`Scheduler._mamba_block_aligned_split`).

use super::Scheduler;
use crate::engine::kv_cache::get_mamba_prefill_checkpoint_position;
use crate::engine::request::Request;

impl Scheduler {
    /// Cuts a chunk of `num_new_tokens` that begins at `start`, so that no state that a later
    /// request could use falls inside it. 0 when the request must wait for a larger budget.
    #[inline]
    pub(super) fn mamba_block_aligned_split(
        &self,
        request: &Request,
        num_new_tokens: u32,
        start: u32,
    ) -> u32 {
        if !self.has_mamba_layers {
            return num_new_tokens;
        }
        let prefill_end = request.prefill_end();
        if start >= prefill_end {
            return num_new_tokens;
        }
        let block_size = self.config.block_size;
        let drop_eagle_block = self.config.use_eagle_block_drop();
        let num_hash_lookahead_tokens = self.config.num_hash_lookahead_tokens();
        let checkpoint = |num_tokens, unit| {
            get_mamba_prefill_checkpoint_position(
                num_tokens,
                unit,
                drop_eagle_block,
                num_hash_lookahead_tokens,
            )
        };
        let last_cache_position = checkpoint(request.num_tokens(), block_size);
        let mut end = start + num_new_tokens;
        if end < prefill_end {
            let mut max_prefill_tokens =
                self.config.max_num_scheduled_tokens.unwrap_or(self.config.max_num_batched_tokens);
            if self.config.long_prefill_token_threshold > 0 {
                max_prefill_tokens = max_prefill_tokens.min(self.config.long_prefill_token_threshold);
            }
            let aligned_end = end / block_size * block_size;
            // A block that no chunk can hold is filled in parts.
            if aligned_end > start || block_size <= max_prefill_tokens {
                end = aligned_end;
            }
        }
        let next_block_boundary =
            if start.is_multiple_of(block_size) { 0 } else { (start / block_size + 1) * block_size };
        let partial_hits = self.hash_block_size < self.scheduler_block_size
            && self.kv_cache_manager.enable_partial_hash_hits();
        let tail_boundary =
            if partial_hits { checkpoint(request.num_prompt_tokens, self.hash_block_size) } else { 0 };
        let tail_stop = if last_cache_position < tail_boundary && tail_boundary < request.num_prompt_tokens {
            tail_boundary
        } else {
            0
        };
        // Where another request left a prefix that this group has not cached.
        let junction = request.shared_prefix_boundary;
        let junction_stop = if start < junction && junction < end {
            start + (junction - start) / block_size * block_size
        } else {
            0
        };
        let stops = [next_block_boundary, last_cache_position, tail_stop, junction_stop];
        let end = stops.into_iter().filter(|&stop| start < stop && stop < end).min().unwrap_or(end);
        end.saturating_sub(start)
    }
}
