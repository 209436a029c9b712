//! What a step is told to do and what comes back of it (`v1/core/sched/output.py`,
//! `v1/engine/__init__.py`).

use crate::engine::kv_cache::BlockId;
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::prefix_cache_stats::PrefixCacheStats;
use crate::engine::request::{FinishReason, PrefillStats, Request, RequestStatus};
use crate::engine::request_table::RequestSlot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduledKind {
    /// Admitted for the first time.
    New,
    /// Admitted again after a preemption.
    Resumed,
    Running,
}

/// A request's part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledRequest {
    pub slot: RequestSlot,
    pub id: u64,
    pub kind: ScheduledKind,
    pub num_tokens: u32,
    /// Before this step.
    pub num_computed_tokens: u32,
    /// Of `num_tokens`, drafts to verify.
    pub num_draft_tokens: u32,
    /// The step samples for this request: it reaches the last token that the scheduler counts.
    pub samples: bool,
    /// Where the request's new blocks begin in [`SchedulerOutput::new_block_ids`].
    new_blocks_start: u32,
}

/// What a request is given of a step; see [`ScheduledRequest`].
#[derive(Clone, Copy, Debug)]
pub(super) struct StepShare {
    pub kind: ScheduledKind,
    pub num_tokens: u32,
    pub num_computed_tokens: u32,
    pub num_draft_tokens: u32,
}

/// One step: which requests compute how many tokens. Kept and used again by the caller, so that
/// steps do not allocate.
#[derive(Clone, Debug, Default)]
pub struct SchedulerOutput {
    /// In the order in which tokens were given out: running requests, then admitted ones. All but the
    /// steady ones.
    pub scheduled: Vec<ScheduledRequest>,
    /// Running requests that are not listed: each computes one token and samples the next.
    pub num_steady: u32,
    /// Their known tokens up to the computed one, added up.
    pub steady_known_tokens: u64,
    pub total_num_scheduled_tokens: u32,
    /// Ids of requests preempted by this call, in order.
    pub preempted: Vec<u64>,
    /// Ids of requests finished since the last call.
    pub finished: Vec<u64>,
    /// Copies between blocks that the execution makes first, as (source, destination).
    pub block_copies: Vec<(BlockId, BlockId)>,
    /// Some request loads from a connector within the step.
    pub has_sync_kv_loads: bool,
    /// New blocks of the running requests, all groups of one after the other.
    new_block_ids: Vec<BlockId>,
    /// Ends in `new_block_ids` of the groups of each running request.
    new_block_ends: Vec<u32>,
}

impl SchedulerOutput {
    pub(super) fn clear(&mut self) {
        self.scheduled.clear();
        self.num_steady = 0;
        self.steady_known_tokens = 0;
        self.total_num_scheduled_tokens = 0;
        self.preempted.clear();
        self.finished.clear();
        self.block_copies.clear();
        self.has_sync_kv_loads = false;
        self.new_block_ids.clear();
        self.new_block_ends.clear();
    }

    pub(super) fn push(
        &mut self,
        slot: RequestSlot,
        request: &Request,
        share: &StepShare,
        new_blocks: &[Vec<BlockId>],
    ) {
        let new_blocks_start = self.new_block_ends.len() as u32;
        for group in new_blocks {
            self.new_block_ids.extend_from_slice(group);
            self.new_block_ends.push(self.new_block_ids.len() as u32);
        }
        self.total_num_scheduled_tokens += share.num_tokens;
        let counted_tokens = request.num_tokens() + request.num_output_placeholders;
        self.scheduled.push(ScheduledRequest {
            slot,
            id: request.id,
            kind: share.kind,
            num_tokens: share.num_tokens,
            num_computed_tokens: share.num_computed_tokens,
            num_draft_tokens: share.num_draft_tokens,
            samples: share.num_computed_tokens + share.num_tokens >= counted_tokens,
            new_blocks_start,
        });
    }

    /// Counts a steady request in; see [`Self::steady_known_tokens`].
    #[inline]
    pub(super) fn push_steady(&mut self, known_tokens: u64) {
        self.num_steady += 1;
        self.steady_known_tokens += known_tokens;
        self.total_num_scheduled_tokens += 1;
    }

    /// Takes a steady request out again that was preempted in the same call.
    pub(super) fn retract_steady(&mut self, known_tokens: u64) {
        self.num_steady -= 1;
        self.steady_known_tokens -= known_tokens;
        self.total_num_scheduled_tokens -= 1;
    }

