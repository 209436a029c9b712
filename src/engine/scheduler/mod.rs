//! The scheduler of the engine core (`v1/core/sched/scheduler.py`, `async_scheduler.py`): which
//! requests compute how many tokens in a step, who is admitted, who is preempted.
//!
//! A step is [`Scheduler::schedule`], the model's execution, which is the caller's matter, and
//! [`Scheduler::update_from_output`]. With `async_scheduling` the caller schedules step N + 1 before
//! it updates step N, and placeholders stand for the tokens that are not known yet.

mod finish;
mod invariants;
mod kv_transfer;
mod mamba_split;
mod output;
mod preempt;
mod request_queue;
mod running;
mod steady;
mod update;
mod waiting;

use std::collections::VecDeque;

pub use output::{
    EngineCoreOutput, EngineCoreOutputs, FinishedRequest, ModelRunnerOutput, ScheduledKind, ScheduledRequest,
    SchedulerOutput, SpecDecodingStats,
};
use request_queue::RequestQueue;
use steady::{Owed, Running};
use thiserror::Error;

use super::config::{EngineConfig, EngineConfigError, KvLoadFailurePolicy};
use super::connector::KvConnector;
use super::hash::RequestBlockHasher;
use super::kv_cache::{BlockId, BlockPool, KvCacheManager};
use super::prefix_cache_stats::PrefixCacheStats;
use super::request::{NewRequest, Request, RequestStatus};
use super::request_table::{RequestSlot, RequestTable};

/// A request that the engine would refuse before it reaches the scheduler.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RequestError {
    #[error("the prompt has no token")]
    EmptyPrompt,
    #[error("max_tokens is 0; give 1 or more")]
    NoOutput,
    #[error(
        "the prompt has {prompt_tokens} tokens, and with one token of output that is more than \
         max_model_len ({max_model_len}); raise max_model_len or leave the request out"
    )]
    PromptTooLong { prompt_tokens: u32, max_model_len: u32 },
    #[error(
        "events of hit blocks do not work with blocks that are spread over ranks; leave \
         kv_cache_report_mode out or set decode_context_parallel_size to 1"
    )]
    CannotReportCachedBlocks,
}

pub struct Scheduler {
    config: EngineConfig,
    scheduler_block_size: u32,
    hash_block_size: u32,
    has_mamba_layers: bool,
    requests: RequestTable,
    hasher: Option<RequestBlockHasher>,
    kv_cache_manager: KvCacheManager,
    connector: Option<Box<dyn KvConnector>>,
    connector_prefix_cache_stats: PrefixCacheStats,

    running: Vec<Running>,
    waiting: RequestQueue,
    /// Waiting requests that hold blocks. Always drained first: one must never sit behind a request
    /// whose failed allocation ends the pass.
    kv_holding_waiting: RequestQueue,
    /// Waiting requests that the pass skipped or that came in blocked (`deferred_waiting`).
    num_deferred: u32,
    /// Steps of requests that were steady when the step was planned, and are not any more.
    owed: Vec<Owed>,
    /// Tokens in a block, where requests can be steady.
    steady_block_size: Option<u32>,
    finished_req_ids: Vec<u64>,

    /// Requests still prefilling after the step in flight, or loading (`_inflight_prefills`).
    inflight_prefills: Vec<RequestSlot>,
    finished_recving_kv_req_ids: Vec<u64>,
    failed_recving_kv_req_ids: Vec<u64>,

    /// Freed blocks go back to the pool only when no step in flight can write them.
    defer_block_free: bool,
    /// Calls of `schedule`.
    current_step: u64,
    /// Non-empty steps scheduled and processed.
    sched_step_seq: u64,
    processed_step_seq: u64,
    /// Blocks with the step that must have been processed before they are free.
    deferred_frees: VecDeque<(u64, Vec<BlockId>)>,
    /// Blocks that drafts of one step can take (`_spec_decode_step_blocks`).
    spec_decode_step_blocks: u32,

    keep_finished_hashes: bool,
    takes_shortcuts: bool,
    /// Buffers, kept for their capacity.
    skipped_waiting: Vec<RequestSlot>,
    skipped_kv_holding: Vec<RequestSlot>,
    scheduled_loras: Vec<u64>,
    stopped_running: Vec<RequestSlot>,
    /// Debug builds: calls that [`Self::check_invariants`] is still left out of.
    calls_until_check: usize,
}

