//! Preemption, and how blocks go back to the pool while steps are in flight.

use super::Scheduler;
use crate::engine::kv_cache::{BlockId, JournalEntry};
use crate::engine::request::RequestStatus;
use crate::engine::request_table::RequestSlot;

impl Scheduler {
    /// Puts a request that has left `running` back to the front of the queue; it will compute all
    /// its tokens again, less what is still cached then.
    ///
    /// Its output in flight is delivered when it comes back, or dropped with `drop_stale_output`.
    pub(super) fn preempt_request(&mut self, slot: RequestSlot, drop_stale_output: bool) {
        debug_assert_eq!(self.requests[slot].status, RequestStatus::Running);
        self.note(JournalEntry::Preempt { request: self.requests[slot].id });
        self.free_request_blocks(slot);
        self.discard_inflight_prefill(slot);
        let request = &mut self.requests[slot];
        request.status = RequestStatus::Preempted;
        request.num_computed_tokens = 0;
        request.num_spec_tokens = 0;
        // Positions of output that was dropped before have been sampled again already.
        request.drop_stale_output =
            drop_stale_output || (request.drop_stale_output && request.num_stale_output_tokens > 0);
        request.num_stale_output_tokens = request.num_in_flight_tokens;
        request.num_output_placeholders = 0;
        request.num_preemptions += 1;
        self.waiting.prepend_request(slot, &self.requests[slot]);
    }

    fn note(&mut self, entry: JournalEntry) {
        self.kv_cache_manager.block_pool_mut().note(entry);
    }

    pub(super) fn discard_inflight_prefill(&mut self, slot: RequestSlot) {
        if std::mem::take(&mut self.requests[slot].is_inflight_prefill) {
            self.inflight_prefills.retain(|&other| other != slot);
        }
    }

    /// No step in flight writes the request's blocks.
    pub(super) fn request_blocks_can_be_freed(&self, slot: RequestSlot) -> bool {
        !self.defer_block_free || self.requests[slot].last_sched_seq <= self.processed_step_seq
    }

    pub(super) fn free_request_blocks(&mut self, slot: RequestSlot) {
        self.note(JournalEntry::Free { request: self.requests[slot].id });
        if self.request_blocks_can_be_freed(slot) {
            self.kv_cache_manager.free(slot);
            return;
        }
        let blocks = self.kv_cache_manager.pop_blocks_for_free(slot);
        if !blocks.is_empty() {
            self.deferred_frees.push_back((self.sched_step_seq, blocks));
        }
    }

    /// Releases the ends of copies that the step being planned makes.
    pub(super) fn free_cow_retained_blocks(&mut self, copies: &[(BlockId, BlockId)]) {
        if copies.is_empty() {
            return;
        }
        // The last first: what is popped and freed together goes back from the end.
        let blocks: Vec<BlockId> = copies.iter().rev().flat_map(|&(source, copy)| [copy, source]).collect();
        let fence = self.sched_step_seq + 1;
        if self.defer_block_free && fence > self.processed_step_seq {
            self.deferred_frees.push_back((fence, blocks));
        } else {
            self.kv_cache_manager.free_popped_blocks(blocks);
        }
    }

    /// Frees what waited for the steps that have been processed by now. Fences rise almost always;
    /// what stands behind a higher one is freed later.
    pub(super) fn drain_deferred_frees(&mut self) {
        while let Some(&(fence, _)) = self.deferred_frees.front()
            && fence <= self.processed_step_seq
            && let Some((_, blocks)) = self.deferred_frees.pop_front()
        {
            self.kv_cache_manager.free_popped_blocks(blocks);
        }
    }
}
