//! A request inside the engine core (`v1/request.py`).

use std::num::NonZeroU64;

use super::hash::{
    BlockHash, EventExtraKey, HashCursor, PromptHashes, RequestBlockHasher, generate_block_hash_extra_keys,
};
use crate::prompt::{PromptExtras, TokenRuns};

/// What the engine is given. Two requests of one engine never have the same id.
#[derive(Clone, Debug, Default)]
pub struct NewRequest {
    /// The caller's name for the request. The last tie-break of the priority policy, and the order
    /// of sets of requests, so callers with text ids give ranks.
    pub id: u64,
    pub prompt_token_ids: TokenRuns,
    /// Of the prompt, if somebody has hashed it already; only a hint that spares work.
    pub prompt_hashes: Option<PromptHashes>,
    /// Output length at which the request ends, 1 or more.
    pub max_tokens: u32,
    /// What the model will sample, at least `max_tokens`, if the caller knows. Then steps in which
    /// nothing is to decide about the request do not list it; see `scheduler/steady.rs`.
    pub known_output: Option<TokenRuns>,
    pub stop_token_ids: Vec<u64>,
    /// Smaller is more urgent.
    pub priority: i64,
    /// Only compared with that of other requests.
    pub arrival_time: u64,
    pub extras: Option<Box<PromptExtras>>,
    pub session_id: Option<String>,
    /// Do not look for cached blocks (what prompt logprobs ask for).
    pub skip_reading_prefix_cache: bool,
    /// `kv_cache_report_mode` "full": an event also for blocks that were hit.
    pub report_cached_blocks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStatus {
    Waiting,
    /// Its blocks are being filled from outside.
    WaitingForRemoteKvs,
    Running,
    Preempted,
    FinishedStopped,
    FinishedLengthCapped,
    FinishedAborted,
    FinishedError,
}

/// Why a request ended, as the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    Stop,
    Length,
    Abort,
    Error,
}

impl RequestStatus {
    pub const fn is_finished(self) -> bool {
        self.finish_reason().is_some()
    }

    pub const fn finish_reason(self) -> Option<FinishReason> {
        match self {
            Self::FinishedStopped => Some(FinishReason::Stop),
            Self::FinishedLengthCapped => Some(FinishReason::Length),
            Self::FinishedAborted => Some(FinishReason::Abort),
            Self::FinishedError => Some(FinishReason::Error),
            Self::Waiting | Self::WaitingForRemoteKvs | Self::Running | Self::Preempted => None,
        }
    }
}

/// How the prompt was covered when the request was first admitted, in tokens (`PrefillStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefillStats {
    pub num_prompt_tokens: u32,
    pub num_local_cached_tokens: u32,
    pub num_external_cached_tokens: u32,
    /// Computed and written to the prefix cache by the time of the first output.
    pub num_cache_creation_tokens: u32,
}

/// A request and what the scheduler keeps of it. Field names are vLLM's.
#[derive(Debug)]
pub struct Request {
    pub id: u64,
    pub status: RequestStatus,
    pub priority: i64,
    pub arrival_time: u64,
    pub num_prompt_tokens: u32,
    pub max_tokens: u32,
    pub known_output: Option<TokenRuns>,
    pub stop_token_ids: Vec<u64>,
    pub extras: Option<Box<PromptExtras>>,
    pub session_id: Option<String>,
    pub skip_reading_prefix_cache: bool,
    pub report_cached_blocks: bool,

    /// Prompt and output.
    pub all_token_ids: TokenRuns,
    /// One for each full hash block of `all_token_ids`.
    pub block_hashes: Vec<BlockHash>,
    hash_cursor: HashCursor,
    /// `num_tokens` at which the next hash exists.
    next_hash_at: u32,

    /// Counts steps in flight as done.
    pub num_computed_tokens: u32,
    /// Sampled tokens that a step in flight will bring (async scheduling).
    pub num_output_placeholders: u32,
    /// Tokens of steps whose output has not come back.
    pub num_in_flight_tokens: u32,
    /// Tokens in flight from before a preemption.
    pub num_stale_output_tokens: u32,
    /// Throw the output of those away instead of delivering it.
    pub drop_stale_output: bool,
    /// Drafts to verify in the next step. Their ids change no decision.
    pub num_spec_tokens: u32,
    /// The step in flight is a prefill chunk that samples nothing.
    pub is_prefill_chunk: bool,
    /// Where a shared prefix ends that some group has not cached yet; 0 for none.
    pub shared_prefix_boundary: u32,
    pub num_preemptions: u32,
    /// Sequence number of the last step that it was scheduled in, for deferred frees.
    pub last_sched_seq: u64,
    /// The first call of `schedule` that can plan its next token; later than the next one only with
    /// asynchronous scheduling over several pipeline stages.
    pub next_decode_eligible_step: u64,
    /// The first step that does not list it, if it is steady; then the counts above are those before
    /// that step.
    pub(super) steady_since: Option<NonZeroU64>,
    /// Until the first output takes it.
    pub prefill_stats: Option<PrefillStats>,

