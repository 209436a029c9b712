//! Adds up what a simulation tells, step by step.

use super::backlog::Backlog;
use super::blocks_csv::Residencies;
use super::distribution::Distribution;
use super::fleet::FleetSummary;
use super::goodput::GoodputTally;
use super::inter_token::InterTokenLatencies;
use super::lifecycle::LifecycleTally;
use super::log_histogram::LogHistogram;
use super::percentiles::LatencyMs;
use super::pulls::PullTally;
use super::replica_tally::{ReplicaTally, Standing};
use super::requests_csv::tpot_ns;
use super::run_report::RunInfo;
use super::spreads::{Spreads, StepTimes};
use super::summary::{
    HitRate, KvCache, Latency, NamedHitRate, PrefixCache, Requests, Resets, RunSummary, SpeculativeDecoding,
    Steps, Throughput, Tokens,
};
use super::tenants::TenantTally;
use super::tiers::{ExternalCache, TierSummary};
use super::timeseries::Timeseries;
use crate::engine::FinishReason;
use crate::engine::kv_cache::{BlockEviction, ShortestHit};
use crate::engine::prefix_cache_stats::PrefixCacheStats;
use crate::engine::scheduler::SpecDecodingStats;
use crate::simulation::{
    PullRecord, ReplicaState, RequestRecord, RunEnding, ServerLoss, StepRecord, StepSpan,
};
use crate::units::SimTime;

/// Hits are counted by their place in the prompt: up to here, and up to twice as far each time.
const FIRST_DEPTH_TOKENS: u64 = 1_024;

/// Turns from here on are counted together.
const LAST_TURN: usize = 31;

#[derive(Clone, Copy, Default)]
struct Tally {
    requests: u64,
    queries: u64,
    hits: u64,
}

/// Which requests could have hit anything, to tell why none did.
#[derive(Default)]
struct Hitless {
    may_read: u64,
    long_enough_to_hit: u64,
    sharing: u64,
}

pub(super) struct Collector {
    /// Of each replica, without its null block.
    usable_blocks: Vec<u32>,
    enable_prefix_caching: bool,
    shortest_hit: ShortestHit,
    num_kv_cache_groups: usize,
    pub timeseries: Timeseries,
    prefix_cache: PrefixCacheStats,
    connector: PrefixCacheStats,
    spec: SpecDecodingStats,
    requests: Requests,
    tokens: Tokens,
    backlog: Backlog,
    /// If users are promised something.
    goodput: Option<GoodputTally>,
    queue_ns: Vec<u64>,
    ttft_ns: Vec<u64>,
    tpot_ns: Vec<u64>,
    e2e_ns: Vec<u64>,
    /// Made at the end.
    itl_ns: Distribution,
    by_turn: Vec<Tally>,
    by_tenant: Vec<Tally>,
    by_depth: Vec<Tally>,
    admitted: u64,
    hitless: Hitless,
    steps: u64,
    step_requests: u64,
    gpu_ns: u64,
    host_ns: u64,
    /// Of steps with prefill, and of those that only decode.
    step_times: [StepTimes; 2],
    /// Blocks in use times nanoseconds.
    used_block_ns: u128,
    peak_used_blocks: u32,
    last_step_at: SimTime,
    evictions: u64,
    reuse_gaps: LogHistogram,
    resets: Resets,
    replicas: Vec<ReplicaTally>,
    standing: Standing,
    /// If replicas come and go.
    lifecycle: Option<LifecycleTally>,
    pulls: PullTally,
    tenants: TenantTally,
}

