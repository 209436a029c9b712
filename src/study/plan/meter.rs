//! Follows a simulation of a plan: which requests keep which promise, and whether the server keeps up.

use super::decision::Share;
use super::measured::Measured;
use super::step_figures::{StepFigures, StepMeter};
use super::targets::{Limit, Metric, Target};
use crate::engine::kv_cache::{BlockEviction, JournalEntry};
use crate::engine::prefix_cache_stats::PrefixCacheStats;
use crate::engine::scheduler::Scheduler;
use crate::report::tpot_ns;
use crate::simulation::{EngineCall, Observer, RequestRecord, Role, StepRecord, StepSpan};
use crate::units::SimTime;

/// A queue that grows by less than this share of the arrivals can be chance.
const GROWTH_AT_THE_END: f64 = 0.1;
/// Before all have come it takes more to be sure.
const GROWTH_ON_THE_WAY: f64 = 0.3;
/// Fewer waiting requests are no overload.
const FEWEST_WAITING: u32 = 16;

/// What is kept of a request that ended.
struct Seen {
    replica: u32,
    arrival_ns: u64,
    tenant: u32,
    is_first_turn: bool,
    /// `None` of what did not come: the client had gone.
    ttft_ns: Option<u64>,
    e2e_ns: Option<u64>,
    /// `None` also of an answer of one token.
    tpot_ns: Option<u64>,
    is_whole: bool,
    there_ns: u64,
    prompt_tokens: u32,
    output_tokens: u32,
    hits_tokens: u32,
    external_hits_tokens: u32,
}

/// The queue at the end of a step.
struct Backlog {
    at_ns: u64,
    /// Waiting requests times nanoseconds up to here.
    waiting_ns: u128,
    num_waiting: u32,
    arrived: u64,
}

pub(super) struct Meter<'a> {
    targets: &'a [Target],
    /// By replica.
    steps: Vec<(StepMeter, Option<Role>)>,
    seen: Vec<Seen>,
    /// Of the requests in `seen`, where gaps between tokens are limited.
    spans: Option<Vec<Box<[StepSpan]>>>,
    /// By replica, when each step that computed something ended, for the same.
    step_ends_ns: Vec<Vec<u64>>,
    /// By replica.
    num_waiting: Vec<u32>,
    backlog: Vec<Backlog>,
    arrived: u64,
    /// What the caches of replicas that prefill gave: what others read from them is no hit.
    prefill_hits: PrefixCacheStats,
    /// Sessions still start.
    counts_steps: bool,
}

impl<'a> Meter<'a> {
    /// With the meter and the role of each engine core.
    pub fn new(targets: &'a [Target], steps: Vec<(StepMeter, Option<Role>)>) -> Self {
        let replicas = steps.len();
        Self {
            targets,
            steps,
            seen: Vec::new(),
            spans: targets.iter().any(Target::is_of_gaps).then(Vec::new),
            step_ends_ns: vec![Vec::new(); replicas],
            num_waiting: vec![0; replicas],
            backlog: Vec::new(),
            arrived: 0,
            prefill_hits: PrefixCacheStats::default(),
            counts_steps: true,
        }
    }

    /// More and more requests wait, and it is no use to go on.
    pub fn is_overloaded(&self) -> bool {
        queue_grows(&self.backlog, GROWTH_ON_THE_WAY)
    }

    /// No more sessions start: steps do not count any more.
    pub fn all_have_started(&mut self) {
        self.counts_steps = false;
    }

