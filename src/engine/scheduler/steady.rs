//! Steady decodes: most of what a server does, and nothing to decide.
//!
//! A running request that computes one token in a step, writes it into a block that it has and does
//! not fill, and does not end, changes nothing that anybody else can see: no block, no hash, no
//! queue. If its output is known beforehand ([`NewRequest::known_output`]), all that such a step does
//! is to count. So steps do not list it: a decode costs one comparison, and its counts are brought
//! up to date when something happens to it again.
//!
//! This is vLLM's schedule all the same: steady requests take their token of the budget in their
//! place in the order, and are preempted and aborted like others. That both ways decide alike is
//! tested on random workloads, in `tests/steady_decodes.rs`.
//!
//! [`NewRequest::known_output`]: crate::engine::NewRequest::known_output

use std::num::NonZeroU64;

use super::update::take_from_flight;
use super::{EngineCoreOutputs, Scheduler, SchedulerOutput};
use crate::engine::config::EngineConfig;
use crate::engine::request::Request;
use crate::engine::request_table::RequestSlot;

/// A running request. Steps are numbered by `sched_step_seq`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub slot: RequestSlot,
    /// The first step that lists it: before that one it is steady.
    pub listed_from: u64,
    /// While it is steady, what its known tokens up to the computed one are ahead of the number of
    /// the step.
    known_tokens_ahead: i64,
}

impl Running {
    pub fn listed(slot: RequestSlot) -> Self {
        Self { slot, listed_from: 0, known_tokens_ahead: 0 }
    }

    /// Of a steady request in a step.
    #[inline]
    pub fn known_tokens(&self, step: u64) -> u64 {
        step.wrapping_add_signed(self.known_tokens_ahead)
    }
}

/// A token of a step in flight, for a request that was steady in it and is not any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    step: u64,
    slot: RequestSlot,
    id: u64,
}

/// The tokens in a block, if requests can be steady. With a connector, drafts, groups that give
/// blocks back while a request runs, or several pipeline stages, every step can change something.
pub(super) fn block_size(config: &EngineConfig, has_connector: bool) -> Option<u32> {
    let [spec] = config.kv_cache_groups.as_slice() else { return None };
    let is_plain = spec.is_full()
        && !has_connector
        && config.speculative.is_none()
        && config.pipeline_parallel_size == 1;
    is_plain.then(|| config.group_block_size(spec))
}

impl Scheduler {
    /// Finds the requests of the step just planned that the next ones need not list.
    pub(super) fn find_steady(&mut self, output: &SchedulerOutput) {
        let Some(block_size) = self.steady_block_size else { return };
        let next_step = self.sched_step_seq + 1;
        let mut running = self.running.iter_mut();
        for entry in &output.scheduled {
            // Both are in the same order.
            let Some(place) = running.find(|running| running.slot == entry.slot) else { return };
            let request = &mut self.requests[entry.slot];
            let end = (request.num_prompt_tokens + request.max_tokens).min(self.config.max_model_len);
            let num_steps = num_steady_steps(request, block_size, end, self.config.async_scheduling);
            if num_steps > 0 {
                request.steady_since = NonZeroU64::new(next_step);
                place.listed_from = next_step + u64::from(num_steps);
                place.known_tokens_ahead = i64::from(request.num_computed_tokens) + 1 - next_step as i64;
            }
        }
    }

    /// Brings the counts of a request that was steady up to date; the next step lists it.
    #[inline]
    pub(super) fn settle(&mut self, slot: RequestSlot) {
        if let Some(since) = self.requests[slot].steady_since.take() {
            self.settle_since(slot, since.get());
        }
    }

    fn settle_since(&mut self, slot: RequestSlot, since: u64) {
        let end = self.sched_step_seq + 1;
        let first_in_flight = (self.processed_step_seq + 1).max(since);
        let num_in_flight = (end - first_in_flight) as u32;
        let request = &mut self.requests[slot];
        request.num_computed_tokens += (end - since) as u32;
        request.num_in_flight_tokens += num_in_flight;
        if self.config.async_scheduling {
            request.num_output_placeholders += num_in_flight;
        }
        request.append_known_output((first_in_flight - since) as u32, self.hasher.as_mut());
        let id = request.id;
        self.owed.extend((first_in_flight..end).map(|step| Owed { step, slot, id }));
    }

    /// Processes the tokens of the oldest step for those who were steady in it.
    pub(super) fn take_owed_tokens(&mut self, outputs: &mut EngineCoreOutputs) {
        if self.owed.is_empty() {
            return;
        }
        let mut owed = std::mem::take(&mut self.owed);
        owed.retain(|&Owed { step, slot, id }| {
            let is_due = step == self.processed_step_seq;
            if is_due && let Some(request) = self.requests.get_mut(slot, id) {
                let is_stale = request.num_stale_output_tokens > 0;
                if take_from_flight(request, 1)
                    && let Some(output) = &request.known_output
                {
                    let token = output.get(request.num_output_tokens());
                    self.take_tokens(slot, &[token], is_stale, outputs);
                }
            }
            !is_due
        });
        self.owed = owed;
    }
}

/// In how many steps from the next one on nothing is to decide about a request that ends at `end`
/// tokens.
fn num_steady_steps(request: &Request, block_size: u32, end: u32, async_scheduling: bool) -> u32 {
    let num_computed_tokens = request.num_computed_tokens;
    // The next step computes the one token that this one samples.
    let expected_tokens = request.num_tokens() + request.num_output_placeholders;
    let is_decoding =
        !request.is_prefill_chunk && num_computed_tokens + u32::from(async_scheduling) == expected_tokens;
    let is_plain = request.known_output.is_some()
        && request.stop_token_ids.is_empty()
        && request.num_stale_output_tokens == 0;
    let in_block = num_computed_tokens % block_size;
    if !is_decoding || !is_plain || in_block == 0 {
        return 0;
    }
    // The step that fills the block hashes it; the one that samples the last token ends the request.
    let until_full = block_size - 1 - in_block;
    until_full.min(end.saturating_sub(num_computed_tokens + 2))
}
