//! How requests leave the engine (`Scheduler.finish_requests`, `_free_request`).

use super::{FinishedRequest, Scheduler};
use crate::engine::kv_cache::BlockId;
use crate::engine::request::RequestStatus;
use crate::engine::request_table::RequestSlot;

impl Scheduler {
    /// Ends requests from outside, such as an abort when the client has gone. Ids that are not in
    /// the engine, or have ended already, are passed over.
    pub fn finish_requests(
        &mut self,
        ids: &[u64],
        status: RequestStatus,
        finished: &mut Vec<FinishedRequest>,
    ) {
        debug_assert!(status.is_finished());
        // Two passes: first all leave the queues, then blocks are freed.
        let mut leaving = Vec::with_capacity(ids.len());
        for &id in ids {
            let Some(slot) = self.requests.find(id) else { continue };
            let request_status = self.requests[slot].status;
            if request_status.is_finished() || leaving.contains(&slot) {
                continue;
            }
            leaving.push(slot);
            if request_status == RequestStatus::Running {
                self.running.retain(|other| other.slot != slot);
                self.settle(slot);
            } else {
                self.remove_from_waiting(slot);
            }
        }
        for slot in leaving {
            let request = &mut self.requests[slot];
            let id = request.id;
            let was_loading = request.status == RequestStatus::WaitingForRemoteKvs;
            request.status = status;
            // A load in progress still writes the blocks; its end frees them.
            let delay_free_blocks = was_loading && !self.finished_recving_kv_req_ids.contains(&id);
            if was_loading {
                self.finished_recving_kv_req_ids.retain(|&other| other != id);
                self.failed_recving_kv_req_ids.retain(|&other| other != id);
            }
            self.free_request(slot, delay_free_blocks, finished);
        }
    }

    pub(super) fn remove_from_waiting(&mut self, slot: RequestSlot) {
        self.undefer(slot);
        let request = &self.requests[slot];
        self.waiting.remove_request(slot, request);
        self.kv_holding_waiting.remove_request(slot, request);
    }

    /// Tells the connector and gives the blocks back, unless somebody still reads or writes them.
    pub(super) fn free_request(
        &mut self,
        slot: RequestSlot,
        delay_free_blocks: bool,
        finished: &mut Vec<FinishedRequest>,
    ) {
        self.discard_inflight_prefill(slot);
        let request = &self.requests[slot];
        finished.push(FinishedRequest {
            slot,
            id: request.id,
            status: request.status,
            num_prompt_tokens: request.num_prompt_tokens,
            num_tokens: request.num_tokens(),
            num_computed_tokens: request.num_computed_tokens,
            num_preemptions: request.num_preemptions,
            block_hashes: if self.keep_finished_hashes { request.block_hashes.clone() } else { Vec::new() },
        });
        self.finished_req_ids.push(request.id);
        let connector_delay = self.connector_finished(slot);
        if !delay_free_blocks && !connector_delay {
            self.free_blocks(slot);
        }
    }

    pub(super) fn free_blocks(&mut self, slot: RequestSlot) {
        debug_assert!(self.requests[slot].status.is_finished());
        self.free_request_blocks(slot);
        self.requests.remove(slot);
    }

    /// True if the connector keeps the blocks for a while (`_connector_finished`).
    fn connector_finished(&mut self, slot: RequestSlot) -> bool {
        let Some(connector) = &mut self.connector else { return false };
        let request = &self.requests[slot];
        let processed = request.num_computed_tokens.saturating_sub(request.num_in_flight_tokens);
        self.kv_cache_manager.remove_skipped_blocks(slot, processed);
        let manager = &self.kv_cache_manager;
        let block_ids: Vec<&[BlockId]> = self
            .config
            .kv_cache_groups
            .iter()
            .enumerate()
            .map(|(group, spec)| {
                let blocks = manager.get_blocks(slot, group);
                if spec.is_mamba() {
                    return blocks;
                }
                let num_valid = request.num_computed_tokens.div_ceil(spec.block_size()) as usize;
                &blocks[..num_valid.min(blocks.len())]
            })
            .collect();
        connector.request_finished(request, &block_ids)
    }
}
