//! The scheduler's dealings with a KV connector: loads that start, end and fail.

use super::waiting::Computed;
use super::{Scheduler, SchedulerOutput};
use crate::engine::connector::KvConnectorOutput;
use crate::engine::kv_cache::BlockId;
use crate::engine::python_set::in_python_set_order;
use crate::engine::request::RequestStatus;
use crate::engine::request_table::RequestSlot;

/// Requests hit by blocks that did not load, and what must not be hit any more.
#[derive(Default)]
struct InvalidBlocks {
    affected_ids: Vec<u64>,
    blocks_to_evict: Vec<BlockId>,
}

impl Scheduler {
    /// An admitted request has its blocks: the connector may load into them.
    pub(super) fn tell_connector(&mut self, slot: RequestSlot, computed: &Computed) {
        let Some(connector) = &mut self.connector else { return };
        let request = &self.requests[slot];
        let manager = &self.kv_cache_manager;
        let block_ids: Vec<&[BlockId]> =
            (0..manager.num_groups()).map(|group| manager.get_blocks(slot, group)).collect();
        connector.update_state_after_alloc(request, &block_ids, computed.num_external);
        if computed.connector_queries > 0 {
            self.connector_prefix_cache_stats.record(
                computed.connector_queries,
                computed.num_external,
                request.num_preemptions > 0,
            );
        }
    }

    /// Blocks that requests in flight still need to hold their whole sequences.
    pub(super) fn inflight_prefill_reserved_blocks(&self) -> i64 {
        self.inflight_prefills.iter().map(|&slot| self.request_remaining_blocks(slot)).sum()
    }

    fn request_remaining_blocks(&self, slot: RequestSlot) -> i64 {
        let request = &self.requests[slot];
        let full_num_tokens = request.num_tokens().min(self.config.max_model_len);
        let num_spec_tokens = self.config.num_speculative_tokens();
        let num_step_tokens =
            if num_spec_tokens > 0 { 1 + num_spec_tokens + self.config.num_lookahead_tokens() } else { 0 };
        self.kv_cache_manager.get_num_blocks_to_allocate(
            request,
            slot,
            full_num_tokens + num_step_tokens,
            full_num_tokens,
        )
    }

    /// Whether the request at the head of a queue can be looked at: a load into it has ended
    /// (`_handle_blocked_waiting_request`).
    pub(super) fn handle_blocked_waiting_request(&mut self, slot: RequestSlot) -> bool {
        let request = &self.requests[slot];
        if request.status != RequestStatus::WaitingForRemoteKvs {
            return true;
        }
        let id = request.id;
        if !self.finished_recving_kv_req_ids.contains(&id) {
            return false;
        }
        self.update_waiting_for_remote_kv(slot);
        self.finished_recving_kv_req_ids.retain(|&other| other != id);
        let request = &mut self.requests[slot];
        request.status =
            if request.num_preemptions > 0 { RequestStatus::Preempted } else { RequestStatus::Waiting };
        true
    }

    /// Hashes what has been loaded.
    fn update_waiting_for_remote_kv(&mut self, slot: RequestSlot) {
        let request = &mut self.requests[slot];
        let load_failed = self.failed_recving_kv_req_ids.contains(&request.id);
        if load_failed && request.num_computed_tokens == 0 {
            // Nothing is left of it; the next lookup may find other blocks.
            self.kv_cache_manager.free(slot);
        } else {
            self.kv_cache_manager.cache_blocks(request, slot, request.num_computed_tokens);
        }
        self.failed_recving_kv_req_ids.retain(|&id| id != request.id);
        if request.num_computed_tokens == request.num_tokens() {
            // The last token must be computed to sample the next.
            request.num_computed_tokens -= 1;
        }
    }

    /// Blocks that are kept for somebody who reads them are given back, if the request has ended here.
    pub fn stop_sending(&mut self, id: u64) {
        if let Some(slot) = self.requests.find(id).filter(|&slot| self.requests[slot].status.is_finished()) {
            self.free_blocks(slot);
        }
    }