    /// Member of the scheduler's `deferred_waiting`.
    pub(super) is_deferred: bool,
    /// Member of the scheduler's `_inflight_prefills`.
    pub(super) is_inflight_prefill: bool,
}

impl Request {
    pub(super) fn new(request: NewRequest, hasher: Option<&mut RequestBlockHasher>) -> Self {
        let mut new = Self {
            id: request.id,
            status: RequestStatus::Waiting,
            priority: request.priority,
            arrival_time: request.arrival_time,
            num_prompt_tokens: request.prompt_token_ids.len(),
            max_tokens: request.max_tokens,
            known_output: request.known_output,
            stop_token_ids: request.stop_token_ids,
            extras: request.extras,
            session_id: request.session_id,
            skip_reading_prefix_cache: request.skip_reading_prefix_cache,
            report_cached_blocks: request.report_cached_blocks,
            all_token_ids: request.prompt_token_ids,
            block_hashes: Vec::new(),
            hash_cursor: HashCursor::default(),
            next_hash_at: u32::MAX,
            num_computed_tokens: 0,
            num_output_placeholders: 0,
            num_in_flight_tokens: 0,
            num_stale_output_tokens: 0,
            drop_stale_output: false,
            num_spec_tokens: 0,
            is_prefill_chunk: false,
            shared_prefix_boundary: 0,
            num_preemptions: 0,
            last_sched_seq: 0,
            next_decode_eligible_step: 0,
            steady_since: None,
            prefill_stats: Some(PrefillStats::default()),
            is_deferred: false,
            is_inflight_prefill: false,
        };
        if let Some(hasher) = hasher {
            if let Some((cursor, hashes)) = request.prompt_hashes.and_then(|prompt| hasher.take_over(prompt))
            {
                (new.hash_cursor, new.block_hashes) = (cursor, hashes);
                new.next_hash_at = hasher.num_tokens_for(new.block_hashes.len() + 1);
            } else {
                new.update_block_hashes(hasher);
            }
        }
        new
    }

    #[inline]
    pub fn num_tokens(&self) -> u32 {
        self.all_token_ids.len()
    }

    /// Known tokens and drafts.
    #[inline]
    pub fn num_tokens_with_spec(&self) -> u32 {
        self.num_tokens() + self.num_spec_tokens
    }

    #[inline]
    pub fn num_output_tokens(&self) -> u32 {
        self.num_tokens() - self.num_prompt_tokens
    }

    pub fn has_lora(&self) -> Option<u64> {
        self.extras.as_ref().and_then(|extras| extras.lora.as_ref()).map(|lora| lora.id)
    }

    /// Order of the priority policy (`Request.__lt__`).
    pub fn priority_key(&self) -> (i64, u64, u64) {
        (self.priority, self.arrival_time, self.id)
    }

    /// Where prefill ends; a resumed request also replays its output.
    pub fn prefill_end(&self) -> u32 {
        self.num_prompt_tokens.max(self.num_tokens() - 1)
    }

    #[inline]
    pub(super) fn append_output_token_id(&mut self, token: u64, hasher: Option<&mut RequestBlockHasher>) {
        self.all_token_ids.push(token);
        if self.num_tokens() >= self.next_hash_at
            && let Some(hasher) = hasher
        {
            self.update_block_hashes(hasher);
        }
    }

    /// Appends the next tokens of the known output.
    pub(super) fn append_known_output(&mut self, num_tokens: u32, hasher: Option<&mut RequestBlockHasher>) {
        let from = self.num_output_tokens();
        if let Some(output) = &self.known_output {
            for run in output.slice(from, from + num_tokens) {
                self.all_token_ids.push_run(run.start, run.len);
            }
        }
        if self.num_tokens() >= self.next_hash_at
            && let Some(hasher) = hasher
        {
            self.update_block_hashes(hasher);
        }
    }

    fn update_block_hashes(&mut self, hasher: &mut RequestBlockHasher) {
        hasher.extend(
            &self.all_token_ids,
            self.extras.as_deref(),
            &mut self.hash_cursor,
            &mut self.block_hashes,
        );
        self.next_hash_at = hasher.num_tokens_for(self.block_hashes.len() + 1);
    }

    /// The extra keys that events publish for a block `start..end` whose hash covers the tokens up
    /// to `hash_end`.
    pub(super) fn event_extra_keys(&self, start: u32, hash_end: u32) -> Option<Vec<EventExtraKey>> {
        let extras = self.extras.as_deref()?;
        let mut keys = Vec::new();
        generate_block_hash_extra_keys(extras, start, hash_end, 0, &mut keys);
        (!keys.is_empty()).then(|| keys.iter().map(|key| key.to_event()).collect())
    }
}
