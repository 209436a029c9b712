use super::router::RoundRobin;
use super::*;
use crate::cost::{BlockHashing, ConstantCost, CostModel};
use crate::engine::config::{KvLoadFailurePolicy, SpecMethod, SpeculativeConfig};
use crate::engine::connector::{
    EvictionOrder, KvConnector, TierConfig, TierGroup, TierKind, TierPlace, TieredConnector,
};
use crate::engine::hash::RequestBlockHasher;
use crate::engine::kv_cache::{BlockEviction, KvCacheSpec};
use crate::engine::scheduler::Scheduler;
use crate::engine::{EngineConfig, FinishReason};
use crate::prompt::{PromptExtras, TokenRuns};
use crate::units::SimTime;
use crate::workload::{Arrival, Patience, RequestSpec, Workload, WorkloadError};

/// Requests at given times, in order.
pub(super) struct Listed(std::collections::VecDeque<Arrival>);

impl Listed {
    /// Of (arrival in ns, first token id, prompt tokens, output tokens).
    pub fn boxed(requests: &[(u64, u64, u32, u32)]) -> Box<dyn Workload> {
        Box::new(Self::of(requests))
    }

    fn of(requests: &[(u64, u64, u32, u32)]) -> Self {
        let arrival = |(index, &(at, first, prompt, output)): (usize, &(u64, u64, u32, u32))| Arrival {
            at: SimTime(at),
            request: RequestSpec {
                index: index as u64,
                prompt: TokenRuns::from_run(first, prompt),
                output: TokenRuns::from_run(1 << 40 | (index as u64) << 20, output),
                extras: PromptExtras::default(),
                priority: 0,
                skip_reading_prefix_cache: false,
                patience: None,
                tenant: 0,
                session: None,
                turn: 0,
                trace_line: Some(index as u64 + 1),
            },
        };
        Self(requests.iter().enumerate().map(arrival).collect())
    }

    /// The same with the patience of each client.
    pub fn impatient(requests: &[(u64, u64, u32, u32, Option<Patience>)]) -> Box<dyn Workload> {
        let plain: Vec<_> =
            requests.iter().map(|&(at, first, prompt, output, _)| (at, first, prompt, output)).collect();
        let mut listed = Self::of(&plain);
        for (arrival, request) in listed.0.iter_mut().zip(requests) {
            arrival.request.patience = request.4;
        }
        Box::new(listed)
    }
}

impl Workload for Listed {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        Ok(self.0.front().map(|arrival| arrival.at))
    }
    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        Ok(self.0.pop_front())
    }
    fn finished(&mut self, _index: u64, _at: SimTime) {}
    fn tenants(&self) -> &[String] {
        &[]
    }
}

#[derive(Default)]
pub(super) struct Seen {
    pub requests: Vec<RequestRecord>,
    pub steps: Vec<StepRecord>,
    has_drafts: bool,
    /// Steps of several replicas are not told apart below.
    is_fleet: bool,
    /// Steps without output between two with output, for one request.
    num_pauses: usize,
    evictions: usize,
    resets: Vec<(u64, bool, u32)>,
    /// Of which replica, at what time.
    pub states: Vec<(u64, u32, ReplicaState)>,
    pub losses: Vec<ServerLoss>,
    pub pulls: Vec<PullRecord>,
}

impl Seen {
    pub fn of_fleet() -> Self {
        Self { is_fleet: true, ..Self::default() }
    }
}

