//! Two engines with the same random traffic: one is told every token and lists every request in
//! every step, as vLLM does; the other knows the outputs beforehand, so that its steps leave out the
//! steady requests. Both must change the pool alike, block by block, and plan, preempt and end alike.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use kvsim::engine::hash::{BlockHash, RequestBlockHasher};
use kvsim::engine::kv_cache::{BlockEviction, BlockId, JournalEntry, KvCacheSpec};
use kvsim::engine::scheduler::{
    EngineCoreOutputs, FinishedRequest, ModelRunnerOutput, Scheduler, SchedulerOutput,
};
use kvsim::engine::{EngineConfig, NewRequest, RequestStatus, SchedulingPolicy};
use kvsim::prompt::TokenRuns;
use kvsim::scenario::{Scenario, Source};
use kvsim::simulation::{Observer, RequestRecord, StepRecord};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// For a longer search set `KVSIM_STEADY_WORKLOADS`, for a single one `KVSIM_STEADY_WORKLOAD`.
const NUM_WORKLOADS: u64 = 1500;
const MAX_MODEL_LEN: u32 = 96;

fn config(rng: &mut ChaCha8Rng) -> EngineConfig {
    let block_size = rng.random_range(1..9);
    let blocks_of_one = MAX_MODEL_LEN.div_ceil(block_size) + 2;
    let max_num_seqs = rng.random_range(1..9);
    EngineConfig {
        async_scheduling: rng.random(),
        block_size,
        num_gpu_blocks: blocks_of_one + rng.random_range(0..2 * blocks_of_one),
        max_num_seqs,
        max_num_batched_tokens: rng.random_range(max_num_seqs..40),
        // Now and then too few for all that run.
        max_num_scheduled_tokens: rng.random_ratio(1, 4).then(|| rng.random_range(1..9)),
        max_model_len: MAX_MODEL_LEN,
        enable_chunked_prefill: true,
        long_prefill_token_threshold: if rng.random_ratio(1, 4) { 5 } else { 0 },
        scheduler_reserve_full_isl: rng.random(),
        watermark: if rng.random_ratio(1, 5) { 0.1 } else { 0.0 },
        enable_prefix_caching: rng.random_ratio(5, 6),
        policy: if rng.random() { SchedulingPolicy::Fcfs } else { SchedulingPolicy::Priority },
        kv_cache_groups: vec![KvCacheSpec::FullAttention { block_size }],
        ..EngineConfig::default()
    }
}

fn request(rng: &mut ChaCha8Rng, id: u64) -> NewRequest {
    let mut prompt = TokenRuns::from_run(1_000 * rng.random_range(0..3), rng.random_range(1..30));
    prompt.push_run(10_000 + id, rng.random_range(0..15));
    // Beyond the end of the context, too; and now and then in pieces.
    let len = rng.random_range(1..MAX_MODEL_LEN);
    let mut output = TokenRuns::from_run(1_000_000 * (id + 1), len / 3 + 1);
    output.push_run(7, len);
    NewRequest {
        id,
        prompt_token_ids: prompt,
        max_tokens: len,
        known_output: Some(output),
        stop_token_ids: if rng.random_ratio(1, 8) { vec![1_000_000 * (id + 1) + 9] } else { Vec::new() },
        priority: rng.random_range(0..3),
        arrival_time: id,
        ..NewRequest::default()
    }
}

/// One engine, driven as vLLM's loop drives it: with async scheduling two steps are in flight.
struct Engine {
    scheduler: Scheduler,
    outputs_by_id: HashMap<u64, (u32, TokenRuns)>,
    queue: VecDeque<(SchedulerOutput, ModelRunnerOutput)>,
    outputs: EngineCoreOutputs,
}

impl Engine {
    fn new(config: &EngineConfig) -> Self {
        let hasher = config.enable_prefix_caching.then(|| RequestBlockHasher::identity(config.block_size, 0));
        let mut scheduler = Scheduler::new(config.clone(), hasher, None).unwrap();
        scheduler.kv_cache_manager_mut().block_pool_mut().follow();
        Self {
            scheduler,
            outputs_by_id: HashMap::new(),
            queue: VecDeque::new(),
            outputs: EngineCoreOutputs::default(),
        }
    }

    fn add(&mut self, request: NewRequest, output: TokenRuns) {
        self.outputs_by_id.insert(request.id, (request.prompt_token_ids.len(), output));
        self.scheduler.add_request(request).unwrap();
    }

    fn schedule(&mut self) -> SchedulerOutput {
        let mut step = SchedulerOutput::default();
        self.scheduler.schedule(&mut step);
        let mut sampled = ModelRunnerOutput::default();
        for entry in &step.scheduled {
            if entry.samples {
                let (prompt_tokens, output) = &self.outputs_by_id[&entry.id];
                sampled.push_token(output.get(entry.num_computed_tokens + entry.num_tokens - prompt_tokens));
            }
            sampled.end_request();
        }
        if step.total_num_scheduled_tokens > 0 {
            self.queue.push_back((step.clone(), sampled));
        }
        step
    }

