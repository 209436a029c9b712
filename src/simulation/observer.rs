//! What a simulation tells of itself while it runs. Whoever reports implements [`Observer`]; the
//! simulation keeps nothing of it.

use super::lifecycle::ReplicaState;
use super::output_steps::StepSpan;
use crate::cost::StepTime;
use crate::engine::connector::Direction;
use crate::engine::kv_cache::{BlockEviction, JournalEntry};
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::prefix_cache_stats::PrefixCacheStats;
use crate::engine::scheduler::{
    EngineCoreOutputs, FinishedRequest, Scheduler, SchedulerOutput, SpecDecodingStats,
};
use crate::engine::{FinishReason, RequestSlot};
use crate::units::SimTime;

/// [`RequestRecord::replica`] of a request that reached none.
pub const NO_REPLICA: u32 = u32::MAX;

/// A request that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    pub index: u64,
    /// Which replica served it, or [`NO_REPLICA`].
    pub replica: u32,
    pub tenant: u32,
    pub session: Option<u64>,
    pub turn: u32,
    pub arrival: SimTime,
    /// When it was first given tokens; `None` when it was aborted before.
    pub first_scheduled: Option<SimTime>,
    /// `None` when it ended without output.
    pub first_token: Option<SimTime>,
    pub finished: SimTime,
    pub num_prompt_tokens: u32,
    pub num_output_tokens: u32,
    /// It was admitted, so its lookup counts.
    pub was_admitted: bool,
    /// Prompt tokens found in the engine's own cache at its first admission.
    pub num_local_cached_tokens: u32,
    /// Prompt tokens loaded from outside at its first admission.
    pub num_external_cached_tokens: u32,
    pub num_preemptions: u32,
    pub finish_reason: FinishReason,
    /// It was told not to look into the cache.
    pub skip_reading_prefix_cache: bool,
    /// Its prompt is as long as the shortest that can hit anything.
    pub is_long_enough_to_hit: bool,
    /// It is, and a request before it began with the tokens that must match for a hit.
    pub shares_shortest_hit: bool,
}

impl RequestRecord {
    /// The client got the whole answer.
    pub fn is_whole(&self) -> bool {
        matches!(self.finish_reason, FinishReason::Length | FinishReason::Stop)
    }
}

/// A step whose output was processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRecord {
    pub replica: u32,
    /// Counted from 0, for each replica.
    pub index: u64,
    /// When the host began to plan it.
    pub scheduled_at: SimTime,
    /// When the GPU began.
    pub started_at: SimTime,
    /// When its output was processed.
    pub finished_at: SimTime,
    pub gpu_ns: u64,
    pub host_ns: u64,
    /// What these two consist of.
    pub time: StepTime,
    pub num_prefill_tokens: u32,
    pub num_decode_tokens: u32,
    pub num_scheduled_requests: u32,
    pub num_preempted: u32,
    /// After the step.
    pub num_running: u32,
    /// After the step, skipped ones included.
    pub num_waiting: u32,
    /// Blocks that no request holds, after the step.
    pub num_free_blocks: u32,
    /// Blocks held by requests times nanoseconds, from the end of the step before to that of this one.
    pub used_block_ns: u64,
    /// The most blocks that requests held in that time.
    pub peak_used_blocks: u32,
    /// Lookups of the requests admitted since the step before.
    pub prefix_cache: PrefixCacheStats,
    /// The same for the store behind a connector.
    pub connector_prefix_cache: PrefixCacheStats,
    pub spec_decoding: SpecDecodingStats,
}

/// What a replica's engine has just done.
#[derive(Clone, Copy, Debug)]
pub enum EngineCall<'a> {
    /// It took a request in.
    AddRequest { slot: RequestSlot, id: u64 },
    /// It planned a step. The record says when the step runs, and not yet what comes of it.
    Schedule { record: &'a StepRecord, output: &'a SchedulerOutput },
    /// It processed the output of a step.
    UpdateFromOutput { record: &'a StepRecord, outputs: &'a EngineCoreOutputs },
    /// It dropped requests whose clients have gone.
    Abort { finished: &'a [FinishedRequest] },
    /// It emptied the prefix cache, or refused.
    ResetPrefixCache { done: bool, preempted: &'a [u64] },
}

/// A copy between the GPU and a tier, or from one tier to the next, as it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferRecord {
    /// Index of the tier.
    pub tier: usize,
    /// Reads are loads, writes are stores.
    pub direction: Direction,
    /// The request that waits for it, or whose blocks it stores.
    pub request: Option<u64>,
    /// When its link begins with it; later than the call where the link is busy.
    pub started_at: SimTime,
    pub finished_at: SimTime,
    pub num_blocks: u32,
    /// Of one rank.
    pub bytes: u64,
}

/// A read of a prompt's KV blocks from the replica that computed it, as it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullRecord {
    /// The replica that computed the prompt.
    pub source: u32,
    pub request: u64,
    /// When the request had its blocks.
    pub planned_at: SimTime,
    /// When the links of both replicas were free.
    pub started_at: SimTime,
    pub finished_at: SimTime,
    pub num_blocks: u32,
    /// Of one rank.
    pub bytes: u64,
}

/// A replica failed, with the requests that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLoss {
    pub replica: u32,
    pub at: SimTime,
    pub num_requests: u64,
    /// Sampled for these requests, in vain.
    pub num_output_tokens: u64,
}

/// Follows a simulation. Times never decrease from one call to the next. Replicas are counted from 0.
pub trait Observer {
    fn on_step(&mut self, step: &StepRecord);
    fn on_request(&mut self, request: &RequestRecord);
    /// The steps that brought output for a request that [`Self::on_request`] will name next. Steps
    /// that computed something are counted, as [`Self::on_step`] tells of them.
    fn on_output_steps(&mut self, _request: &RequestRecord, _spans: &[StepSpan]) {}
    /// Blocks that were handed out again.
    fn on_evictions(&mut self, replica: u32, evictions: &[BlockEviction]);
    /// Times between two hits on one block, in nanoseconds.
    fn on_reuse_gaps(&mut self, replica: u32, gaps_ns: &[u64]);
    /// Events of a step, when they are on.
    /// The scheduler knows the digests of their hashes.
    fn on_kv_events(
        &mut self,
        _replica: u32,
        _at: SimTime,
        _events: &[KvCacheEvent],
        _scheduler: &Scheduler,
    ) {
    }
    /// Each call of the engine, before anything else is told of it. The journal is empty unless the
    /// blocks are followed (`Simulation::follow_engine`).
    fn on_engine_call(
        &mut self,
        _replica: u32,
        _at: SimTime,
        _call: EngineCall<'_>,
        _journal: &[JournalEntry],
        _scheduler: &Scheduler,
    ) {
    }
    fn on_transfer(&mut self, _replica: u32, _transfer: &TransferRecord) {}
    /// A replica has computed the prompt of a request that another replica goes on with.
    fn on_prefill(&mut self, _replica: u32, _num_prompt_tokens: u32) {}
    /// To a replica from another.
    fn on_pull(&mut self, _replica: u32, _pull: &PullRecord) {}
    /// A replica comes or goes.
    fn on_replica_state(&mut self, _replica: u32, _at: SimTime, _state: ReplicaState) {}
    /// After its state has been told.
    fn on_failure(&mut self, _loss: &ServerLoss) {}
    /// A reset of the prefix cache was asked for, and `done` or refused.
    fn on_reset(&mut self, _replica: u32, _at: SimTime, _done: bool, _num_preempted: u32) {}
}