/// Numbers of requests (`SchedulerStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub running: u32,
    /// Waiting and not skipped.
    pub waiting: u32,
    /// Waiting and skipped by the last pass.
    pub skipped_waiting: u32,
}

impl Scheduler {
    /// # Errors
    /// The first setting that cannot work.
    pub fn new(
        config: EngineConfig,
        hasher: Option<RequestBlockHasher>,
        connector: Option<Box<dyn KvConnector>>,
    ) -> Result<Self, EngineConfigError> {
        config.validate()?;
        Ok(Self::build(config, hasher, connector))
    }

    /// Of a configuration that is valid.
    fn build(
        config: EngineConfig,
        hasher: Option<RequestBlockHasher>,
        connector: Option<Box<dyn KvConnector>>,
    ) -> Self {
        let (scheduler_block_size, hash_block_size) = config.resolve_kv_cache_block_sizes();
        let kv_cache_manager = KvCacheManager::new(&config);
        let num_spec_tokens = config.num_speculative_tokens();
        let num_step_tokens =
            if num_spec_tokens > 0 { 1 + num_spec_tokens + config.num_lookahead_tokens() } else { 0 };
        let spec_decode_step_blocks = kv_cache_manager
            .group_block_sizes()
            .enumerate()
            .filter(|&(group, _)| !kv_cache_manager.is_mamba_group(group))
            .map(|(_, block_size)| num_step_tokens.div_ceil(block_size))
            .sum();
        Self {
            scheduler_block_size,
            hash_block_size,
            has_mamba_layers: config.kv_cache_groups.iter().any(|spec| spec.is_mamba()),
            requests: RequestTable::default(),
            hasher,
            kv_cache_manager,
            connector_prefix_cache_stats: PrefixCacheStats::default(),
            running: Vec::new(),
            waiting: RequestQueue::new(config.policy),
            kv_holding_waiting: RequestQueue::new(config.policy),
            num_deferred: 0,
            owed: Vec::new(),
            steady_block_size: steady::block_size(&config, connector.is_some()),
            finished_req_ids: Vec::new(),
            inflight_prefills: Vec::new(),
            finished_recving_kv_req_ids: Vec::new(),
            failed_recving_kv_req_ids: Vec::new(),
            // A connector may load into a block while a step in flight still writes it.
            defer_block_free: connector.is_some() && config.max_concurrent_batches() > 1,
            current_step: 0,
            sched_step_seq: 0,
            processed_step_seq: 0,
            deferred_frees: VecDeque::new(),
            spec_decode_step_blocks,
            keep_finished_hashes: false,
            takes_shortcuts: true,
            skipped_waiting: Vec::new(),
            skipped_kv_holding: Vec::new(),
            scheduled_loras: Vec::new(),
            stopped_running: Vec::new(),
            calls_until_check: 0,
            connector,
            config,
        }
    }

    /// The process ends and another begins: no request is there, and the cache is empty.
    pub fn restart(&mut self, connector: Option<Box<dyn KvConnector>>) {
        *self = Self {
            keep_finished_hashes: self.keep_finished_hashes,
            takes_shortcuts: self.takes_shortcuts,
            steady_block_size: self.steady_block_size,
            ..Self::build(self.config.clone(), self.hasher.take(), connector)
        };
    }

    /// Lets [`FinishedRequest::block_hashes`] be filled.
    pub fn keep_finished_hashes(&mut self) {
        self.keep_finished_hashes = true;
    }

    /// Makes every step list all its requests and look up who is to be admitted, as vLLM does, also
    /// where less work comes to the same decision. For those who follow the engine.
    pub fn take_no_shortcuts(&mut self) {
        self.takes_shortcuts = false;
        self.steady_block_size = None;
    }

    /// How often `schedule` was called.
    pub fn current_step(&self) -> u64 {
        self.current_step
    }

    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    pub fn hasher(&self) -> Option<&RequestBlockHasher> {
        self.hasher.as_ref()
    }

    pub fn kv_cache_manager(&self) -> &KvCacheManager {
        &self.kv_cache_manager
    }

    pub fn kv_cache_manager_mut(&mut self) -> &mut KvCacheManager {
        &mut self.kv_cache_manager
    }

    /// The pool to change and the hasher that knows its hashes.
    pub fn block_pool_and_hasher(&mut self) -> (&mut BlockPool, Option<&RequestBlockHasher>) {
        (self.kv_cache_manager.block_pool_mut(), self.hasher.as_ref())
    }

