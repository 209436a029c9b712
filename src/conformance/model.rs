//! The model of a case: it samples what the case says, and accepts drafts as it says.

use super::case::CaseRequest;
use crate::engine::scheduler::{
    ModelRunnerOutput, ScheduledKind, ScheduledRequest, Scheduler, SchedulerOutput,
};

/// What the model remembers of a request.
#[derive(Clone, Copy, Debug, Default)]
struct ModelState {
    /// Tokens sampled so far, as the model itself counts.
    num_sampled: u32,
    /// Steps that verified drafts.
    num_verified_steps: usize,
    /// Times that drafts were handed over to it alive.
    num_draft_rounds: usize,
}

pub(super) struct Model<'a> {
    /// By request id.
    requests: Vec<&'a CaseRequest>,
    states: Vec<ModelState>,
    num_speculative_tokens: u32,
    is_async: bool,
}

impl<'a> Model<'a> {
    pub fn new(requests: &'a [CaseRequest], num_speculative_tokens: u32, is_async: bool) -> Self {
        let mut by_rank: Vec<&CaseRequest> = requests.iter().collect();
        by_rank.sort_by_key(|request| request.rank);
        Self {
            states: vec![ModelState::default(); by_rank.len()],
            requests: by_rank,
            num_speculative_tokens,
            is_async,
        }
    }

    /// Runs the step: fills `sampled` for each of its requests.
    pub fn execute(
        &mut self,
        scheduler: &Scheduler,
        step: &SchedulerOutput,
        sampled: &mut ModelRunnerOutput,
    ) {
        sampled.clear();
        for entry in &step.scheduled {
            self.sample(scheduler, entry, sampled);
            sampled.end_request();
        }
    }

    fn sample(&mut self, scheduler: &Scheduler, entry: &ScheduledRequest, sampled: &mut ModelRunnerOutput) {
        let case = self.requests[entry.id as usize];
        let state = &mut self.states[entry.id as usize];
        let is_admitted = entry.kind != ScheduledKind::Running;
        if is_admitted && let Some(request) = scheduler.request(entry.slot, entry.id) {
            state.num_sampled = request.num_output_tokens();
        }
        let mut num_accepted = 0;
        if entry.num_draft_tokens > 0 && !is_admitted {
            let accepts = case.draft_accepts[state.num_verified_steps % case.draft_accepts.len()];
            state.num_verified_steps += 1;
            num_accepted = accepts.min(entry.num_draft_tokens);
        }
        if !entry.samples {
            return;
        }
        let first = if self.is_async && self.num_speculative_tokens > 0 {
            state.num_sampled
        } else {
            entry.num_computed_tokens + entry.num_tokens - entry.num_draft_tokens - case.prompt.len()
        };
        for position in first..=first + num_accepted {
            sampled.push_token(if position < case.output.len() { case.output.get(position) } else { 0 });
        }
        state.num_sampled = first + num_accepted + 1;
    }

    /// Hands the drafts of a processed step to the scheduler (sync mode).
    pub fn draft(&mut self, scheduler: &mut Scheduler, step: &SchedulerOutput) {
        for entry in &step.scheduled {
            let case = self.requests[entry.id as usize];
            let alive = scheduler
                .request(entry.slot, entry.id)
                .is_some_and(|request| !request.status.is_finished() && !request.is_prefill_chunk);
            let mut num_drafts = self.num_speculative_tokens;
            if alive && let Some(lens) = &case.draft_lens {
                let state = &mut self.states[entry.id as usize];
                num_drafts = lens[state.num_draft_rounds % lens.len()].min(num_drafts);
                state.num_draft_rounds += 1;
            }
            scheduler.update_draft_token_ids(entry.slot, entry.id, num_drafts);
        }
    }
}
