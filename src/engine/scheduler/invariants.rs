//! What is always true of the scheduler between two calls. A debug build checks it after each
//! `schedule` and `update_from_output`.

use super::{Running, Scheduler, holds_kv_blocks};
use crate::engine::request::{Request, RequestStatus};
use crate::engine::request_table::RequestSlot;

/// Work of a check, in blocks and requests, that every call can bear. A check looks at all of them,
/// so larger engines are checked in one call of several: the time stays in proportion to the
/// number of calls, and small engines, which tests use, are checked in every one. What is broken
/// stays broken, so a later check finds it too.
const CHECK_WORK_PER_CALL: usize = 1024;

impl Scheduler {
    /// [`Self::check_invariants`] in debug builds, less often the larger the engine.
    #[inline]
    pub(super) fn debug_check_invariants(&mut self) {
        if cfg!(debug_assertions) {
            if self.calls_until_check > 0 {
                self.calls_until_check -= 1;
                return;
            }
            let pool = self.kv_cache_manager.block_pool();
            let work = pool.num_gpu_blocks() as usize + self.requests.len();
            self.calls_until_check = work / CHECK_WORK_PER_CALL;
            self.check_invariants();
        }
    }

    /// Checks blocks, queues and token counts against each other. Linear in their number.
    ///
    /// # Panics
    /// With the block or request and the rule when one is broken.
    pub fn check_invariants(&self) {
        self.check_queues();
        for (slot, request) in self.requests.iter() {
            self.check_request(slot, request);
        }
        self.kv_cache_manager.block_pool().check_invariants(&self.num_block_holders());
    }

    /// By block, how many tables name it, and how many frees that wait for steps in flight.
    fn num_block_holders(&self) -> Vec<u32> {
        let manager = &self.kv_cache_manager;
        let mut holders = vec![0; manager.block_pool().num_gpu_blocks() as usize];
        for (slot, _) in self.requests.iter() {
            for group in 0..manager.num_groups() {
                for block in manager.get_blocks(slot, group) {
                    holders[block.index()] += 1;
                }
            }
        }
        for block in self.deferred_frees.iter().flat_map(|(_, blocks)| blocks) {
            holders[block.index()] += 1;
        }
        holders
    }

    /// A request is in the one queue that its status names, once.
    fn check_queues(&self) {
        let max_num_seqs = self.config.max_num_seqs as usize;
        assert!(self.running.len() <= max_num_seqs, "{} run, at most {max_num_seqs}", self.running.len());
        assert!(self.skipped_waiting.is_empty() && self.skipped_kv_holding.is_empty(), "left out of a queue");
        let mut times_queued = vec![0; self.requests.num_slots()];
        let mut num_deferred = 0;
        for &Running { slot, .. } in &self.running {
            times_queued[slot.index()] += 1;
            let request = &self.requests[slot];
            assert_eq!(request.status, RequestStatus::Running, "status of running request {}", request.id);
        }
        for slot in self.waiting.iter().chain(self.kv_holding_waiting.iter()) {
            times_queued[slot.index()] += 1;
            let request = &self.requests[slot];
            let id = request.id;
            assert!(!request.status.is_finished(), "request {id} waits and has ended");
            assert_ne!(request.status, RequestStatus::Running, "status of waiting request {id}");
            num_deferred += u32::from(request.is_deferred);
        }
        assert_eq!(num_deferred, self.num_deferred, "waiting requests that were skipped");
        let mut num_inflight_prefills = 0;
        for (slot, request) in self.requests.iter() {
            let id = request.id;
            let expected = i32::from(!request.status.is_finished());
            assert_eq!(times_queued[slot.index()], expected, "queues of request {id}, {:?}", request.status);
            num_inflight_prefills += usize::from(request.is_inflight_prefill);
        }
        assert_eq!(num_inflight_prefills, self.inflight_prefills.len(), "prefills in flight");
        for &slot in &self.inflight_prefills {
            let request = &self.requests[slot];
            assert!(
                request.is_inflight_prefill,
                "request {} is not marked as a prefill in flight",
                request.id
            );
        }
    }

    fn check_request(&self, slot: RequestSlot, request: &Request) {
        let id = request.id;
        let computed = request.num_computed_tokens;
        assert!(request.num_stale_output_tokens <= request.num_in_flight_tokens, "stale tokens of {id}");
        if request.status.is_finished() {
            return;
        }
        // Drafts of a step in flight count as computed until they are rejected.
        let in_flight = request.num_in_flight_tokens > 0;
        let drafts = if in_flight { self.config.num_speculative_tokens() } else { request.num_spec_tokens };
        let placeholders = request.num_output_placeholders;
        let known = request.num_tokens();
        assert!(
            computed <= known + placeholders + drafts,
            "request {id} has computed {computed} of {known} tokens, {placeholders} placeholders, {drafts} drafts"
        );
        assert!(computed <= self.config.max_model_len, "request {id} has computed {computed} tokens");
        if !holds_kv_blocks(request) {
            return;
        }
        for (group, block_size) in self.kv_cache_manager.group_block_sizes().enumerate() {
            let num_blocks = self.kv_cache_manager.get_blocks(slot, group).len();
            assert!(
                num_blocks as u64 * u64::from(block_size) >= u64::from(computed),
                "request {id} has {num_blocks} blocks of {block_size} in group {group} for {computed} tokens"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::scheduler::SchedulerOutput;
    use crate::engine::{EngineConfig, NewRequest};
    use crate::prompt::TokenRuns;

    /// One request runs, one waits.
    fn scheduler() -> Scheduler {
        let config =
            EngineConfig { num_gpu_blocks: 10, max_model_len: 100, max_num_seqs: 1, ..Default::default() };
        let mut scheduler = Scheduler::new(config, None, None).unwrap();
        for id in 0..2 {
            let prompt_token_ids = TokenRuns::from_run(0, 20);
            let request = NewRequest { id, prompt_token_ids, max_tokens: 5, ..NewRequest::default() };
            scheduler.add_request(request).unwrap();
        }
        scheduler.schedule(&mut SchedulerOutput::default());
        scheduler
    }

    #[test]
    fn a_scheduler_in_order_passes() {
        scheduler().check_invariants();
    }

    #[test]
    #[should_panic = "2 run, at most 1"]
    fn a_request_too_many_is_found() {
        let mut scheduler = scheduler();
        scheduler.running.push(Running::listed(RequestSlot(1)));
        scheduler.check_invariants();
    }

    #[test]
    #[should_panic = "queues of request 1"]
    fn a_request_in_two_queues_is_found() {
        let mut scheduler = scheduler();
        scheduler.kv_holding_waiting.add_request(RequestSlot(1), &scheduler.requests[RequestSlot(1)]);
        scheduler.check_invariants();
    }

    #[test]
    #[should_panic = "request 0 has computed 22 of 20 tokens, 1 placeholders, 0 drafts"]
    fn a_token_too_many_is_found() {
        let mut scheduler = scheduler();
        scheduler.requests[RequestSlot(0)].num_computed_tokens += 2;
        scheduler.check_invariants();
    }

    #[test]
    #[should_panic = "ref_cnt of BlockId(1)"]
    fn a_block_without_a_holder_is_found() {
        let mut scheduler = scheduler();
        scheduler.kv_cache_manager.pop_blocks_for_free(RequestSlot(0));
        scheduler.requests[RequestSlot(0)].num_computed_tokens = 0;
        scheduler.check_invariants();
    }
}