    pub(super) fn update_from_kv_xfer_finished(&mut self, output: &KvConnectorOutput) {
        for &id in &output.finished_recving {
            let Some(slot) = self.requests.find(id) else { continue };
            if self.requests[slot].status == RequestStatus::WaitingForRemoteKvs {
                self.finished_recving_kv_req_ids.push(id);
            } else {
                // It ended while it was loading.
                self.free_blocks(slot);
            }
        }
        for &id in &output.finished_sending {
            if let Some(slot) = self.requests.find(id) {
                self.free_blocks(slot);
            }
        }
    }

    /// Takes failed loads back. Returns the ids whose output of this step must be skipped, sorted;
    /// with the policy "fail" they are to be finished.
    pub(super) fn handle_failed_loads(
        &mut self,
        output: &KvConnectorOutput,
        scheduled: &SchedulerOutput,
    ) -> Vec<u64> {
        let mut failed = Vec::new();
        for &id in &output.failed_recving {
            let Some(slot) = self.requests.find(id) else { continue };
            if self.requests[slot].status != RequestStatus::WaitingForRemoteKvs {
                continue;
            }
            if self.recompute_kv_load_failures() {
                self.requests[slot].num_computed_tokens = 0;
                self.failed_recving_kv_req_ids.push(id);
            } else {
                failed.push(id);
            }
        }
        if !output.invalid_block_ids.is_empty() {
            failed.extend(self.handle_invalid_blocks(&output.invalid_block_ids, scheduled));
        }
        failed.sort_unstable();
        failed.dedup();
        failed
    }

    fn handle_invalid_blocks(&mut self, invalid: &[BlockId], scheduled: &SchedulerOutput) -> Vec<u64> {
        let loading: Vec<RequestSlot> = self
            .kv_holding_waiting
            .iter()
            .filter(|&slot| self.requests[slot].status == RequestStatus::WaitingForRemoteKvs)
            .collect();
        let running: Vec<RequestSlot> = self.running.iter().map(|running| running.slot).collect();
        // Blocks of a load that has not ended are not hashed yet.
        let async_loads = self.update_requests_with_invalid_blocks(&loading, invalid, scheduled, false);
        let sync_loads = self.update_requests_with_invalid_blocks(&running, invalid, scheduled, true);
        if self.recompute_kv_load_failures() {
            self.failed_recving_kv_req_ids.extend(async_loads.affected_ids);
            return sync_loads.affected_ids;
        }
        let blocks = in_python_set_order(sync_loads.blocks_to_evict.iter().map(|block| block.0));
        self.kv_cache_manager.evict_blocks(blocks.into_iter().map(BlockId));
        [async_loads.affected_ids, sync_loads.affected_ids].concat()
    }

    /// Cuts the computed tokens of requests at their first block that did not load.
    fn update_requests_with_invalid_blocks(
        &mut self,
        slots: &[RequestSlot],
        invalid: &[BlockId],
        scheduled: &SchedulerOutput,
        evict_blocks: bool,
    ) -> InvalidBlocks {
        let mut result = InvalidBlocks::default();
        // A block that several requests share is computed again by the first of them only.
        let mut marked: Vec<BlockId> = Vec::new();
        for &slot in slots {
            let request = &mut self.requests[slot];
            let in_step =
                scheduled.scheduled.iter().find(|entry| entry.slot == slot && entry.id == request.id);
            let num_computed_tokens =
                request.num_computed_tokens.saturating_sub(in_step.map_or(0, |entry| entry.num_tokens));
            let num_computed_blocks = num_computed_tokens.div_ceil(self.scheduler_block_size) as usize;
            let blocks = self.kv_cache_manager.get_blocks(slot, 0);
            let mut is_affected = false;
            let mut has_marked = false;
            for (index, block) in blocks.iter().enumerate().take(num_computed_blocks) {
                if !invalid.contains(block) {
                    continue;
                }
                is_affected = true;
                if marked.contains(block) {
                    continue;
                }
                marked.push(*block);
                if has_marked {
                    continue;
                }
                has_marked = true;
                request.num_computed_tokens = index as u32 * self.scheduler_block_size;
                if evict_blocks {
                    result.blocks_to_evict.extend_from_slice(&blocks[index..]);
                }
            }
            if is_affected {
                if !has_marked {
                    // Others compute its blocks; its own tokens of this step are lost.
                    request.num_computed_tokens = num_computed_tokens;
                }
                result.affected_ids.push(request.id);
            }
        }
        result
    }
}
