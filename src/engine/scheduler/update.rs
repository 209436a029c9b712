//! What a step brought: new tokens, stops, freed blocks, stats (`Scheduler.update_from_output`).

use super::{EngineCoreOutputs, ModelRunnerOutput, Scheduler, SchedulerOutput, SpecDecodingStats};
use crate::engine::connector::KvConnectorOutput;
use crate::engine::request::{Request, RequestStatus};
use crate::engine::request_table::RequestSlot;

impl Scheduler {
    /// Processes the output of the oldest step that has not been processed, into `outputs`.
    pub fn update_from_output(
        &mut self,
        scheduled: &SchedulerOutput,
        sampled: &ModelRunnerOutput,
        kv_connector_output: Option<&KvConnectorOutput>,
        outputs: &mut EngineCoreOutputs,
    ) {
        outputs.clear();
        if scheduled.total_num_scheduled_tokens > 0 {
            self.processed_step_seq += 1;
            self.drain_deferred_frees();
        }
        let failed_loads = match kv_connector_output {
            Some(output) if !output.is_empty() => self.handle_failed_loads(output, scheduled),
            _ => Vec::new(),
        };
        for (at, entry) in scheduled.scheduled.iter().enumerate() {
            let Some(request) = self.requests.get_mut(entry.slot, entry.id) else { continue };
            let is_stale = request.num_stale_output_tokens > 0;
            if !take_from_flight(request, entry.num_tokens) || failed_loads.contains(&entry.id) {
                continue;
            }
            let tokens = sampled.tokens(at);
            if entry.num_draft_tokens > 0 && !tokens.is_empty() {
                let num_accepted = tokens.len() as u32 - 1;
                reject_drafts(request, entry.num_draft_tokens - num_accepted, is_stale);
                let stats = outputs.spec_decoding_stats.get_or_insert(SpecDecodingStats::default());
                stats.num_drafts += 1;
                stats.num_draft_tokens += u64::from(entry.num_draft_tokens);
                stats.num_accepted_tokens += u64::from(num_accepted);
            }
            if !tokens.is_empty() {
                self.take_tokens(entry.slot, tokens, is_stale, outputs);
            }
        }
        self.take_owed_tokens(outputs);
        if !self.stopped_running.is_empty() {
            self.running.retain(|running| !self.stopped_running.contains(&running.slot));
            self.stopped_running.clear();
        }
        if !failed_loads.is_empty() && !self.recompute_kv_load_failures() {
            let first = outputs.finished.len();
            self.finish_requests(&failed_loads, RequestStatus::FinishedError, &mut outputs.finished);
            for at in first..outputs.finished.len() {
                let (slot, id) = (outputs.finished[at].slot, outputs.finished[at].id);
                outputs.push(slot, id, &[], RequestStatus::FinishedError.finish_reason(), None);
            }
        }
        if let Some(output) = kv_connector_output {
            self.update_from_kv_xfer_finished(output);
        }
        outputs.events = self.kv_cache_manager.take_events();
        if let Some(connector) = &mut self.connector {
            outputs.events.append(&mut connector.take_events());
        }
        outputs.prefix_cache_stats = self.kv_cache_manager.make_prefix_cache_stats();
        outputs.connector_prefix_cache_stats = std::mem::take(&mut self.connector_prefix_cache_stats);
        self.debug_check_invariants();
    }

    /// Gives a request its new tokens, up to one that stops it.
    pub(super) fn take_tokens(
        &mut self,
        slot: RequestSlot,
        tokens: &[u64],
        is_stale: bool,
        outputs: &mut EngineCoreOutputs,
    ) {
        let request = &mut self.requests[slot];
        let status_before_stop = request.status;
        let had_placeholders = request.num_output_placeholders > 0;
        let mut num_kept = tokens.len();
        let mut stopped = false;
        for (index, &token) in tokens.iter().enumerate() {
            request.append_output_token_id(token, self.hasher.as_mut());
            if let Some(status) = check_stop(request, token, self.config.max_model_len) {
                request.status = status;
                stopped = true;
                num_kept = index + 1;
                if !is_stale {
                    // All new tokens but the last have been computed; keep that true.
                    let num_dropped = (tokens.len() - num_kept) as u32;
                    request.num_computed_tokens = request.num_computed_tokens.saturating_sub(num_dropped);
                }
                break;
            }
        }
        if !is_stale && had_placeholders {
            // Tokens after the stop had their placeholders too.
            request.num_output_placeholders -= tokens.len() as u32;
        }
        if !is_stale
            && status_before_stop == RequestStatus::Running
            && (had_placeholders || self.config.speculative.is_some())
        {
            // Now the blocks that placeholders or drafts filled can be hashed. A failed load may have cut the computed tokens while a step is in flight.
            let num_processed = request.num_computed_tokens.saturating_sub(request.num_in_flight_tokens);
            self.kv_cache_manager.cache_blocks(request, slot, num_processed);
        }
        let prefill_stats = request.prefill_stats.take().map(|mut stats| {
            let cached = self.kv_cache_manager.estimate_cached_tokens(slot).min(stats.num_prompt_tokens);
            let hits = stats.num_local_cached_tokens + stats.num_external_cached_tokens;
            stats.num_cache_creation_tokens = cached.saturating_sub(hits);
            stats
        });
        outputs.push(slot, request.id, &tokens[..num_kept], request.status.finish_reason(), prefill_stats);
        if stopped {
            if status_before_stop == RequestStatus::Running {
                self.stopped_running.push(slot);
            } else {
                self.remove_from_waiting(slot);
            }
            self.free_request(slot, false, &mut outputs.finished);
        }
    }
}

/// Counts tokens as back from the GPU; false if what was sampled after them is not wanted any more.
pub(super) fn take_from_flight(request: &mut Request, num_tokens: u32) -> bool {
    request.num_in_flight_tokens -= num_tokens;
    let is_stale = request.num_stale_output_tokens > 0;
    if is_stale {
        request.num_stale_output_tokens -= num_tokens;
    }
    !(is_stale && request.drop_stale_output || request.status.is_finished())
}

/// Takes rejected drafts back from the counts that took them as computed.
fn reject_drafts(request: &mut Request, num_rejected: u32, is_stale: bool) {
    if is_stale {
        // Counted before a preemption has set the counts to 0.
        return;
    }
    // A failed load may have cut the counts since, so they can be smaller.
    request.num_computed_tokens = request.num_computed_tokens.saturating_sub(num_rejected);
    request.num_output_placeholders = request.num_output_placeholders.saturating_sub(num_rejected);
}

/// The status with which the request ends at its last token, if it does (`check_stop` in
/// `v1/core/sched/utils.py`).
fn check_stop(request: &Request, last_token: u64, max_model_len: u32) -> Option<RequestStatus> {
    if request.stop_token_ids.contains(&last_token) {
        return Some(RequestStatus::FinishedStopped);
    }
    let at_limit = request.num_tokens() >= max_model_len || request.num_output_tokens() >= request.max_tokens;
    at_limit.then_some(RequestStatus::FinishedLengthCapped)
}
