//! One server: the engine, which decides, and the cost model, which says how long it takes.
//!
//! The loop is that of vLLM's `EngineCore`: with sync scheduling a step is planned, executed and
//! processed in turn; with async scheduling (`step_with_batch_queue`, a queue of two) the host
//! plans step N + 1 while the GPU runs step N, so a step takes the longer of the two.

mod requests;

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use super::disaggregation::Delivery;
use super::kv_usage::KvUsage;
use super::live_request::{DraftAcceptance, Live, request_record};
use super::observer::{EngineCall, Observer, StepRecord};
use super::pipeline::{Passage, Pipeline};
use super::pull::Puller;
use super::transfers::Transfers;
use crate::cost::{BlockHashing, CostModel, StepShape, StepTime, StepTokens};
use crate::engine::hash::{BlockHash, RequestBlockHasher};
use crate::engine::kv_cache::JournalEntry;
use crate::engine::kv_events::CacheChange;
use crate::engine::scheduler::{
    EngineCoreOutputs, FinishedRequest, ModelRunnerOutput, RequestCounts, ScheduledKind, Scheduler,
    SchedulerOutput,
};
use crate::engine::{Request, RequestSlot};
use crate::units::SimTime;

/// What a replica is made of.
pub struct ReplicaConfig {
    pub scheduler: Scheduler,
    pub cost: CostModel,
    /// The copies of the scheduler's tiered connector, if it has one.
    pub transfers: Option<Transfers>,
    /// If prompts and answers are computed on different replicas; then there are no tiers.
    pub puller: Option<Puller>,
    /// With speculative decoding.
    pub drafts: Option<DraftAcceptance>,
    /// What hashing blocks costs the host.
    pub hashing: BlockHashing,
}

/// A step on its way.
#[derive(Default)]
struct Batch {
    output: SchedulerOutput,
    sampled: ModelRunnerOutput,
    record: StepRecord,
    done_at: SimTime,
}

/// Requests by their indices.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Their first token came.
    pub started: Vec<u64>,
    pub ended: Vec<EndedRequest>,
}

/// When the replica wants to be called next, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Iterate(SimTime),
    Update(SimTime),
    /// Nothing to do before a request arrives.
    Idle,
    /// Nothing can be given a token before a copy is done at this time, or a request arrives.
    Waiting(SimTime),
    /// Requests wait and none can be given a token; time alone changes nothing.
    Stuck,
}

/// A request that has left a replica, answered or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedRequest {
    pub index: u64,
    pub first_scheduled: Option<SimTime>,
}

/// What a server took with it when it went away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LostRequests {
    /// In order.
    pub indices: Vec<u64>,
    /// That they had got.
    pub num_output_tokens: u64,
}

pub struct Replica {
    /// Which one of the simulation's it is.
    index: u32,
    scheduler: Scheduler,
    cost: CostModel,
    transfers: Option<Transfers>,
    puller: Option<Puller>,
    drafts: Option<DraftAcceptance>,
    max_batches: usize,
    /// Boxed: a batch is some hundred bytes, and moves from one to the other and back.
    queue: VecDeque<Box<Batch>>,
    /// Processed batches, kept for their buffers.
    #[expect(clippy::vec_box, reason = "the boxes go back to the queue")]
    spare: Vec<Box<Batch>>,
    pipeline: Pipeline,
    hashing: BlockHashing,
    /// Requests whose prompts the input thread hashes, in the order in which they came, with the time
    /// when it is done.
    input: VecDeque<(SimTime, Delivery)>,
    input_free_at: SimTime,
    /// Taken in since the last turn of the loop. The scheduler has them already, which changes nothing it
    /// decides; vLLM's has not: they lie in the engine core's `input_queue` until the next turn.
    in_input_queue: Vec<RequestSlot>,
    kv_usage: KvUsage,
    num_steps: u64,
    /// Steps processed that computed something.
    num_computing_steps: u64,
    /// By the engine's slot.
    live: Vec<Option<Live>>,
    /// Hashes of all prompts so far, as far as the shortest hit goes.
    first_hashes: FxHashSet<BlockHash>,
    shape: StepShape,
    outputs: EngineCoreOutputs,
    /// Of the call at hand, if the engine is followed.
    journal: Vec<JournalEntry>,
    is_followed: bool,
    records_cache_changes: bool,
    /// Its steps begin when those of other ranks do.
    is_lockstep: bool,
    /// A step has been planned that waits for other ranks, and is ready at this time.
    planned_for_ranks: Option<SimTime>,
}