    fn update(&mut self) {
        let (step, sampled) = self.queue.pop_front().unwrap();
        self.scheduler.update_from_output(&step, &sampled, None, &mut self.outputs);
    }

    fn changes(&mut self) -> Vec<JournalEntry> {
        self.scheduler.kv_cache_manager_mut().block_pool_mut().drain_journal().collect()
    }

    fn abort(&mut self, id: u64) -> Vec<FinishedRequest> {
        let mut finished = Vec::new();
        self.scheduler.finish_requests(&[id], RequestStatus::FinishedAborted, &mut finished);
        finished
    }
}

/// Hashes are numbered in the order in which they are first made, which may differ: but equal stays
/// equal.
#[derive(Default)]
struct SameHashes {
    left_to_right: HashMap<BlockHash, BlockHash>,
    right_to_left: HashMap<BlockHash, BlockHash>,
}

impl SameHashes {
    fn same(&mut self, left: BlockHash, right: BlockHash) -> bool {
        *self.left_to_right.entry(left).or_insert(right) == right
            && *self.right_to_left.entry(right).or_insert(left) == left
    }

    fn compare(&mut self, left: &mut Engine, right: &mut Engine) {
        let (changes, others) = (left.changes(), right.changes());
        assert_eq!(changes.len(), others.len(), "{changes:?} and {others:?}");
        for (change, other) in changes.iter().zip(&others) {
            let same = match (*change, *other) {
                (
                    JournalEntry::Insert { hash, block, .. },
                    JournalEntry::Insert { hash: h, block: b, .. },
                )
                | (JournalEntry::Erase { hash, block, .. }, JournalEntry::Erase { hash: h, block: b, .. }) => {
                    block == b && self.same(hash, h)
                }
                (change, other) => change == other,
            };
            assert!(same, "{change:?} and {other:?}");
        }
        let free = |engine: &Engine| -> Vec<BlockId> {
            engine.scheduler.kv_cache_manager().block_pool().free_blocks_in_order().collect()
        };
        assert_eq!(free(left), free(right), "free queue");
        assert_eq!(left.scheduler.request_counts(), right.scheduler.request_counts());
    }
}

/// What is listed is listed alike, and what is not is counted. Returns the number not listed.
fn compare_steps(all: &SchedulerOutput, some: &SchedulerOutput) -> u32 {
    assert_eq!(all.total_num_scheduled_tokens, some.total_num_scheduled_tokens);
    assert_eq!((&all.preempted, &all.finished), (&some.preempted, &some.finished));
    let mut listed = some.scheduled.iter().peekable();
    let (mut num_steady, mut steady_known_tokens) = (0, 0);
    for entry in &all.scheduled {
        let what = |e: &kvsim::engine::scheduler::ScheduledRequest| {
            (e.id, e.kind, e.num_tokens, e.num_computed_tokens, e.samples)
        };
        if listed.peek().is_some_and(|other| what(other) == what(entry)) {
            listed.next();
        } else {
            assert!(entry.samples && entry.num_tokens == 1, "{entry:?} is not listed");
            num_steady += 1;
            steady_known_tokens += u64::from(entry.num_computed_tokens) + 1;
        }
    }
    assert!(listed.next().is_none(), "{:?} and {:?}", all.scheduled, some.scheduled);
    assert_eq!((num_steady, steady_known_tokens), (some.num_steady, some.steady_known_tokens));
    num_steady
}

fn compare_finished(left: &[FinishedRequest], right: &[FinishedRequest]) {
    let what = |f: &FinishedRequest| {
        (f.id, f.status, f.num_prompt_tokens, f.num_tokens, f.num_computed_tokens, f.num_preemptions)
    };
    assert_eq!(left.iter().map(what).collect::<Vec<_>>(), right.iter().map(what).collect::<Vec<_>>());
}