    /// What it comes to. The first `warmup` of the time in which sessions start does not count.
    /// `is_cut` if it was ended for its overload.
    pub fn finish(self, warmup: f64, is_cut: bool) -> Measured {
        let last_start_ns = self.seen.iter().filter(|it| it.is_first_turn).map(|it| it.arrival_ns).max();
        let end_ns = last_start_ns.unwrap_or(0);
        let until_end = &self.backlog[..self.backlog.partition_point(|step| step.at_ns <= end_ns)];
        let overloaded = is_cut || queue_grows(until_end, GROWTH_AT_THE_END);
        let served_share = until_end
            .last()
            .filter(|last| last.arrived > 0)
            .map_or(1.0, |last| 1.0 - f64::from(last.num_waiting) / last.arrived as f64);
        let begin_ns = (end_ns as f64 * warmup) as u64;
        let counts = |seen: &Seen| (begin_ns..=end_ns).contains(&seen.arrival_ns);
        let counted: Vec<&Seen> = self.seen.iter().filter(|seen| counts(seen)).collect();
        let span_s = (end_ns - begin_ns) as f64 / 1e9;
        let per_s = |count: u64| if span_s > 0.0 { count as f64 / span_s } else { 0.0 };
        let sum = |of: fn(&Seen) -> u32| counted.iter().map(|seen| u64::from(of(seen))).sum::<u64>();
        let (queries, hits, external_hits) = if self.has_roles() {
            (self.prefill_hits.queries, self.prefill_hits.hits, 0)
        } else {
            (
                sum(|seen| seen.prompt_tokens),
                sum(|seen| seen.hits_tokens),
                sum(|seen| seen.external_hits_tokens),
            )
        };
        let there_ns: u64 = counted.iter().map(|seen| seen.there_ns).sum();
        let promise = |target: &Target| match self.gaps(target, &counts) {
            Some(gaps) => gaps,
            None => requests(target, &counted),
        };
        let (shares, values_ms): (Vec<Share>, Vec<Option<f64>>) = self
            .targets
            .iter()
            .map(promise)
            .map(|(share, value_ms)| {
                // Whoever waits at the end of an overloaded run would wait for ever.
                let kept = if overloaded { 0 } else { share.kept };
                (Share { kept, of: share.of.max(u64::from(overloaded)) }, value_ms)
            })
            .unzip();
        let percentiles = |of: fn(&Seen) -> Option<u64>| {
            let mut values: Vec<u64> = counted.iter().filter_map(|seen| of(seen)).collect();
            values.sort_unstable();
            [0.5, 0.9, 0.99].map(|share| percentile_ms(&values, share).unwrap_or(0.0))
        };
        let [ttft_p50_ms, ttft_p90_ms, ttft_p99_ms] = percentiles(|seen| seen.ttft_ns);
        let [tpot_p50_ms, tpot_p90_ms, tpot_p99_ms] = percentiles(|seen| seen.tpot_ns);
        let [e2e_p50_ms, e2e_p90_ms, e2e_p99_ms] = percentiles(|seen| seen.e2e_ns);
        Measured {
            overloaded,
            served_share,
            shares,
            values_ms,
            ttft_p50_ms,
            ttft_p90_ms,
            ttft_p99_ms,
            tpot_p50_ms,
            tpot_p90_ms,
            tpot_p99_ms,
            e2e_p50_ms,
            e2e_p90_ms,
            e2e_p99_ms,
            requests: counted.len() as u64,
            requests_per_s: per_s(counted.len() as u64),
            prompt_tokens_per_s: per_s(sum(|seen| seen.prompt_tokens)),
            output_tokens_per_s: per_s(sum(|seen| seen.output_tokens)),
            queries_tokens: queries,
            hits_tokens: hits,
            external_hits_tokens: external_hits,
            mean_concurrency: if span_s > 0.0 { there_ns as f64 / 1e9 / span_s } else { 0.0 },
            steps: self.steps_of(|_| true),
            prefill_steps: self.has_roles().then(|| self.steps_of(|role| role == Some(Role::Prefill))),
            decode_steps: self.has_roles().then(|| self.steps_of(|role| role == Some(Role::Decode))),
        }
    }

    fn has_roles(&self) -> bool {
        self.steps.iter().any(|(_, role)| role.is_some())
    }

    fn steps_of(&self, is_meant: impl Fn(Option<Role>) -> bool) -> StepFigures {
        let meant = self.steps.iter().filter(|(_, role)| is_meant(*role));
        meant.fold(StepFigures::default(), |sum, (steps, _)| sum.plus(&steps.figures))
    }

    /// Gaps between tokens that keep a limit, and the gap at the promise's percentile; `None` for a
    /// promise of requests.
    fn gaps(&self, target: &Target, counts: &dyn Fn(&Seen) -> bool) -> Option<(Share, Option<f64>)> {
        let limit = target.limits.iter().find(|limit| limit.metric == Metric::Itl)?;
        let mut gaps_ns: Vec<u64> = Vec::new();
        for (seen, spans) in self.seen.iter().zip(self.spans.iter().flatten()) {
            if seen.is_whole && counts(seen) && is_of(target, seen) {
                let steps = spans.iter().flat_map(|span| span.first..=span.last);
                let all = &self.step_ends_ns[seen.replica as usize];
                let mut ends = steps.filter_map(|step| all.get(step as usize).copied());
                let mut last = ends.next();
                for end in ends {
                    gaps_ns.extend(last.map(|last| end - last));
                    last = Some(end);
                }
            }
        }
        gaps_ns.sort_unstable();
        let kept = gaps_ns.partition_point(|&gap| gap as f64 <= limit.at_most_ms * 1e6);
        let share = Share { kept: kept as u64, of: gaps_ns.len() as u64 };
        Some((share, percentile_ms(&gaps_ns, target.share)))
    }
}

/// Over the second half of the time so far the queue has grown from quarter to quarter, by a share of what
/// came.
fn queue_grows(backlog: &[Backlog], least_growth: f64) -> bool {
    let Some(last) = backlog.last() else { return false };
    let at = |share: f64| {
        let at_ns = (last.at_ns as f64 * share) as u64;
        &backlog[backlog.partition_point(|step| step.at_ns < at_ns).min(backlog.len() - 1)]
    };
    let marks = [0.5, 0.625, 0.75, 0.875, 1.0].map(at);
    let mean = |pair: &[&Backlog]| {
        (pair[1].waiting_ns - pair[0].waiting_ns) as f64 / (pair[1].at_ns - pair[0].at_ns).max(1) as f64
    };
    let means: Vec<f64> = marks.windows(2).map(mean).collect();
    let growth = f64::from(last.num_waiting) - f64::from(marks[0].num_waiting);
    let came = (last.arrived - marks[0].arrived) as f64;
    last.num_waiting >= FEWEST_WAITING && means.is_sorted_by(|a, b| a < b) && growth > least_growth * came
}