impl Collector {
    pub fn new(info: &RunInfo) -> Self {
        let usable_blocks = info.usable_blocks();
        let is_there = info.fleet.as_ref().and_then(|fleet| fleet.is_there.as_deref());
        let lifecycle = is_there.map(LifecycleTally::new);
        Self {
            replicas: usable_blocks.iter().map(|_| ReplicaTally::default()).collect(),
            standing: Standing {
                num_ready_replicas: lifecycle.as_ref().map(LifecycleTally::num_ready),
                ..Standing::default()
            },
            lifecycle,
            pulls: PullTally::default(),
            tenants: TenantTally::new(info.tenants.len()),
            usable_blocks,
            enable_prefix_caching: info.enable_prefix_caching,
            shortest_hit: info.shortest_hit,
            num_kv_cache_groups: info.num_kv_cache_groups,
            timeseries: Timeseries::new(),
            prefix_cache: PrefixCacheStats::default(),
            connector: PrefixCacheStats::default(),
            spec: SpecDecodingStats::default(),
            requests: Requests::default(),
            tokens: Tokens::default(),
            backlog: Backlog::default(),
            goodput: info.goodput.map(|limits| GoodputTally::new(limits, &info.tenants)),
            queue_ns: Vec::new(),
            ttft_ns: Vec::new(),
            tpot_ns: Vec::new(),
            e2e_ns: Vec::new(),
            itl_ns: Distribution::default(),
            by_turn: Vec::new(),
            by_tenant: vec![Tally::default(); info.tenants.len()],
            by_depth: Vec::new(),
            admitted: 0,
            hitless: Hitless::default(),
            steps: 0,
            step_requests: 0,
            gpu_ns: 0,
            host_ns: 0,
            step_times: Default::default(),
            used_block_ns: 0,
            peak_used_blocks: 0,
            last_step_at: SimTime::ZERO,
            evictions: 0,
            reuse_gaps: LogHistogram::default(),
            resets: Resets::default(),
        }
    }

    pub fn on_step(&mut self, step: &StepRecord) {
        let replica = step.replica as usize;
        self.replicas[replica].on_step(step, self.usable_blocks[replica], &mut self.standing);
        add(&mut self.prefix_cache, &step.prefix_cache);
        add(&mut self.connector, &step.connector_prefix_cache);
        self.spec.num_drafts += step.spec_decoding.num_drafts;
        self.spec.num_draft_tokens += step.spec_decoding.num_draft_tokens;
        self.spec.num_accepted_tokens += step.spec_decoding.num_accepted_tokens;
        self.timeseries.on_step(step, &self.standing);
        self.requests.preemptions += u64::from(step.num_preempted);
        self.tokens.prefill_computed_tokens += u64::from(step.num_prefill_tokens);
        self.tokens.decode_computed_tokens += u64::from(step.num_decode_tokens);
        if step.num_scheduled_requests > 0 {
            self.steps += 1;
            self.step_requests += u64::from(step.num_scheduled_requests);
            self.gpu_ns += step.gpu_ns;
            self.host_ns += step.host_ns;
            let times = &mut self.step_times[usize::from(step.num_prefill_tokens == 0)];
            times.steps += 1;
            times.time += step.time;
        }
        self.last_step_at = step.finished_at;
        self.used_block_ns += u128::from(step.used_block_ns);
        self.peak_used_blocks = self.peak_used_blocks.max(self.standing.peak_used_blocks);
    }

    pub fn on_output_steps(&mut self, request: &RequestRecord, spans: &[StepSpan]) {
        if request.is_whole() {
            self.replicas[request.replica as usize].inter_token.on_request(spans);
        }
    }

    pub fn on_request(&mut self, request: &RequestRecord) {
        let requests = &mut self.requests;
        *match request.finish_reason {
            FinishReason::Length => &mut requests.finished_length,
            FinishReason::Stop => &mut requests.finished_stop,
            FinishReason::Abort => &mut requests.aborted,
            FinishReason::Error => &mut requests.failed,
        } += 1;
        self.tenants.on_request(request);
        self.backlog.on_request(request);
        if let Some(goodput) = &mut self.goodput {
            goodput.on_request(request);
        }
        let is_finished = request.is_whole();
        if is_finished {
            requests.finished += 1;
            self.tokens.prompt_tokens += u64::from(request.num_prompt_tokens);
            self.tokens.output_tokens += u64::from(request.num_output_tokens);
            let since_arrival = |at: SimTime| at.since(request.arrival).as_ns();
            self.queue_ns.extend(request.first_scheduled.map(since_arrival));
            self.e2e_ns.push(since_arrival(request.finished));
            self.ttft_ns.extend(request.first_token.map(since_arrival));
            self.tpot_ns.extend(tpot_ns(request));
        } else {
            self.tokens.unfinished_output_tokens += u64::from(request.num_output_tokens);
            let is_silent_abort =
                request.finish_reason == FinishReason::Abort && request.first_token.is_none();
            requests.aborted_before_first_token += u64::from(is_silent_abort);
        }
        // One whose client gave up at the router reached none.
        if let Some(replica) = self.replicas.get_mut(request.replica as usize) {
            replica.on_request(request);
        }
        self.timeseries.on_request(request.finished, is_finished);
        self.admitted += u64::from(request.was_admitted);
        if self.enable_prefix_caching && request.was_admitted && !request.skip_reading_prefix_cache {
            let turn = (request.turn as usize).min(LAST_TURN);
            if self.by_turn.len() <= turn {
                self.by_turn.resize(turn + 1, Tally::default());
            }
            let tenant = self.by_tenant.get_mut(request.tenant as usize);
            for tally in std::iter::once(&mut self.by_turn[turn]).chain(tenant) {
                tally.requests += 1;
                tally.queries += u64::from(request.num_prompt_tokens);
                tally.hits += u64::from(request.num_local_cached_tokens);
            }
            self.count_depths(request);
            self.hitless.may_read += 1;
            self.hitless.long_enough_to_hit += u64::from(request.is_long_enough_to_hit);
            self.hitless.sharing += u64::from(request.shares_shortest_hit);
        }
    }