/// Returns how many tokens were computed unlisted.
fn check(seed: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let config = config(&mut rng);
    let max_batches = if config.async_scheduling { 2 } else { 1 };
    let (mut all, mut some) = (Engine::new(&config), Engine::new(&config));
    let mut hashes = SameHashes::default();
    let num_requests = rng.random_range(1..14);
    let (mut next_id, mut num_steady) = (0, 0);
    for turn in 0.. {
        assert!(turn < 20_000, "the requests never end");
        if next_id < num_requests && rng.random_ratio(1, 3) {
            let request = request(&mut rng, next_id);
            next_id += 1;
            let output = request.known_output.clone().unwrap();
            all.add(NewRequest { known_output: None, ..request.clone() }, output.clone());
            some.add(request, output);
        }
        if next_id == num_requests && !all.scheduler.has_requests() && all.queue.is_empty() {
            break;
        }
        if rng.random_ratio(1, 60) {
            let id = rng.random_range(0..num_requests);
            compare_finished(&all.abort(id), &some.abort(id));
        }
        if rng.random_ratio(1, 150) {
            let preempt_all = rng.random();
            let (mut left, mut right) = (Vec::new(), Vec::new());
            let done = all.scheduler.reset_prefix_cache(preempt_all, false, &mut left);
            assert_eq!(done, some.scheduler.reset_prefix_cache(preempt_all, false, &mut right));
            assert_eq!(left, right, "preempted by the reset");
        }
        let mut is_empty = false;
        if all.queue.len() < max_batches {
            let (left, right) = (all.schedule(), some.schedule());
            num_steady += u64::from(compare_steps(&left, &right));
            hashes.compare(&mut all, &mut some);
            is_empty = left.total_num_scheduled_tokens == 0;
        }
        if !all.queue.is_empty() && (is_empty || all.queue.len() == max_batches) {
            all.update();
            some.update();
            compare_finished(&all.outputs.finished, &some.outputs.finished);
            assert_eq!(all.outputs.prefix_cache_stats, some.outputs.prefix_cache_stats);
            hashes.compare(&mut all, &mut some);
        }
    }
    num_steady
}

#[test]
fn steps_that_leave_steady_requests_out_decide_alike() {
    if let Ok(seed) = std::env::var("KVSIM_STEADY_WORKLOAD") {
        check(seed.parse().expect("KVSIM_STEADY_WORKLOAD is the seed of one workload"));
        return;
    }
    let number = std::env::var("KVSIM_STEADY_WORKLOADS").ok().and_then(|number| number.parse().ok());
    let results: Vec<(u64, Option<u64>)> = (0..number.unwrap_or(NUM_WORKLOADS))
        .into_par_iter()
        .map(|seed| (seed, std::panic::catch_unwind(|| check(seed)).ok()))
        .collect();
    let failed: Vec<u64> = results.iter().filter(|(_, done)| done.is_none()).map(|&(seed, _)| seed).collect();
    assert!(failed.is_empty(), "set KVSIM_STEADY_WORKLOAD to one of those that fail: {failed:?}");
    let num_steady: u64 = results.iter().filter_map(|&(_, steady)| steady).sum();
    assert!(num_steady > 100 * results.len() as u64, "only {num_steady} tokens were left out");
}

/// Counts what this thread allocates.
struct CountingAllocator;

thread_local! {
    static NUM_ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NUM_ALLOCATIONS.set(NUM_ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        NUM_ALLOCATIONS.set(NUM_ALLOCATIONS.get() + 1);
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Counts steps and keeps nothing.
#[derive(Default)]
struct StepCount(u64);

impl Observer for StepCount {
    fn on_step(&mut self, _step: &StepRecord) {
        self.0 += 1;
    }

    fn on_request(&mut self, _request: &RequestRecord) {
        panic!("nobody ends while allocations are counted");
    }

    fn on_evictions(&mut self, _replica: u32, _evictions: &[BlockEviction]) {}

    fn on_reuse_gaps(&mut self, _replica: u32, _gaps_ns: &[u64]) {}
}

/// Requests that decode take blocks, fill them and hash them. What they are kept in grows by parts of its
/// size, now and then; no step needs memory of its own.
#[test]
fn steps_do_not_allocate() {
    for engine in ["{}", "{async_scheduling: false}", "{enable_prefix_caching: false}", "{block_size: 32}"] {
        for policy in ["round_robin", "prefix_aware", "kv_aware"] {
            let text = format!(
                "{{name: steps, model: Llama-3.1-8B, gpu: H100, engine: {engine},
                  cluster: {{replicas: 3, router: {{policy: {policy}, block_size: 32, cache_threshold: 1}}}},
                  workload: {{random: {{arrival_process: {{batch: {{at_s: 0}}}}, num_requests: 40,
                  prefix_len: 200, input_len: 300, output_len: 2000}}}}}}"
            );
            let source = Source { path: "steps.yaml".into(), text, ..Source::default() };
            let mut simulation = Scenario::load(source).unwrap().build().unwrap();
            let mut steps = StepCount::default();
            let mut run_to = |end: u64| {
                let (mut num_events, mut num_allocating) = (0, 0);
                while steps.0 < end {
                    let before = NUM_ALLOCATIONS.get();
                    assert!(simulation.step(&mut steps).unwrap());
                    num_events += 1;
                    num_allocating += u32::from(NUM_ALLOCATIONS.get() > before);
                }
                (num_events, num_allocating)
            };
            // From 1,100 to 1,900 tokens of each request: between two powers of two.
            run_to(3 * 600);
            let (num_events, num_allocating) = run_to(3 * 1_400);
            // A debug build checks all blocks now and then, and that does.
            assert!(
                num_events > 4_700 && num_allocating * 10 < num_events,
                "{policy}, {engine}: {num_allocating} of {num_events} events allocate"
            );
        }
    }
}