impl Observer for Seen {
    fn on_step(&mut self, step: &StepRecord) {
        self.steps.push(*step);
    }
    fn on_output_steps(&mut self, request: &RequestRecord, spans: &[StepSpan]) {
        if request.finish_reason == FinishReason::Abort || self.is_fleet {
            return;
        }
        // The first and the last output are those of the request; each step brought at least a token.
        let computing = || self.steps.iter().filter(|step| step.num_scheduled_requests > 0);
        let end = |step: u64| computing().nth(step as usize).unwrap().finished_at;
        assert_eq!(request.first_token, Some(end(spans[0].first)));
        assert_eq!(request.finished, end(spans[spans.len() - 1].last));
        let num_outputs: u64 = spans.iter().map(|span| span.last + 1 - span.first).sum();
        assert!(num_outputs <= u64::from(request.num_output_tokens));
        if self.has_drafts {
            return;
        }
        assert_eq!(num_outputs, u64::from(request.num_output_tokens));
        assert!(spans.windows(2).all(|pair| pair[0].last + 1 < pair[1].first));
        self.num_pauses += spans.len() - 1;
    }
    fn on_request(&mut self, request: &RequestRecord) {
        self.requests.push(*request);
    }
    fn on_evictions(&mut self, _replica: u32, evictions: &[BlockEviction]) {
        self.evictions += evictions.iter().map(|run| run.num_blocks as usize).sum::<usize>();
    }
    fn on_reuse_gaps(&mut self, _replica: u32, _gaps_ns: &[u64]) {}
    fn on_replica_state(&mut self, replica: u32, at: SimTime, state: ReplicaState) {
        self.states.push((at.as_ns(), replica, state));
    }
    fn on_pull(&mut self, _replica: u32, pull: &PullRecord) {
        self.pulls.push(*pull);
    }
    fn on_failure(&mut self, loss: &ServerLoss) {
        self.losses.push(*loss);
    }
    fn on_reset(&mut self, _replica: u32, at: SimTime, done: bool, num_preempted: u32) {
        self.resets.push((at.as_ns(), done, num_preempted));
    }
}

pub(super) fn config() -> EngineConfig {
    EngineConfig {
        async_scheduling: false,
        num_gpu_blocks: 20,
        max_model_len: 256,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        ..EngineConfig::default()
    }
}

pub(super) fn replica(
    config: EngineConfig,
    transfers: Option<Transfers>,
    drafts: Option<DraftAcceptance>,
) -> Replica {
    replica_with_hashing(config, transfers, drafts, BlockHashing::FREE)
}

pub(super) fn replica_with_hashing(
    config: EngineConfig,
    transfers: Option<Transfers>,
    drafts: Option<DraftAcceptance>,
    hashing: BlockHashing,
) -> Replica {
    let hasher = RequestBlockHasher::identity(16, config.num_hash_lookahead_tokens());
    let connector =
        transfers.as_ref().map(|transfers| Box::new(transfers.connector().clone()) as Box<dyn KvConnector>);
    let scheduler = Scheduler::new(config, Some(hasher), connector).unwrap();
    let cost = CostModel::Constant(ConstantCost { step_ns: 1_000, per_token_ns: 10 });
    Replica::new(ReplicaConfig { scheduler, cost, transfers, puller: None, drafts, hashing })
}

pub(super) fn run(workload: Box<dyn Workload>, replica: Replica, actions: Vec<Action>) -> Seen {
    let mut seen = Seen { has_drafts: replica.scheduler().config().speculative.is_some(), ..Seen::default() };
    alone(workload, replica, actions).run(&mut seen).unwrap();
    seen
}

fn alone(workload: Box<dyn Workload>, replica: Replica, actions: Vec<Action>) -> Simulation {
    Simulation::new(workload, vec![replica], Box::new(RoundRobin::default()), actions)
}

#[test]
fn a_step_follows_the_other_and_takes_what_the_cost_model_says() {
    // 40 prompt tokens: one step of 1,000 + 400 ns; then one token a step, 1,010 ns each.
    let seen = run(Listed::boxed(&[(500, 0, 40, 3)]), replica(config(), None, None), Vec::new());
    let request = seen.requests[0];
    assert_eq!(request.first_scheduled, Some(SimTime(500)));
    assert_eq!(request.first_token, Some(SimTime(1_900)));
    assert_eq!(request.finished, SimTime(1_900 + 2 * 1_010));
    assert_eq!((request.num_prompt_tokens, request.num_output_tokens), (40, 3));
    assert_eq!(request.finish_reason, FinishReason::Length);
    // The step that hands out the finished id computes nothing.
    assert_eq!(seen.steps.iter().map(|step| step.num_prefill_tokens).collect::<Vec<_>>(), [40, 0, 0, 0]);
}

#[test]
fn async_scheduling_plans_a_step_ahead_and_ends_at_the_same_token() {
    let requests = [(0, 0, 40, 3), (100, 1_000, 20, 5)];
    let sync = run(Listed::boxed(&requests), replica(config(), None, None), Vec::new());
    let config = EngineConfig { async_scheduling: true, ..config() };
    let seen = run(Listed::boxed(&requests), replica(config, None, None), Vec::new());
    assert_eq!(seen.requests.len(), 2);
    for (ours, sync) in seen.requests.iter().zip(&sync.requests) {
        assert_eq!((ours.index, ours.num_output_tokens), (sync.index, sync.num_output_tokens));
    }
    // The second step is planned at time 0 too, while the first runs.
    assert_eq!((seen.steps[0].scheduled_at, seen.steps[1].scheduled_at), (SimTime(0), SimTime(0)));
    assert_eq!(seen.steps[1].started_at, seen.steps[0].finished_at);
}