    /// Takes a listed request out again that was preempted in the same call; returns its tokens.
    pub(super) fn retract(&mut self, slot: RequestSlot) -> Option<u32> {
        let at = self.scheduled.iter().position(|entry| entry.slot == slot)?;
        let num_tokens = self.scheduled.remove(at).num_tokens;
        self.total_num_scheduled_tokens -= num_tokens;
        Some(num_tokens)
    }

    /// The blocks that this step added to the table of a running request, in one group.
    pub fn new_blocks(&self, entry: &ScheduledRequest, group: usize) -> &[BlockId] {
        let at = entry.new_blocks_start as usize + group;
        let start = at.checked_sub(1).map_or(0, |before| self.new_block_ends[before]);
        &self.new_block_ids[start as usize..self.new_block_ends[at] as usize]
    }
}

/// What the model sampled, for each entry of [`SchedulerOutput::scheduled`] in turn
/// (`ModelRunnerOutput`): no token, or one and the accepted drafts.
#[derive(Clone, Debug, Default)]
pub struct ModelRunnerOutput {
    tokens: Vec<u64>,
    ends: Vec<u32>,
}

impl ModelRunnerOutput {
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.ends.clear();
    }

    /// Adds a token for the request at hand.
    #[inline]
    pub fn push_token(&mut self, token: u64) {
        self.tokens.push(token);
    }

    /// Goes on to the next request.
    #[inline]
    pub fn end_request(&mut self) {
        self.ends.push(self.tokens.len() as u32);
    }

    #[inline]
    pub(super) fn tokens(&self, at: usize) -> &[u64] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start as usize..self.ends[at] as usize]
    }
}

/// What a client gets of one request after a step (`EngineCoreOutput`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineCoreOutput {
    pub slot: RequestSlot,
    pub id: u64,
    /// Tokens that were kept, as a range of [`EngineCoreOutputs::tokens`].
    tokens_start: u32,
    tokens_end: u32,
    pub finish_reason: Option<FinishReason>,
    /// With the first output of the request.
    pub prefill_stats: Option<PrefillStats>,
}

/// Speculative decoding in one step (`SpecDecodingStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecDecodingStats {
    pub num_drafts: u64,
    pub num_draft_tokens: u64,
    pub num_accepted_tokens: u64,
}

/// A request at the moment it is freed.
#[derive(Clone, Debug)]
pub struct FinishedRequest {
    /// The slot it had; free by now, unless a connector keeps its blocks.
    pub slot: RequestSlot,
    pub id: u64,
    pub status: RequestStatus,
    pub num_prompt_tokens: u32,
    pub num_tokens: u32,
    pub num_computed_tokens: u32,
    pub num_preemptions: u32,
    /// Only while they are followed ([`super::Scheduler::keep_finished_hashes`]).
    pub block_hashes: Vec<crate::engine::hash::BlockHash>,
}

impl FinishedRequest {
    pub fn num_output_tokens(&self) -> u32 {
        self.num_tokens - self.num_prompt_tokens
    }
}

/// What one update brings (`EngineCoreOutputs` and `SchedulerStats`). Kept and used again by the
/// caller.
#[derive(Clone, Debug, Default)]
pub struct EngineCoreOutputs {
    pub outputs: Vec<EngineCoreOutput>,
    tokens: Vec<u64>,
    /// Requests that ended, in the order in which they were freed.
    pub finished: Vec<FinishedRequest>,
    pub events: Vec<KvCacheEvent>,
    pub prefix_cache_stats: PrefixCacheStats,
    /// Lookups in the connector's store.
    pub connector_prefix_cache_stats: PrefixCacheStats,
    pub spec_decoding_stats: Option<SpecDecodingStats>,
}

impl EngineCoreOutputs {
    pub(super) fn clear(&mut self) {
        self.outputs.clear();
        self.tokens.clear();
        self.finished.clear();
        self.events.clear();
        self.prefix_cache_stats = PrefixCacheStats::default();
        self.connector_prefix_cache_stats = PrefixCacheStats::default();
        self.spec_decoding_stats = None;
    }

    pub(super) fn push(
        &mut self,
        slot: RequestSlot,
        id: u64,
        tokens: &[u64],
        finish_reason: Option<FinishReason>,
        prefill_stats: Option<PrefillStats>,
    ) {
        let tokens_start = self.tokens.len() as u32;
        self.tokens.extend_from_slice(tokens);
        self.outputs.push(EngineCoreOutput {
            slot,
            id,
            tokens_start,
            tokens_end: self.tokens.len() as u32,
            finish_reason,
            prefill_stats,
        });
    }

    /// The tokens that an output kept.
    pub fn tokens(&self, output: &EngineCoreOutput) -> &[u64] {
        &self.tokens[output.tokens_start as usize..output.tokens_end as usize]
    }
}
