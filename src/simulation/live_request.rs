//! What a replica keeps of each request in its engine, and says of it at its end.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::observer::RequestRecord;
use super::output_steps::OutputSteps;
use crate::engine::scheduler::{
    FinishedRequest, ModelRunnerOutput, ScheduledKind, ScheduledRequest, Scheduler,
};
use crate::engine::{FinishReason, Request, RequestStatus};
use crate::units::SimTime;
use crate::workload::Patience;

/// How many drafts the model accepts: each with the same chance, up to the first that it rejects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DraftAcceptance {
    /// 0 to 1.
    pub acceptance_rate: f64,
    pub seed: u64,
}

/// What the simulation keeps of a request in the engine.
pub(super) struct Live {
    pub spec: RequestMeta,
    pub num_prompt_tokens: u32,
    pub patience: Option<Patience>,
    /// Another replica goes on from its prompt.
    pub is_prefill_part: bool,
    pub first_scheduled: Option<SimTime>,
    pub first_token: Option<SimTime>,
    pub output_steps: OutputSteps,
    pub num_local_cached_tokens: u32,
    pub num_external_cached_tokens: u32,
    /// Output tokens sampled, as the model counts: with drafts and async scheduling the engine
    /// counts drafts that may be rejected.
    pub num_sampled: u32,
    /// Decides which drafts are accepted. Boxed: it is larger than all else, and mostly not there.
    pub rng: Option<Box<ChaCha8Rng>>,
}

pub(super) struct RequestMeta {
    pub index: u64,
    pub tenant: u32,
    pub session: Option<u64>,
    pub turn: u32,
    pub arrival: SimTime,
    pub skip_reading_prefix_cache: bool,
    pub is_long_enough_to_hit: bool,
    pub shares_shortest_hit: bool,
}

impl Live {
    /// Whether the request has been admitted, and if so what its lookup found.
    pub fn note_admission(&mut self, request: &Request) -> bool {
        let was_admitted = request.status != RequestStatus::Waiting || request.num_computed_tokens > 0;
        if let Some(stats) = request.prefill_stats.filter(|_| was_admitted) {
            self.num_local_cached_tokens = stats.num_local_cached_tokens;
            self.num_external_cached_tokens = stats.num_external_cached_tokens;
        }
        was_admitted
    }

    /// Samples a token, and the drafts that are accepted with it.
    pub fn sample(
        &mut self,
        entry: &ScheduledRequest,
        drafts: Option<DraftAcceptance>,
        scheduler: &Scheduler,
        sampled: &mut ModelRunnerOutput,
    ) {
        let Some(request) = scheduler.request(entry.slot, entry.id) else { return };
        let Some(output) = &request.known_output else { return };
        let Some(drafts) = drafts else {
            let known_tokens = entry.num_computed_tokens + entry.num_tokens;
            return sampled.push_token(output.get(known_tokens - self.num_prompt_tokens));
        };
        let is_admitted = entry.kind != ScheduledKind::Running;
        if is_admitted {
            // What an admitted request brings as drafts is padding.
            self.num_sampled = request.num_output_tokens();
        }
        let mut num_accepted = 0;
        if let (false, Some(rng)) = (is_admitted, &mut self.rng) {
            while num_accepted < entry.num_draft_tokens && rng.random_bool(drafts.acceptance_rate) {
                num_accepted += 1;
            }
        }
        for position in self.num_sampled..=self.num_sampled + num_accepted {
            // Past the end the scheduler drops what comes.
            sampled.push_token(if position < output.len() { output.get(position) } else { 0 });
        }
        self.num_sampled += num_accepted + 1;
    }
}

pub(super) fn request_record(
    replica: u32,
    live: &Live,
    finished: &FinishedRequest,
    was_admitted: bool,
    now: SimTime,
) -> RequestRecord {
    RequestRecord {
        index: live.spec.index,
        replica,
        tenant: live.spec.tenant,
        session: live.spec.session,
        turn: live.spec.turn,
        arrival: live.spec.arrival,
        first_scheduled: live.first_scheduled,
        first_token: live.first_token,
        finished: now,
        num_prompt_tokens: finished.num_prompt_tokens,
        num_output_tokens: finished.num_output_tokens(),
        was_admitted,
        num_local_cached_tokens: live.num_local_cached_tokens,
        num_external_cached_tokens: live.num_external_cached_tokens,
        num_preemptions: finished.num_preemptions,
        finish_reason: finished.status.finish_reason().unwrap_or(FinishReason::Length),
        skip_reading_prefix_cache: live.spec.skip_reading_prefix_cache,
        is_long_enough_to_hit: live.spec.is_long_enough_to_hit,
        shares_shortest_hit: live.spec.shares_shortest_hit,
    }
}