#[test]
fn the_identical_prompt_hits_all_full_blocks_but_the_last() {
    let seen =
        run(Listed::boxed(&[(0, 0, 64, 1), (50_000, 0, 64, 1)]), replica(config(), None, None), vec![]);
    assert_eq!(seen.requests[0].num_local_cached_tokens, 0);
    assert_eq!(seen.requests[1].num_local_cached_tokens, 48);
}

#[test]
fn a_reset_under_load_fails_unless_it_preempts() {
    let reset = |at, reset_running_requests| Action {
        at: SimTime(at),
        kind: ActionKind::ResetPrefixCache { reset_running_requests, reset_external: false },
    };
    let actions = vec![reset(3_000, false), reset(5_000, true), reset(90_000, false)];
    let seen = run(Listed::boxed(&[(0, 0, 40, 20)]), replica(config(), None, None), actions);
    assert_eq!(seen.resets, [(3_000, false, 0), (5_000, true, 1), (90_000, true, 0)]);
    assert_eq!(seen.requests[0].num_preemptions, 1);
    assert_eq!(seen.requests[0].num_output_tokens, 20);
}

#[test]
fn accepted_drafts_save_steps_and_change_no_output() {
    let steps = |acceptance_rate, async_scheduling| {
        let speculative = SpeculativeConfig {
            method: SpecMethod::Ngram,
            num_speculative_tokens: 3,
            disable_lookahead_block_hashes: false,
        };
        let config = EngineConfig { speculative: Some(speculative), async_scheduling, ..config() };
        let drafts = Some(DraftAcceptance { acceptance_rate, seed: 1 });
        let seen = run(Listed::boxed(&[(0, 0, 40, 21)]), replica(config, None, drafts), Vec::new());
        assert_eq!(seen.requests[0].num_output_tokens, 21);
        seen.steps.iter().filter(|step| step.num_decode_tokens > 0).count()
    };
    // One token from the prefill; then 20 steps of one, or 5 of four.
    assert_eq!((steps(0.0, false), steps(1.0, false)), (20, 5));
    assert!(steps(0.0, true) >= 20 && steps(1.0, true) < 12);
}

#[test]
fn a_host_tier_brings_back_what_the_gpu_evicted() {
    let tiers = [TierConfig { kind: TierKind::Host, capacity_blocks: 100, eviction: EvictionOrder::Lru }];
    let link = Link { latency: SimTime(7_000), read_bytes_per_s: 1e9, write_bytes_per_s: 1e9 };
    let groups = [TierGroup::new(&KvCacheSpec::full(16), 16)];
    let connector = TieredConnector::new(16, &groups, tiers.map(TierPlace::from).to_vec());
    let transfers = Transfers::new(connector.clone(), vec![link.into()], 1_000, 1);
    let config = EngineConfig { kv_connector: Some(KvLoadFailurePolicy::Recompute), ..config() };
    // The second request needs 16 of the 19 blocks, so it evicts the first one's prompt.
    let requests = [(0, 0, 64, 2), (100_000, 5_000, 240, 2), (400_000, 0, 64, 2)];
    let seen = run(Listed::boxed(&requests), replica(config, Some(transfers), None), Vec::new());
    assert_eq!(seen.requests.len(), 3);
    let last = seen.requests[2];
    assert_eq!(last.index, 2);
    // All four blocks are there; the load of what the GPU lost takes its time.
    let loaded = last.num_external_cached_tokens;
    assert!(loaded > 0 && last.num_local_cached_tokens + loaded == 64);
    let load_ns = 7_000 + u64::from(loaded / 16) * 1_000;
    assert_eq!(last.first_scheduled, Some(SimTime(400_000 + load_ns)));
    assert_eq!(connector.stats()[0].1.hit_tokens, u64::from(loaded));
}