impl Replica {
    pub fn new(config: ReplicaConfig) -> Self {
        let max_batches = config.scheduler.config().max_concurrent_batches() as usize;
        let pipeline = Pipeline::new(config.scheduler.config().pipeline_parallel_size);
        Self {
            index: 0,
            scheduler: config.scheduler,
            cost: config.cost,
            transfers: config.transfers,
            puller: config.puller,
            drafts: config.drafts,
            max_batches,
            queue: VecDeque::with_capacity(max_batches),
            spare: Vec::new(),
            pipeline,
            hashing: config.hashing,
            input: VecDeque::new(),
            input_free_at: SimTime::ZERO,
            in_input_queue: Vec::new(),
            kv_usage: KvUsage::default(),
            num_steps: 0,
            num_computing_steps: 0,
            live: Vec::new(),
            first_hashes: FxHashSet::default(),
            shape: StepShape::default(),
            outputs: EngineCoreOutputs::default(),
            journal: Vec::new(),
            is_followed: false,
            records_cache_changes: false,
            is_lockstep: false,
            planned_for_ranks: None,
        }
    }

    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Counted from 0, in the order in which the simulation was given its replicas.
    pub fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn set_index(&mut self, index: u32) {
        self.index = index;
    }

    /// As the engine core tells its clients and the load balancer of its ranks.
    pub(super) fn request_counts(&self) -> RequestCounts {
        let mut counts = self.scheduler.request_counts();
        counts.waiting -= self.in_input_queue.len() as u32;
        counts
    }

    /// A turn of the loop begins, and with it `_process_input_queue`.
    pub(super) fn process_input_queue(&mut self) {
        self.in_input_queue.clear();
    }

    /// Blocks that requests hold.
    pub(super) fn used_blocks(&self) -> u32 {
        let pool = self.scheduler.kv_cache_manager().block_pool();
        pool.num_gpu_blocks() - 1 - pool.get_num_free_blocks()
    }

    /// All but the null block.
    pub(super) fn usable_blocks(&self) -> u32 {
        self.scheduler.config().num_gpu_blocks - 1
    }

    /// The share of the blocks that requests hold, 0 to 1.
    pub(super) fn kv_cache_usage(&self) -> f64 {
        self.scheduler.kv_cache_manager().block_pool().get_usage()
    }

    /// Lets [`Self::take_cache_changes`] have something to take.
    pub(super) fn record_cache_changes(&mut self) {
        self.records_cache_changes = true;
        self.scheduler.kv_cache_manager_mut().block_pool_mut().record_cache_changes();
    }

    /// What changed in the prefix cache since the last call, in place of what `changes` holds.
    pub(super) fn take_cache_changes(&mut self, changes: &mut Vec<CacheChange>) {
        self.scheduler.kv_cache_manager_mut().block_pool_mut().take_cache_changes(changes);
    }

    pub(super) fn follow_engine(&mut self) {
        self.is_followed = true;
        self.scheduler.take_no_shortcuts();
        self.scheduler.keep_finished_hashes();
        self.scheduler.kv_cache_manager_mut().block_pool_mut().follow();
    }

    /// The tiers behind the GPU's cache, if there are any.
    pub(super) fn transfers(&self) -> Option<&Transfers> {
        self.transfers.as_ref()
    }

    pub(super) fn transfers_mut(&mut self) -> Option<&mut Transfers> {
        self.transfers.as_mut()
    }

    /// Copies to or from a store that others see begin or end.
    pub(super) fn land(&mut self, now: SimTime, observer: &mut dyn Observer) {
        let Some(transfers) = &mut self.transfers else { return };
        transfers.land(now);
        transfers.take_begun().for_each(|transfer| observer.on_transfer(self.index, &transfer));
    }

