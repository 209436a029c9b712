//! The second part of `schedule`: admission of waiting requests, with their hits in the prefix
//! cache and in the connector's store.

use super::output::StepShare;
use super::{Pass, RequestQueue, Running, ScheduledKind, Scheduler, SchedulerOutput, holds_kv_blocks};
use crate::engine::connector::ExternalMatch;
use crate::engine::kv_cache::{AllocateSlots, PrefixCacheHit};
use crate::engine::request::RequestStatus;
use crate::engine::request_table::RequestSlot;

/// What the request at the head of the queue has computed already. Tokens.
#[derive(Clone, Copy, Default)]
pub(super) struct Computed {
    /// A lookup was made, which is counted if the request is admitted.
    pub looked_up: bool,
    pub num_local: u32,
    pub num_external: u32,
    pub load_async: bool,
    /// Queries to count for the connector.
    pub connector_queries: u32,
}

/// What becomes of the request at the head of the queue.
enum Admission {
    Admitted,
    /// It cannot run now, which is no reason against those behind it.
    Skipped,
    /// The pass ends here.
    Stop,
}

impl Scheduler {
    pub(super) fn schedule_waiting(&mut self, pass: &mut Pass, output: &mut SchedulerOutput) {
        self.scheduled_loras.clear();
        if self.config.max_loras.is_some() {
            for &Running { slot, .. } in &self.running {
                if let Some(lora) = self.requests[slot].has_lora().filter(|&id| id > 0)
                    && !self.scheduled_loras.contains(&lora)
                {
                    self.scheduled_loras.push(lora);
                }
            }
        }
        while pass.token_budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let from_holding = !self.kv_holding_waiting.is_empty();
            let queue = if from_holding { &self.kv_holding_waiting } else { &self.waiting };
            let Some(slot) = queue.peek_request() else { break };
            match self.admit(slot, from_holding, pass, output) {
                Admission::Admitted => {}
                Admission::Skipped => self.skip_request(slot, from_holding),
                Admission::Stop => break,
            }
        }
        // What was skipped goes back before what was not looked at, in order.
        while let Some(slot) = self.skipped_kv_holding.pop() {
            self.kv_holding_waiting.prepend_request(slot, &self.requests[slot]);
        }
        while let Some(slot) = self.skipped_waiting.pop() {
            self.waiting.prepend_request(slot, &self.requests[slot]);
        }
    }

    fn queue_mut(&mut self, from_holding: bool) -> &mut RequestQueue {
        if from_holding { &mut self.kv_holding_waiting } else { &mut self.waiting }
    }

    fn skip_request(&mut self, slot: RequestSlot, from_holding: bool) {
        self.queue_mut(from_holding).pop_request();
        let request = &mut self.requests[slot];
        if !request.is_deferred {
            request.is_deferred = true;
            self.num_deferred += 1;
        }
        if holds_kv_blocks(request) {
            self.skipped_kv_holding.push(slot);
        } else {
            self.skipped_waiting.push(slot);
        }
    }

    /// Takes a request out of `deferred_waiting`.
    pub(super) fn undefer(&mut self, slot: RequestSlot) {
        if std::mem::take(&mut self.requests[slot].is_deferred) {
            self.num_deferred -= 1;
        }
    }

    fn exceeds_max_loras(&self, slot: RequestSlot) -> bool {
        let Some(max_loras) = self.config.max_loras else { return false };
        self.requests[slot].has_lora().is_some_and(|lora| {
            self.scheduled_loras.len() == max_loras as usize && !self.scheduled_loras.contains(&lora)
        })
    }

    fn admit(
        &mut self,
        slot: RequestSlot,
        from_holding: bool,
        pass: &mut Pass,
        output: &mut SchedulerOutput,
    ) -> Admission {
        if !self.handle_blocked_waiting_request(slot) {
            return Admission::Skipped;
        }
        let request = &self.requests[slot];
        if request.num_stale_output_tokens > 0 && !request.drop_stale_output {
            // Resuming now could sample a position again that output in flight will deliver.
            return Admission::Skipped;
        }
        if self.exceeds_max_loras(slot) {
            return Admission::Skipped;
        }
        if self.takes_shortcuts
            && self.connector.is_none()
            && self.config.scheduler_reserve_full_isl
            && self.kv_cache_manager.is_refused_again(request)
        {
            return Admission::Stop;
        }
        let Some(computed) = self.find_computed_tokens(slot) else { return Admission::Skipped };
        let request = &self.requests[slot];
        let num_computed_tokens = if computed.looked_up {
            computed.num_local + computed.num_external
        } else {
            request.num_computed_tokens
        };
        let (num_new_tokens, num_draft_tokens) = if computed.load_async {
            (0, 0)
        } else {
            match self.num_new_admitted_tokens(slot, num_computed_tokens, pass, output) {
                Some(numbers) => numbers,
                None => return Admission::Stop,
            }
        };
        let num_lookahead_tokens = if computed.load_async { 0 } else { self.config.num_lookahead_tokens() };
        let reserved_blocks = if computed.load_async {
            // A load holds its blocks without progress and cannot be preempted: it must leave what
            // others in flight still need.
            (self.inflight_prefill_reserved_blocks() + i64::from(self.spec_decode_step_blocks)).max(0) as u32
        } else {
            0
        };
        let args = AllocateSlots {
            num_new_tokens,
            num_new_computed_tokens: computed.num_local,
            takes_hit: computed.looked_up,
            num_lookahead_tokens,
            num_external_computed_tokens: computed.num_external,
            delay_cache_blocks: computed.load_async,
            full_sequence_must_fit: self.config.scheduler_reserve_full_isl,
            reserved_blocks,
            has_scheduled_reqs: !self.running.is_empty(),
        };
        if !self.kv_cache_manager.allocate_slots(&self.requests[slot], slot, &args) {
            return Admission::Stop;
        }
        self.tell_connector(slot, &computed);
        if computed.looked_up {
            self.kv_cache_manager.record_prefix_cache_stats(&self.requests[slot], computed.num_local);
        }
        if computed.load_async {
            let request = &mut self.requests[slot];
            request.status = RequestStatus::WaitingForRemoteKvs;
            // Counted as computed already; a failed load takes it back.
            request.num_computed_tokens = num_computed_tokens;
            self.add_inflight_prefill(slot);
            return Admission::Skipped;
        }
        self.queue_mut(from_holding).pop_request();
        self.undefer(slot);
        self.running.push(Running::listed(slot));
        if let Some(lora) = self.requests[slot].has_lora()
            && self.config.max_loras.is_some()
            && !self.scheduled_loras.contains(&lora)
        {
            self.scheduled_loras.push(lora);
        }
        pass.token_budget -= num_new_tokens;
        output.has_sync_kv_loads |= computed.num_external > 0;
        let request = &mut self.requests[slot];
        let kind = match request.status {
            RequestStatus::Preempted => ScheduledKind::Resumed,
            _ => ScheduledKind::New,
        };
        request.status = RequestStatus::Running;
        request.num_computed_tokens = num_computed_tokens;
        let still_prefilling = num_computed_tokens + num_new_tokens < request.num_tokens();
        let share = StepShare { kind, num_tokens: num_new_tokens, num_computed_tokens, num_draft_tokens };
        output.push(slot, request, &share, &[]);
        if still_prefilling {
            self.add_inflight_prefill(slot);
        }
        Admission::Admitted
    }

    fn add_inflight_prefill(&mut self, slot: RequestSlot) {
        if !std::mem::replace(&mut self.requests[slot].is_inflight_prefill, true) {
            self.inflight_prefills.push(slot);
        }
    }

    /// Looks for the request's tokens in the prefix cache and in the connector's store. `None` when
    /// the connector does not know yet.
    fn find_computed_tokens(&mut self, slot: RequestSlot) -> Option<Computed> {
        let request = &mut self.requests[slot];
        if request.num_computed_tokens > 0 {
            // Its tokens were loaded while it waited.
            return Some(Computed::default());
        }
        let PrefixCacheHit { num_computed_tokens, shared_prefix_boundary } =
            self.kv_cache_manager.get_computed_blocks(request);
        request.shared_prefix_boundary = shared_prefix_boundary;
        let mut computed =
            Computed { looked_up: true, num_local: num_computed_tokens, ..Computed::default() };
        if let Some(connector) = &mut self.connector {
            // The store is asked from a block boundary on, so that a longer outside hit can replace
            // a local one that ends inside a block.
            let partial_tail = computed.num_local % self.scheduler_block_size;
            let block_aligned_local = computed.num_local - partial_tail;
            let answer = connector.get_num_new_matched_tokens(request, block_aligned_local);
            let (num_tokens, load_async) = match answer {
                _ if request.skip_reading_prefix_cache => (0, false),
                ExternalMatch::Pending => return None,
                ExternalMatch::Tokens { num_tokens, load_async } => (num_tokens, load_async),
            };
            if partial_tail == 0 {
                (computed.num_external, computed.load_async) = (num_tokens, load_async);
            } else if num_tokens > partial_tail {
                self.kv_cache_manager.truncate_computed_blocks(block_aligned_local);
                computed.num_local = block_aligned_local;
                (computed.num_external, computed.load_async) = (num_tokens, load_async);
            }
            computed.connector_queries = request.num_tokens() - computed.num_local;
        }
        if request.num_preemptions == 0
            && let Some(stats) = &mut request.prefill_stats
        {
            stats.num_prompt_tokens = request.num_prompt_tokens;
            stats.num_local_cached_tokens = computed.num_local;
            stats.num_external_cached_tokens = computed.num_external;
        }
        Some(computed)
    }

    /// Tokens that an admitted request computes in this step, and how many of them are drafts.
    /// `None` ends the pass.
    fn num_new_admitted_tokens(
        &self,
        slot: RequestSlot,
        num_computed_tokens: u32,
        pass: &Pass,
        output: &SchedulerOutput,
    ) -> Option<(u32, u32)> {
        let request = &self.requests[slot];
        let num_spec_tokens = self.config.num_speculative_tokens();
        let padded_num_tokens = 1 + num_spec_tokens;
        let mut num_new_tokens = request.num_tokens() - num_computed_tokens;
        // A request with one token left joins the decodes: it is padded to their size, so that the
        // step stays uniform.
        let some_running = output.scheduled.iter().any(|entry| entry.kind == ScheduledKind::Running);
        let is_padded = num_spec_tokens > 0
            && num_new_tokens == 1
            && !pass.prefill_scheduled
            && (some_running || num_computed_tokens > 0)
            && num_computed_tokens + padded_num_tokens < self.config.max_model_len;
        if is_padded {
            if padded_num_tokens > pass.token_budget {
                return None;
            }
            num_new_tokens = padded_num_tokens;
        }
        num_new_tokens = pass.cut_long_prefill(num_new_tokens);
        if !self.config.enable_chunked_prefill && num_new_tokens > pass.token_budget {
            return None;
        }
        num_new_tokens = num_new_tokens.min(pass.token_budget);
        let aligned = self.mamba_block_aligned_split(request, num_new_tokens, num_computed_tokens);
        if aligned == 0 {
            return None;
        }
        if is_padded && aligned != padded_num_tokens {
            // Drafts are all there or not at all.
            return Some((1, 0));
        }
        Some((aligned, if is_padded { num_spec_tokens } else { 0 }))
    }
}