    /// Hits are the begin of a prompt.
    fn count_depths(&mut self, request: &RequestRecord) {
        let (prompt, hits) =
            (u64::from(request.num_prompt_tokens), u64::from(request.num_local_cached_tokens));
        let (mut begin, mut end) = (0, FIRST_DEPTH_TOKENS);
        for depth in 0.. {
            if begin >= prompt {
                break;
            }
            if self.by_depth.len() == depth {
                self.by_depth.push(Tally::default());
            }
            let tally = &mut self.by_depth[depth];
            tally.requests += 1;
            tally.queries += prompt.min(end) - begin;
            tally.hits += hits.clamp(begin, end) - begin;
            (begin, end) = (end, 2 * end);
        }
    }

    pub fn on_evictions(&mut self, replica: u32, evictions: &[BlockEviction]) {
        let cached: u64 =
            evictions.iter().filter(|run| run.cached).map(|run| u64::from(run.num_blocks)).sum();
        self.evictions += cached;
        self.replicas[replica as usize].evictions += cached;
        if let Some(last) = evictions.last() {
            self.timeseries.on_evictions(SimTime(last.evicted_at_ns), cached);
        }
    }

    pub fn on_reuse_gaps(&mut self, gaps_ns: &[u64]) {
        gaps_ns.iter().for_each(|&gap_ns| self.reuse_gaps.add(gap_ns));
    }

    pub fn on_prefill(&mut self, replica: u32, num_prompt_tokens: u32) {
        self.replicas[replica as usize].on_prefill(num_prompt_tokens);
    }

    pub fn on_pull(&mut self, pull: &PullRecord) {
        self.pulls.on_pull(pull);
    }

    pub fn on_replica_state(&mut self, replica: u32, at: SimTime, state: ReplicaState) {
        if let Some(lifecycle) = &mut self.lifecycle {
            lifecycle.on_replica_state(replica, at, state);
            self.standing.num_ready_replicas = Some(lifecycle.num_ready());
        }
    }

    pub fn on_failure(&mut self, loss: &ServerLoss) {
        if let Some(lifecycle) = &mut self.lifecycle {
            lifecycle.on_failure(loss);
        }
    }

    pub fn lifecycle(&self) -> Option<&LifecycleTally> {
        self.lifecycle.as_ref()
    }

    pub fn pulls(&self) -> &PullTally {
        &self.pulls
    }

    pub fn on_reset(&mut self, replica: u32, done: bool, num_preempted: u32) {
        *if done { &mut self.resets.done } else { &mut self.resets.refused } += 1;
        self.resets.preempted_requests += u64::from(num_preempted);
        self.requests.preemptions += u64::from(num_preempted);
        self.replicas[replica as usize].preemptions += u64::from(num_preempted);
    }