    /// One turn of the engine's loop: plans a step if there is work and room in the queue.
    pub(super) fn iterate(&mut self, now: SimTime, observer: &mut dyn Observer) -> Next {
        let mut at = now;
        if self.scheduler.has_requests() {
            let mut batch = self.plan(now, observer);
            let had_tokens = batch.output.total_num_scheduled_tokens > 0;
            let is_empty =
                !had_tokens && batch.output.finished.is_empty() && batch.output.preempted.is_empty();
            if is_empty && self.takes_empty_steps() {
                // All wait for their tokens to pass the stages; the next call may find them ready.
                batch.done_at = now;
                self.queue.push_back(batch);
                return Next::Iterate(now);
            }
            if is_empty && let Some(oldest) = self.queue.front() {
                // Nothing new before that step's output is there.
                let done_at = oldest.done_at;
                self.spare.push(batch);
                return Next::Update(now.max(done_at));
            }
            if is_empty {
                let tiers = self.transfers.as_ref().and_then(Transfers::next_done);
                match tiers.or_else(|| self.puller.as_ref().and_then(Puller::next_done)) {
                    // An empty step brings the report of the copies.
                    Some(done) if done <= now => {}
                    done => {
                        self.spare.push(batch);
                        return done.map_or(Next::Stuck, Next::Waiting);
                    }
                }
            }
            at = now + SimTime(batch.record.host_ns);
            self.queue.push_back(batch);
            if self.queue.len() < self.max_batches && (had_tokens || self.scheduler.has_requests()) {
                return Next::Iterate(at);
            }
        }
        match self.queue.front() {
            Some(oldest) => Next::Update(at.max(oldest.done_at)),
            None => Next::Idle,
        }
    }

    /// vLLM fills its queue with empty steps too. That can change something only where requests are
    /// passed over for some calls of the scheduler: in a pipeline, while something is in flight.
    fn takes_empty_steps(&self) -> bool {
        let config = self.scheduler.config();
        config.pipeline_parallel_size > 1
            && config.async_scheduling
            && self.queue.len() + 1 < self.max_batches
            && self.queue.iter().any(|batch| batch.output.total_num_scheduled_tokens > 0)
    }

    fn plan(&mut self, now: SimTime, observer: &mut dyn Observer) -> Box<Batch> {
        let mut batch = self.spare.pop().unwrap_or_default();
        self.scheduler.kv_cache_manager_mut().block_pool_mut().set_now_ns(now.as_ns());
        self.scheduler.schedule(&mut batch.output);
        self.note_kv_usage(now);
        batch.record = StepRecord {
            replica: self.index,
            index: self.num_steps,
            scheduled_at: now,
            num_scheduled_requests: batch.output.scheduled.len() as u32 + batch.output.num_steady,
            num_preempted: batch.output.preempted.len() as u32,
            ..StepRecord::default()
        };
        self.num_steps += 1;
        self.execute(now, &mut batch);
        if self.is_lockstep && batch.output.total_num_scheduled_tokens > 0 {
            // The others decide when it begins.
            batch.record.host_ns = self.cost.host_ns(self.shape.num_requests());
            batch.done_at = SimTime::MAX;
            self.planned_for_ranks = Some(now + SimTime(batch.record.host_ns));
            return batch;
        }
        let time = self.cost.step_time(&self.shape);
        batch.record.host_ns = time.host_ns;
        let passage = self.pipeline.run(self.scheduler.current_step(), now + SimTime(time.host_ns), time);
        self.launch(now, &mut batch, time, passage, observer);
        batch
    }

    /// It is known when a step runs.
    fn launch(
        &mut self,
        now: SimTime,
        batch: &mut Batch,
        time: StepTime,
        passage: Passage,
        observer: &mut dyn Observer,
    ) {
        batch.record.gpu_ns = time.gpu_ns();
        batch.record.time = time;
        batch.record.started_at = passage.started_at;
        batch.done_at = passage.done_at;
        let call = EngineCall::Schedule { record: &batch.record, output: &batch.output };
        tell(self.index, &mut self.scheduler, &mut self.journal, now, call, observer);
        if let Some(transfers) = &mut self.transfers {
            transfers.start(now, batch.done_at);
            transfers.take_begun().for_each(|transfer| observer.on_transfer(self.index, &transfer));
        }
        if let Some(puller) = &mut self.puller {
            puller.start(now);
            puller.take_begun().for_each(|pull| observer.on_pull(self.index, &pull));
        }
    }