    /// The running requests in order. Of those with a [`NewRequest::known_output`] the counts of tokens
    /// can lie some steps back.
    pub fn running(&self) -> impl ExactSizeIterator<Item = &Request> + '_ {
        self.running.iter().map(|running| &self.requests[running.slot])
    }

    /// The waiting requests that hold no blocks, in the order of the policy.
    pub fn waiting(&self) -> impl Iterator<Item = &Request> + '_ {
        self.waiting.iter().map(|slot| &self.requests[slot])
    }

    /// The waiting requests that hold blocks, in the order of the policy.
    pub fn kv_holding_waiting(&self) -> impl Iterator<Item = &Request> + '_ {
        self.kv_holding_waiting.iter().map(|slot| &self.requests[slot])
    }

    /// All requests that have not left the engine, in the order of their slots.
    pub fn requests(&self) -> impl Iterator<Item = (RequestSlot, &Request)> + '_ {
        self.requests.iter()
    }

    /// A request that has not left the engine.
    pub fn request(&self, slot: RequestSlot, id: u64) -> Option<&Request> {
        self.requests.get(slot, id)
    }

    /// A request that has not left the engine. Linear in the number of requests.
    pub fn request_by_id(&self, id: u64) -> Option<&Request> {
        self.requests.find(id).map(|slot| &self.requests[slot])
    }

    fn num_waiting(&self) -> usize {
        self.waiting.len() + self.kv_holding_waiting.len()
    }

    pub fn request_counts(&self) -> RequestCounts {
        RequestCounts {
            running: self.running.len() as u32,
            waiting: self.num_waiting() as u32 - self.num_deferred,
            skipped_waiting: self.num_deferred,
        }
    }

    /// Requests that have not ended.
    pub fn get_num_unfinished_requests(&self) -> usize {
        self.running.len() + self.num_waiting()
    }

    pub fn has_unfinished_requests(&self) -> bool {
        self.get_num_unfinished_requests() > 0
    }

    /// Whether a step would do anything: requests run or wait, finished ids have not been handed
    /// out, or a connector still holds blocks of a finished request.
    pub fn has_requests(&self) -> bool {
        let unfinished = self.get_num_unfinished_requests();
        unfinished > 0
            || !self.finished_req_ids.is_empty()
            || self.connector.as_ref().is_some_and(|connector| {
                self.requests.len() > unfinished || connector.has_pending_push_work()
            })
    }

    /// Takes in a request; it waits from now on.
    ///
    /// # Errors
    /// When it can never run.
    pub fn add_request(&mut self, request: NewRequest) -> Result<RequestSlot, RequestError> {
        let prompt_tokens = request.prompt_token_ids.len();
        let max_model_len = self.config.max_model_len;
        if prompt_tokens == 0 {
            return Err(RequestError::EmptyPrompt);
        }
        if request.max_tokens == 0 {
            return Err(RequestError::NoOutput);
        }
        if prompt_tokens >= max_model_len {
            return Err(RequestError::PromptTooLong { prompt_tokens, max_model_len });
        }
        if request.report_cached_blocks && !self.config.can_report_cached_blocks() {
            return Err(RequestError::CannotReportCachedBlocks);
        }
        // The context ends first, so no decision changes, and sums of counts do not overflow.
        let max_tokens = request.max_tokens.min(max_model_len);
        let request = NewRequest { max_tokens, ..request };
        let slot = self.requests.insert(Request::new(request, self.hasher.as_mut()));
        self.kv_cache_manager.ensure_slot(slot);
        self.waiting.add_request(slot, &self.requests[slot]);
        Ok(slot)
    }

    /// Plans the next step into `output`.
    pub fn schedule(&mut self, output: &mut SchedulerOutput) {
        self.current_step += 1;
        output.clear();
        self.kv_cache_manager.new_step_starts();
        let mut pass = self.new_pass();
        self.schedule_running(&mut pass, output);
        if output.preempted.is_empty() {
            self.schedule_waiting(&mut pass, output);
        }
        output.finished.append(&mut self.finished_req_ids);
        self.kv_cache_manager.take_kv_cache_block_copies(&mut output.block_copies);
        self.free_cow_retained_blocks(&output.block_copies);
        if let Some(connector) = &mut self.connector {
            for entry in &output.scheduled {
                let num_computed_tokens = entry.num_computed_tokens + entry.num_tokens;
                let blocks = |group| self.kv_cache_manager.get_blocks(entry.slot, group);
                connector.on_scheduled(&self.requests[entry.slot], num_computed_tokens, &blocks);
            }
        }
        if output.total_num_scheduled_tokens > 0 {
            self.sched_step_seq += 1;
        }
        self.update_after_schedule(output);
        self.find_steady(output);
        self.debug_check_invariants();
    }

    fn new_pass(&self) -> Pass {
        let budget = self.config.max_num_batched_tokens;
        // The threshold protects others; a request alone may use the whole budget.
        let num_eligible_reqs = self.get_num_unfinished_requests() as u32;
        let mut threshold = if num_eligible_reqs > 1 { self.config.long_prefill_token_threshold } else { 0 };
        if threshold > 0 && self.config.long_prefill_token_threshold_adaptive {
            threshold = threshold.max(budget / num_eligible_reqs);
        }
        Pass {
            token_budget: self.config.max_num_scheduled_tokens.map_or(budget, |tokens| tokens.min(budget)),
            long_prefill_token_threshold: threshold,
            prefill_scheduled: false,
        }
    }

    /// Counts the scheduled tokens as computed, so that the next step can be planned before this one
    /// has run.
    fn update_after_schedule(&mut self, output: &SchedulerOutput) {
        let num_spec_tokens = self.config.num_speculative_tokens();
        let pipeline_parallel_size = u64::from(self.config.pipeline_parallel_size);
        for entry in &output.scheduled {
            let request = &mut self.requests[entry.slot];
            request.num_computed_tokens += entry.num_tokens;
            request.num_in_flight_tokens += entry.num_tokens;
            request.last_sched_seq = self.sched_step_seq;
            request.is_prefill_chunk =
                request.num_computed_tokens < request.num_tokens() + request.num_output_placeholders;
            if request.is_prefill_chunk {
                continue;
            }
            if request.is_inflight_prefill {
                request.is_inflight_prefill = false;
                self.inflight_prefills.retain(|&slot| slot != entry.slot);
            }
            if self.config.async_scheduling {
                // One sampled token and the drafts will come; and the next step verifies new drafts.
                request.num_output_placeholders += 1 + entry.num_draft_tokens;
                request.num_spec_tokens = num_spec_tokens;
                request.next_decode_eligible_step = self.current_step + pipeline_parallel_size;
            }
        }
    }

    /// Hands over the drafts for the next step of a request (sync mode; `update_draft_token_ids`).
    /// Only their number matters.
    pub fn update_draft_token_ids(&mut self, slot: RequestSlot, id: u64, num_draft_tokens: u32) {
        if let Some(request) = self.requests.get_mut(slot, id)
            && !request.status.is_finished()
        {
            request.num_spec_tokens = if request.is_prefill_chunk { 0 } else { num_draft_tokens };
        }
    }

    /// Empties the prefix cache. False, and nothing changed, while blocks are in use; with
    /// `reset_running_requests` the running requests are preempted first, and their ids appended to
    /// `preempted`.
    pub fn reset_prefix_cache(
        &mut self,
        reset_running_requests: bool,
        reset_connector: bool,
        preempted: &mut Vec<u64>,
    ) -> bool {
        if reset_running_requests {
            // From the back, so that they stand in order at the front of the queue.
            while let Some(Running { slot, .. }) = self.running.pop() {
                self.settle(slot);
                preempted.push(self.requests[slot].id);
                // They may resume in the same step, before their output in flight is back.
                self.preempt_request(slot, true);
            }
        }
        let mut done = self.kv_cache_manager.reset_prefix_cache();
        if reset_connector && let Some(connector) = &mut self.connector {
            let connector_done = connector.reset_cache();
            self.connector_prefix_cache_stats.reset |= connector_done;
            done &= connector_done;
        }
        done
    }

    fn recompute_kv_load_failures(&self) -> bool {
        self.config.kv_connector == Some(KvLoadFailurePolicy::Recompute)
    }
}

/// State of one `schedule` call.
struct Pass {
    token_budget: u32,
    /// 0 is off.
    long_prefill_token_threshold: u32,
    /// A running request computes a prefill chunk.
    prefill_scheduled: bool,
}

impl Pass {
    /// A chunk under the long-prefill threshold.
    fn cut_long_prefill(&self, num_new_tokens: u32) -> u32 {
        if self.long_prefill_token_threshold > 0 {
            num_new_tokens.min(self.long_prefill_token_threshold)
        } else {
            num_new_tokens
        }
    }
}

/// A waiting request that holds blocks (`_holds_kv_blocks`).
fn holds_kv_blocks(request: &Request) -> bool {
    request.num_computed_tokens > 0 || request.status == RequestStatus::WaitingForRemoteKvs
}