    fn zero_hits_because(&self) -> Option<String> {
        let hitless = &self.hitless;
        let ShortestHit { matching_tokens, prompt_tokens } = self.shortest_hit;
        if self.prefix_cache.hits > 0 {
            return None;
        }
        Some(if self.admitted == 0 {
            "no request was admitted".to_owned()
        } else if !self.enable_prefix_caching {
            "prefix caching is off (enable_prefix_caching: false)".to_owned()
        } else if hitless.may_read == 0 {
            "not read: every request skips the lookup (prompt logprobs)".to_owned()
        } else if hitless.long_enough_to_hit == 0 {
            format!(
                "too short: no prompt has the {prompt_tokens} tokens that the shortest hit takes \
                 ({matching_tokens} must match)"
            )
        } else if hitless.sharing == 0 {
            let there = if self.replicas.len() > 1 { " at the same replica" } else { "" };
            format!(
                "nothing shared: no prompt that is long enough begins with the same {matching_tokens} tokens \
                 as one before it{there}"
            )
        } else {
            let everywhere = if self.num_kv_cache_groups > 1 { " in every KV cache group" } else { "" };
            format!(
                "shared blocks were not there any more{everywhere}, or not there yet, when they were asked \
                 for: evicted, reset, or still being computed"
            )
        })
    }

    /// After [`Self::summary`], which sorts the values.
    pub fn spreads(&mut self, residencies: Residencies) -> Spreads {
        Spreads {
            queue: Distribution::of_sorted(&self.queue_ns),
            ttft: Distribution::of_sorted(&self.ttft_ns),
            tpot: Distribution::of_sorted(&self.tpot_ns),
            itl: std::mem::take(&mut self.itl_ns),
            e2e: Distribution::of_sorted(&self.e2e_ns),
            lifetimes: residencies.lifetimes,
            idle_times: residencies.idle_times,
            reuse_gaps: self.reuse_gaps.clone(),
            step_times: self.step_times,
        }
    }