    /// Samples what the workload says, and describes the step to the cost model.
    fn execute(&mut self, now: SimTime, batch: &mut Batch) {
        self.shape.clear();
        batch.sampled.clear();
        let mut num_decodes = batch.output.num_steady;
        let mut decode_context_tokens = batch.output.steady_known_tokens;
        batch.record.num_decode_tokens = num_decodes;
        for entry in &batch.output.scheduled {
            let Some(live) = self.live[entry.slot.index()].as_mut() else { continue };
            let known_tokens = entry.num_computed_tokens + entry.num_tokens;
            if entry.num_tokens == 1 {
                num_decodes += 1;
                decode_context_tokens += u64::from(known_tokens);
                batch.record.num_decode_tokens += 1;
            } else {
                // Drafts are verified as a chunk: its tokens share one read of the cache.
                self.shape.add_prefill(entry.num_tokens, entry.num_computed_tokens, entry.samples);
                let is_decode = entry.num_draft_tokens > 0;
                let record = &mut batch.record;
                let tokens =
                    if is_decode { &mut record.num_decode_tokens } else { &mut record.num_prefill_tokens };
                *tokens += entry.num_tokens;
            }
            if entry.kind == ScheduledKind::New {
                live.first_scheduled.get_or_insert(now);
            }
            if entry.samples {
                live.sample(entry, self.drafts, &self.scheduler, &mut batch.sampled);
            }
            batch.sampled.end_request();
        }
        self.shape.add_decodes(num_decodes, decode_context_tokens);
    }

    /// Processes the oldest step, whose output is there now, and adds whose answers began and ended.
    pub(super) fn update(
        &mut self,
        now: SimTime,
        answers: &mut Answers,
        observer: &mut dyn Observer,
    ) -> Next {
        let Some(mut batch) = self.queue.pop_front() else { return Next::Iterate(now) };
        self.scheduler.kv_cache_manager_mut().block_pool_mut().set_now_ns(now.as_ns());
        let of_tiers = self.transfers.as_mut().map(|transfers| transfers.worker_output(now));
        let reported = of_tiers.or_else(|| self.puller.as_mut().map(|puller| puller.worker_output(now)));
        let num_hashed_before = self.num_hashed_blocks();
        self.scheduler.update_from_output(
            &batch.output,
            &batch.sampled,
            reported.as_ref(),
            &mut self.outputs,
        );
        self.draft(&batch.output);
        for output in &self.outputs.outputs {
            let Some(live) = &mut self.live[output.slot.index()] else { continue };
            // They come with the first output.
            if let Some(stats) = output.prefill_stats {
                live.first_token = Some(now);
                answers.started.push(live.spec.index);
                live.num_local_cached_tokens = stats.num_local_cached_tokens;
                live.num_external_cached_tokens = stats.num_external_cached_tokens;
            }
            let num_new_tokens = self.outputs.tokens(output).len() as u32;
            let num_tokens = match output.finish_reason {
                Some(_) => self
                    .outputs
                    .finished
                    .iter()
                    .find(|finished| finished.id == output.id)
                    .map(FinishedRequest::num_output_tokens),
                None => self.scheduler.request(output.slot, output.id).map(Request::num_output_tokens),
            };
            if let Some(num_tokens) = num_tokens.filter(|_| num_new_tokens > 0) {
                live.output_steps.push(self.num_computing_steps, num_new_tokens, num_tokens);
            }
        }
        self.num_computing_steps += u64::from(batch.output.total_num_scheduled_tokens > 0);
        self.note_kv_usage(now);
        self.finish_step(now, &mut batch, observer);
        for finished in &self.outputs.finished {
            let Some(live) = self.live[finished.slot.index()].take() else { continue };
            let first_scheduled = live.first_scheduled;
            answers.ended.push(EndedRequest { index: live.spec.index, first_scheduled });
            if live.is_prefill_part {
                continue;
            }
            let record = request_record(self.index, &live, finished, true, now);
            observer.on_output_steps(&record, &live.output_steps.into_spans());
            observer.on_request(&record);
        }
        self.spare.push(batch);
        // Blocks that outputs filled are hashed in the thread that plans.
        let num_hashed = self.num_hashed_blocks() - num_hashed_before;
        Next::Iterate(now + SimTime(self.hashing.output_ns(num_hashed)))
    }

    fn num_hashed_blocks(&self) -> u64 {
        self.scheduler.hasher().map_or(0, RequestBlockHasher::num_hashed_blocks)
    }

    /// Steps wait for those of other ranks: [`Self::launch_oldest`] says when they run.
    pub(super) fn run_in_lockstep(&mut self) {
        self.is_lockstep = true;
    }

