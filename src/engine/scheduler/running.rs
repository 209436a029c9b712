//! The first part of `schedule`: tokens and blocks for the running requests, preemption when blocks
//! run out.

use super::output::StepShare;
use super::{Pass, Running, ScheduledKind, Scheduler, SchedulerOutput};
use crate::engine::config::SchedulingPolicy;
use crate::engine::kv_cache::AllocateSlots;
use crate::engine::request_table::RequestSlot;

/// What became of a running request's call for blocks.
enum Allocation {
    Done,
    /// It is itself the lowest in priority: the requests after it may still fit.
    PreemptedSelf,
    Failed,
}

impl Scheduler {
    pub(super) fn schedule_running(&mut self, pass: &mut Pass, output: &mut SchedulerOutput) {
        let step = self.sched_step_seq + 1;
        let mut req_index = 0;
        while req_index < self.running.len() && pass.token_budget > 0 {
            let Running { slot, listed_from, .. } = self.running[req_index];
            if listed_from > step {
                output.push_steady(self.running[req_index].known_tokens(step));
                pass.token_budget -= 1;
                req_index += 1;
                continue;
            }
            self.settle(slot);
            let num_new_tokens = self.num_new_running_tokens(slot, pass);
            if num_new_tokens == 0 {
                req_index += 1;
                continue;
            }
            match self.allocate_or_preempt(slot, num_new_tokens, &mut req_index, pass, output) {
                Allocation::Done => {}
                Allocation::PreemptedSelf => continue,
                Allocation::Failed => break,
            }
            let request = &mut self.requests[slot];
            pass.prefill_scheduled |= request.is_prefill_chunk;
            pass.token_budget -= num_new_tokens;
            req_index += 1;
            let num_draft_tokens = (num_new_tokens + request.num_computed_tokens)
                .saturating_sub(request.num_tokens() + request.num_output_placeholders)
                .min(request.num_spec_tokens);
            request.num_spec_tokens = 0;
            let share = StepShare {
                kind: ScheduledKind::Running,
                num_tokens: num_new_tokens,
                num_computed_tokens: request.num_computed_tokens,
                num_draft_tokens,
            };
            output.push(slot, request, &share, self.kv_cache_manager.new_blocks());
        }
        // The budget is spent: nobody behind goes on by itself.
        for at in req_index..self.running.len() {
            self.running[at].listed_from = 0;
            self.settle(self.running[at].slot);
        }
    }

    /// Tokens that a running request computes in this step, 0 if it is passed over.
    fn num_new_running_tokens(&self, slot: RequestSlot, pass: &Pass) -> u32 {
        let request = &self.requests[slot];
        let placeholders = request.num_output_placeholders;
        if placeholders > 0
            && request.num_computed_tokens + 2
                >= request.num_prompt_tokens + request.max_tokens + placeholders
        {
            // The step in flight reaches max_tokens, even if all drafts are rejected.
            return 0;
        }
        if self.current_step < request.next_decode_eligible_step {
            // Its token is on its way through the stages of the pipeline.
            return 0;
        }
        let wanted =
            (request.num_tokens_with_spec() + placeholders).saturating_sub(request.num_computed_tokens);
        let num_new_tokens = pass
            .cut_long_prefill(wanted)
            .min(pass.token_budget)
            // Drafts must not go past the end of the model's context.
            .min(self.config.max_model_len.saturating_sub(request.num_computed_tokens + 1));
        self.mamba_block_aligned_split(request, num_new_tokens, request.num_computed_tokens)
    }

    fn allocate_or_preempt(
        &mut self,
        slot: RequestSlot,
        num_new_tokens: u32,
        req_index: &mut usize,
        pass: &mut Pass,
        output: &mut SchedulerOutput,
    ) -> Allocation {
        let args = AllocateSlots {
            num_new_tokens,
            num_lookahead_tokens: self.config.num_lookahead_tokens(),
            has_scheduled_reqs: true,
            ..AllocateSlots::default()
        };
        loop {
            if self.kv_cache_manager.allocate_slots(&self.requests[slot], slot, &args) {
                return Allocation::Done;
            }
            if self.connector.as_ref().is_some_and(|connector| connector.has_pending_block_frees()) {
                return Allocation::Failed;
            }
            let Some(victim_index) = self.lowest_priority_running() else { return Allocation::Failed };
            let place = self.running[victim_index];
            let victim = place.slot;
            if !self.request_blocks_can_be_freed(victim) {
                // Its blocks would not come free in time.
                return Allocation::Failed;
            }
            self.running.remove(victim_index);
            let step = self.sched_step_seq + 1;
            if victim_index < *req_index {
                *req_index -= 1;
                if place.listed_from > step {
                    output.retract_steady(place.known_tokens(step));
                    pass.token_budget += 1;
                }
            }
            self.settle(victim);
            if let Some(num_tokens) = output.retract(victim) {
                pass.token_budget += num_tokens;
            }
            output.preempted.push(self.requests[victim].id);
            self.preempt_request(victim, false);
            if victim == slot {
                return match self.config.policy {
                    SchedulingPolicy::Priority => Allocation::PreemptedSelf,
                    SchedulingPolicy::Fcfs => Allocation::Failed,
                };
            }
        }
    }

    /// Index in `running` of the next request to preempt.
    fn lowest_priority_running(&self) -> Option<usize> {
        match self.config.policy {
            SchedulingPolicy::Fcfs => self.running.len().checked_sub(1),
            SchedulingPolicy::Priority => {
                let key = |running: &Running| {
                    let request = &self.requests[running.slot];
                    (request.priority, request.arrival_time)
                };
                // The first of equals, as Python's `max` takes it.
                let lowest = self.running.iter().map(key).max()?;
                self.running.iter().position(|running| key(running) == lowest)
            }
        }
    }
}