#[test]
fn a_window_loads_no_more_than_its_end_from_a_tier() {
    let tiers = [TierConfig { kind: TierKind::Host, capacity_blocks: 100, eviction: EvictionOrder::Lru }];
    let link = Link { latency: SimTime(7_000), read_bytes_per_s: 1e9, write_bytes_per_s: 1e9 };
    let groups = [KvCacheSpec::full(16), KvCacheSpec::SlidingWindow { block_size: 16, sliding_window: 40 }]
        .map(|spec| TierGroup::new(&spec, 16));
    let connector = TieredConnector::new(16, &groups, tiers.map(TierPlace::from).to_vec());
    let transfers = Transfers::new(connector.clone(), vec![link.into()], 1_000, 1);
    let config = EngineConfig {
        kv_connector: Some(KvLoadFailurePolicy::Recompute),
        kv_cache_groups: vec![
            KvCacheSpec::full(16),
            KvCacheSpec::SlidingWindow { block_size: 16, sliding_window: 40 },
        ],
        num_gpu_blocks: 60,
        ..config()
    };
    let reset = Action {
        at: SimTime(200_000),
        kind: ActionKind::ResetPrefixCache { reset_running_requests: false, reset_external: false },
    };
    let requests = [(0, 0, 161, 2), (400_000, 0, 161, 2)];
    let seen = run(Listed::boxed(&requests), replica(config, Some(transfers), None), vec![reset]);
    assert_eq!(seen.resets, [(200_000, true, 0)]);
    let again = seen.requests[1];
    assert_eq!((again.num_local_cached_tokens, again.num_external_cached_tokens), (0, 160));
    // Ten blocks of full attention, and of the window the three before token 160.
    assert_eq!(again.first_scheduled, Some(SimTime(400_000 + 7_000 + 13 * 1_000)));
    let (store, stats) = &connector.stats()[0];
    // All blocks of both groups were full at some time; the second request adds nothing.
    assert_eq!((store.held_blocks(), stats.written_blocks, stats.hit_tokens), (20, 20, 160));
}

#[test]
fn a_request_that_can_never_fit_is_named() {
    let mut simulation = alone(
        Listed::boxed(&[(0, 0, 250, 5), (0, 0, 40, 1)]),
        {
            let config = EngineConfig { num_gpu_blocks: 10, ..config() };
            replica(config, None, None)
        },
        Vec::new(),
    );
    let error = simulation.run(&mut Seen::default()).unwrap_err();
    assert!(matches!(error, SimulationError::Deadlock { num_waiting: 2, index: 0, .. }), "{error}");
}

#[test]
fn a_prompt_longer_than_the_model_is_refused_with_its_line() {
    let mut simulation =
        alone(Listed::boxed(&[(0, 0, 40, 1), (9, 0, 256, 1)]), replica(config(), None, None), vec![]);
    let error = simulation.run(&mut Seen::default()).unwrap_err();
    assert!(matches!(error, SimulationError::Request { index: 1, trace_line: Some(2), .. }), "{error}");
}

#[test]
fn stepping_and_running_agree() {
    let requests = [(0, 0, 40, 9), (2_000, 0, 60, 4), (2_500, 900, 30, 7)];
    let whole = run(Listed::boxed(&requests), replica(config(), None, None), Vec::new());
    let mut simulation = alone(Listed::boxed(&requests), replica(config(), None, None), Vec::new());
    let mut seen = Seen::default();
    let mut end = SimTime(0);
    while simulation.run_until(end, &mut seen).unwrap() {
        end += SimTime(777);
    }
    assert_eq!((seen.requests, seen.steps), (whole.requests, whole.steps));
}

#[test]
fn output_under_pressure_comes_at_the_steps_that_are_told() {
    // 19 blocks of 16 tokens for requests of up to 9: they preempt each other, and prefills of
    // others spend the budget of 64.
    let requests: Vec<_> = (0..40_u64)
        .map(|i| (i * 3_000, i * 1_000, 20 + (i as u32 * 37) % 70, 10 + (i as u32 * 11) % 50))
        .collect();
    for async_scheduling in [false, true] {
        let config = EngineConfig { async_scheduling, ..config() };
        let seen = run(Listed::boxed(&requests), replica(config, None, None), Vec::new());
        assert_eq!(seen.requests.len(), 40);
        assert!(seen.requests.iter().map(|request| request.num_preemptions).sum::<u32>() > 5);
        assert!(seen.num_pauses > 5);
    }
}