    /// When the output of the oldest step is there, unless that waits for other ranks.
    pub(super) fn oldest_done_at(&self) -> Option<SimTime> {
        self.queue.front().map(|oldest| oldest.done_at).filter(|&done_at| done_at < SimTime::MAX)
    }

    /// The step that has been planned since the last call and waits for other ranks: when the host has it
    /// ready, and its shape.
    pub(super) fn take_planned_for_ranks(&mut self) -> Option<(SimTime, &StepShape)> {
        self.planned_for_ranks.take().map(|ready_at| (ready_at, &self.shape))
    }

    /// How long a step of such a shape takes, besides waiting for other ranks.
    pub(super) fn step_time_of_rank(&mut self, shape: &StepShape, tokens: StepTokens) -> StepTime {
        self.cost.step_time_of_rank(shape, tokens)
    }

    /// What the host does for a step without requests.
    pub(super) fn dummy_host_time(&self) -> SimTime {
        SimTime(self.cost.host_ns(0))
    }

    /// The oldest step that waits for other ranks runs now that they are ready.
    pub(super) fn launch_oldest(
        &mut self,
        now: SimTime,
        time: StepTime,
        passage: Passage,
        observer: &mut dyn Observer,
    ) {
        let Some(at) = self.queue.iter().position(|batch| batch.done_at == SimTime::MAX) else { return };
        let Some(mut batch) = self.queue.remove(at) else { return };
        self.launch(now, &mut batch, time, passage, observer);
        self.queue.insert(at, batch);
    }

    /// The number of blocks in use may have changed.
    fn note_kv_usage(&mut self, now: SimTime) {
        self.kv_usage.set(now, self.used_blocks());
    }

    /// With sync scheduling the drafts for the next step are known after this one.
    fn draft(&mut self, step: &SchedulerOutput) {
        let config = self.scheduler.config();
        let num_drafts = config.num_speculative_tokens();
        if num_drafts == 0 || config.async_scheduling {
            return;
        }
        for entry in &step.scheduled {
            self.scheduler.update_draft_token_ids(entry.slot, entry.id, num_drafts);
        }
    }

    fn finish_step(&mut self, now: SimTime, batch: &mut Batch, observer: &mut dyn Observer) {
        let counts = self.scheduler.request_counts();
        let pool = self.scheduler.kv_cache_manager_mut().block_pool_mut();
        batch.record.finished_at = now;
        batch.record.num_running = counts.running;
        batch.record.num_waiting = counts.waiting + counts.skipped_waiting;
        batch.record.num_free_blocks = pool.get_num_free_blocks();
        (batch.record.used_block_ns, batch.record.peak_used_blocks) = self.kv_usage.take();
        batch.record.prefix_cache = self.outputs.prefix_cache_stats;
        batch.record.connector_prefix_cache = self.outputs.connector_prefix_cache_stats;
        batch.record.spec_decoding = self.outputs.spec_decoding_stats.unwrap_or_default();
        if let Some(residency) = pool.residency_mut() {
            if !residency.evictions.is_empty() {
                observer.on_evictions(self.index, &residency.evictions);
                residency.evictions.clear();
            }
            if !residency.reuse_gaps_ns.is_empty() {
                observer.on_reuse_gaps(self.index, &residency.reuse_gaps_ns);
                residency.reuse_gaps_ns.clear();
            }
        }
        let call = EngineCall::UpdateFromOutput { record: &batch.record, outputs: &self.outputs };
        tell(self.index, &mut self.scheduler, &mut self.journal, now, call, observer);
        if let Some(transfers) = &mut self.transfers {
            transfers.take_begun().for_each(|transfer| observer.on_transfer(self.index, &transfer));
        }
        if !self.outputs.events.is_empty() {
            observer.on_kv_events(self.index, now, &self.outputs.events, &self.scheduler);
        }
        observer.on_step(&batch.record);
    }
}

/// Tells of a call of the engine, with what it wrote into its journal.
fn tell(
    replica: u32,
    scheduler: &mut Scheduler,
    journal: &mut Vec<JournalEntry>,
    at: SimTime,
    call: EngineCall<'_>,
    observer: &mut dyn Observer,
) {
    let pool = scheduler.kv_cache_manager_mut().block_pool_mut();
    if pool.is_followed() {
        journal.clear();
        journal.extend(pool.drain_journal());
    }
    observer.on_engine_call(replica, at, call, journal, scheduler);
}