fn is_of(target: &Target, seen: &Seen) -> bool {
    target.tenant_index.is_none_or(|tenant| tenant == seen.tenant)
}

/// Requests that keep all limits of a promise, and where there is one limit, the value at its percentile.
fn requests(target: &Target, counted: &[&Seen]) -> (Share, Option<f64>) {
    let value = |limit: &Limit, seen: &Seen| match limit.metric {
        Metric::Ttft => seen.ttft_ns,
        Metric::E2e => seen.e2e_ns,
        Metric::Tpot | Metric::Itl => seen.tpot_ns,
    };
    let is_kept = |limit: &Limit, seen: &Seen| {
        // One token has no time between tokens to miss.
        let none_is_fine = limit.metric == Metric::Tpot && seen.is_whole;
        value(limit, seen).map_or(none_is_fine, |ns| ns as f64 <= limit.at_most_ms * 1e6)
    };
    let mut share = Share::default();
    let mut values: Vec<u64> = Vec::new();
    for seen in counted.iter().filter(|seen| is_of(target, seen)) {
        if let [limit] = &target.limits[..] {
            // A percentile of TPOT is over the answers that have one.
            if limit.metric == Metric::Tpot && seen.is_whole && seen.tpot_ns.is_none() {
                continue;
            }
            values.push(value(limit, seen).unwrap_or(u64::MAX));
        }
        share.of += 1;
        share.kept += u64::from(target.limits.iter().all(|limit| is_kept(limit, seen)));
    }
    values.sort_unstable();
    (share, percentile_ms(&values, target.share).filter(|&ms| ms < u64::MAX as f64 / 1e6))
}

/// By nearest rank; the values are sorted.
fn percentile_ms(sorted_ns: &[u64], share: f64) -> Option<f64> {
    let rank = (sorted_ns.len() as f64 * share - 1e-9).ceil().max(1.0) as usize;
    sorted_ns.get(rank - 1).map(|&ns| ns as f64 / 1e6)
}

impl Observer for Meter<'_> {
    fn on_step(&mut self, step: &StepRecord) {
        let replica = step.replica as usize;
        if self.counts_steps {
            let (steps, role) = &mut self.steps[replica];
            steps.on_step(step);
            if *role == Some(Role::Prefill) {
                self.prefill_hits.queries += step.prefix_cache.queries;
                self.prefill_hits.hits += step.prefix_cache.hits;
            }
        }
        let at_ns = step.finished_at.as_ns();
        if step.num_scheduled_requests > 0 && self.spans.is_some() {
            self.step_ends_ns[replica].push(at_ns);
        }
        let (last_ns, waiting_ns, num_waiting) =
            self.backlog.last().map_or((0, 0, 0), |last| (last.at_ns, last.waiting_ns, last.num_waiting));
        let waiting_ns = waiting_ns + u128::from(num_waiting) * u128::from(at_ns - last_ns);
        let was_waiting = std::mem::replace(&mut self.num_waiting[replica], step.num_waiting);
        let num_waiting = num_waiting - was_waiting + step.num_waiting;
        self.backlog.push(Backlog { at_ns, waiting_ns, num_waiting, arrived: self.arrived });
    }

    fn on_output_steps(&mut self, _request: &RequestRecord, spans: &[StepSpan]) {
        if let Some(all) = &mut self.spans {
            all.push(spans.into());
        }
    }

    fn on_request(&mut self, request: &RequestRecord) {
        let since_arrival = |at: SimTime| at.since(request.arrival).as_ns();
        let is_whole = request.is_whole();
        self.seen.push(Seen {
            replica: request.replica,
            arrival_ns: request.arrival.as_ns(),
            tenant: request.tenant,
            is_first_turn: request.turn == 0,
            ttft_ns: request.first_token.map(since_arrival),
            e2e_ns: is_whole.then(|| since_arrival(request.finished)),
            tpot_ns: tpot_ns(request),
            is_whole,
            there_ns: since_arrival(request.finished),
            prompt_tokens: request.num_prompt_tokens,
            output_tokens: request.num_output_tokens,
            hits_tokens: request.num_local_cached_tokens,
            external_hits_tokens: request.num_external_cached_tokens,
        });
    }

    fn on_evictions(&mut self, _replica: u32, _evictions: &[BlockEviction]) {}

    fn on_reuse_gaps(&mut self, _replica: u32, _gaps_ns: &[u64]) {}

    fn on_engine_call(
        &mut self,
        replica: u32,
        _at: SimTime,
        call: EngineCall<'_>,
        _journal: &[JournalEntry],
        _scheduler: &Scheduler,
    ) {
        match call {
            // Who goes on with a request has not got another one.
            EngineCall::AddRequest { .. } if self.steps[replica as usize].1 != Some(Role::Decode) => {
                self.arrived += 1;
            }
            EngineCall::Schedule { record, output } if self.counts_steps => {
                self.steps[replica as usize].0.on_schedule(record, output)
            }
            _ => {}
        }
    }
}