    pub fn summary(
        &mut self,
        info: &RunInfo,
        residencies: &Residencies,
        kv_events: Option<u64>,
        ending: RunEnding,
    ) -> RunSummary {
        let RunEnding { tiers, workload, prefix_index, lockstep, pull_failures } = ending;
        let inter_token = self.replicas.iter().map(|replica| &replica.inter_token);
        self.itl_ns = InterTokenLatencies::distribution(inter_token);
        let duration_s = self.last_step_at.as_secs_f64();
        let per_s = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
        let mean = |sum: f64, count: u64| if count > 0 { sum / count as f64 } else { 0.0 };
        let blocks = self.usable_blocks.iter().map(|&blocks| f64::from(blocks)).sum::<f64>();
        let (total, connector) = (&self.prefix_cache, &self.connector);
        let named = |name: String, tally: &Tally| NamedHitRate {
            name,
            requests: tally.requests,
            rate: HitRate::of(tally.queries, tally.hits),
        };
        let turn_name =
            |turn: usize| if turn == LAST_TURN { format!("{turn} and later") } else { turn.to_string() };
        RunSummary {
            name: info.name.clone(),
            seed: info.seed,
            model: info.model.clone(),
            gpu: info.gpu.clone(),
            tensor_parallel_size: info.tensor_parallel_size,
            num_gpus: info.num_gpus(),
            workload,
            duration_s,
            overload: self.backlog.overload(duration_s),
            requests: Requests {
                waiting_at_last_arrival: self.backlog.waiting_at_last_arrival(),
                ..self.requests
            },
            tokens: self.tokens,
            throughput: Throughput {
                requests_per_s: per_s(self.requests.finished),
                prompt_tokens_per_s: per_s(self.tokens.prompt_tokens),
                output_tokens_per_s: per_s(self.tokens.output_tokens),
                total_tokens_per_s: per_s(self.tokens.prompt_tokens + self.tokens.output_tokens),
            },
            latency: Latency {
                queue: LatencyMs::of_ns(&mut self.queue_ns),
                ttft: LatencyMs::of_ns(&mut self.ttft_ns),
                tpot: LatencyMs::of_ns(&mut self.tpot_ns),
                itl: LatencyMs::of_distribution(&self.itl_ns),
                e2e: LatencyMs::of_ns(&mut self.e2e_ns),
            },
            goodput: self.goodput.as_ref().map(|tally| tally.summary(duration_s)),
            prefix_cache: PrefixCache {
                total: HitRate::of(total.queries, total.hits),
                preempted: HitRate::of(total.preempted_queries, total.preempted_hits),
                moving_last_1000_requests: HitRate::of(
                    self.standing.moving_queries_tokens,
                    self.standing.moving_hits_tokens,
                ),
                zero_hits_because: self.zero_hits_because(),
                by_turn: self
                    .by_turn
                    .iter()
                    .enumerate()
                    .map(|(turn, tally)| named(turn_name(turn), tally))
                    .collect(),
                by_depth: self
                    .by_depth
                    .iter()
                    .enumerate()
                    .map(|(depth, tally)| named(depth_name(depth), tally))
                    .collect(),
                by_tenant: info
                    .tenants
                    .iter()
                    .zip(&self.by_tenant)
                    .map(|(name, tally)| named(name.clone(), tally))
                    .collect(),
            },
            external_cache: (!tiers.is_empty()).then(|| ExternalCache {
                total: HitRate::of(connector.queries, connector.hits),
                preempted: HitRate::of(connector.preempted_queries, connector.preempted_hits),
                not_shared_because: info.not_shared_because.clone(),
                tiers: tiers.iter().map(|tier| TierSummary::new(tier, duration_s)).collect(),
            }),
            kv_cache: KvCache {
                num_gpu_blocks: info.num_gpu_blocks(),
                block_size_tokens: info.block_size_tokens,
                usage_mean: if duration_s > 0.0 {
                    self.used_block_ns as f64 / (duration_s * 1e9) / blocks
                } else {
                    0.0
                },
                usage_peak: f64::from(self.peak_used_blocks) / blocks,
                evictions: self.evictions,
                blocks_handed_out_again: residencies.lifetimes.summary().count,
                block_lifetime: residencies.lifetimes.summary(),
                idle_before_eviction: residencies.idle_times.summary(),
                reuse_gap: self.reuse_gaps.summary(),
            },
            steps: Steps {
                count: self.steps,
                mean_tokens: mean(
                    (self.tokens.prefill_computed_tokens + self.tokens.decode_computed_tokens) as f64,
                    self.steps,
                ),
                mean_requests: mean(self.step_requests as f64, self.steps),
                mean_gpu_ms: mean(self.gpu_ns as f64 / 1e6, self.steps),
                mean_host_ms: mean(self.host_ns as f64 / 1e6, self.steps),
                gpu_busy: if duration_s > 0.0 {
                    self.gpu_ns as f64 / 1e9 / duration_s / self.replicas.len() as f64
                } else {
                    0.0
                },
                extrapolated: mean(
                    self.step_times.iter().map(|times| times.time.extrapolated_ns).sum::<u64>() as f64,
                    self.gpu_ns,
                ),
            },
            caveats: info.caveats.clone(),
            speculative_decoding: (self.spec.num_drafts > 0).then(|| SpeculativeDecoding {
                drafts: self.spec.num_drafts,
                draft_tokens: self.spec.num_draft_tokens,
                accepted_tokens: self.spec.num_accepted_tokens,
                acceptance_rate: mean(self.spec.num_accepted_tokens as f64, self.spec.num_draft_tokens),
            }),
            kv_events,
            resets: self.resets,
            fairness: self.tenants.summary(&info.tenants, duration_s),
            fleet: info.fleet.as_ref().map(|fleet| {
                let lifecycle =
                    self.lifecycle.as_ref().map(|tally| tally.summary(self.last_step_at, &fleet.gpus()));
                let (lifecycle, times) = lifecycle.unzip();
                let tallies = self.replicas.iter().zip(&fleet.replicas);
                let replicas = tallies.map(|(tally, info)| {
                    let times = times.as_ref().map(|times| &times[info.replica as usize]);
                    tally.summary(info, duration_s, times)
                });
                FleetSummary::new(
                    fleet.router.clone(),
                    prefix_index.clone(),
                    lifecycle,
                    self.pulls.summary(pull_failures.unwrap_or_default()),
                    replicas.collect(),
                )
                .with_lockstep(lockstep)
            }),
        }
    }
}

/// The tokens of a depth, counted from 0.
fn depth_name(depth: usize) -> String {
    let begin = if depth == 0 { 0 } else { FIRST_DEPTH_TOKENS << (depth - 1) };
    format!("{begin}-{}", (FIRST_DEPTH_TOKENS << depth) - 1)
}

fn add(sum: &mut PrefixCacheStats, stats: &PrefixCacheStats) {
    sum.requests += stats.requests;
    sum.queries += stats.queries;
    sum.hits += stats.hits;
    sum.preempted_requests += stats.preempted_requests;
    sum.preempted_queries += stats.preempted_queries;
    sum.preempted_hits += stats.preempted_hits;
}
