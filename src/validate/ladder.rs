//! A ladder of rates, as inference-perf climbs it: stages of so many requests at random times, each
//! stage after all answers of the one before.

use std::collections::VecDeque;

use rand::Rng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Exp1, Poisson};

use super::simulate::Figures;
use crate::engine::kv_cache::BlockEviction;
use crate::prompt::TokenRuns;
use crate::simulation::router::RouterConfig;
use crate::simulation::{Observer, RequestRecord, StepRecord};
use crate::units::SimTime;
use crate::workload::{Arrival, RequestSpec, Workload, WorkloadError, rng};

/// From the last answer of a stage to the first request of the next: `interval`, and the second before
/// a stage that the load generator gives its workers.
const PAUSE: SimTime = SimTime(2_000_000_000);

/// Token ids of one text; far enough apart that no two texts share one.
const IDS_PER_TEXT: u64 = 1 << 32;
const FIRST_QUESTION: u64 = 1 << 60;
const FIRST_ANSWER: u64 = 1 << 61;

/// Prompts of a shared beginning and a question each, at one rate after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Ladder {
    pub num_replicas: u32,
    pub router: RouterConfig,
    /// The first warms up.
    pub stages: Vec<Stage>,
    pub num_groups: u32,
    pub prompts_per_group: u32,
    pub system_prompt_tokens: u32,
    pub question_tokens: u32,
    pub output_tokens: u32,
    /// A proxy refuses requests beyond so many under way; they are in no figure.
    pub max_requests: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    pub rate_per_s: f64,
    pub duration_s: f64,
    /// At which rate it was in fact sent, for times are random; `None` is not known.
    pub sent_per_s: Option<f64>,
}

impl Stage {
    fn num_requests(self) -> usize {
        (self.rate_per_s * self.duration_s) as usize
    }

    /// Seconds from the first to the last request. Each second gets a Poisson number of them, at times
    /// whose gaps are exponential and fill it.
    fn times_s(self, rng: &mut impl Rng) -> Vec<f64> {
        let mut times_s = Vec::with_capacity(self.num_requests());
        let mut second = 0.0;
        while let (true, Ok(in_a_second)) =
            (times_s.len() < self.num_requests(), Poisson::new(self.rate_per_s))
        {
            let num = in_a_second.sample(rng) as usize;
            let gaps: Vec<f64> = (0..num).map(|_| Exp1.sample(rng)).collect();
            let whole: f64 = gaps.iter().sum();
            let mut within = 0.0;
            times_s.extend(gaps.iter().map(|gap| {
                within += gap / whole;
                second + within
            }));
            second += 1.0;
        }
        times_s.truncate(self.num_requests());
        let first = times_s.first().copied().unwrap_or(0.0);
        let span = times_s.last().map_or(0.0, |last| last - first);
        let sent_span = self.sent_per_s.map(|rate_per_s| self.num_requests() as f64 / rate_per_s);
        let scale = sent_span.filter(|_| span > 0.0).map_or(1.0, |sent_span| sent_span / span);
        times_s.iter().map(|time_s| (time_s - first) * scale).collect()
    }
}

impl Ladder {
    /// Requests under way in a replica at most, if they are shared out evenly.
    pub fn max_requests_per_replica(&self) -> u32 {
        let longest = self.stages.iter().map(|stage| stage.num_requests() as u32).max().unwrap_or(0);
        self.max_requests.unwrap_or(u32::MAX).min(longest) / self.num_replicas
    }

    pub fn input_tokens(&self) -> u32 {
        self.system_prompt_tokens + self.question_tokens
    }

    /// The stage of request number `index`.
    fn stage_of(&self, index: u64) -> usize {
        let mut end = 0;
        let is_before = |stage: &&Stage| {
            end += stage.num_requests() as u64;
            end <= index
        };
        self.stages.iter().take_while(is_before).count()
    }
}

pub(super) struct LadderWorkload {
    ladder: Ladder,
    seed: u64,
    /// Prompts in the order in which every stage asks them.
    order: Vec<u32>,
    stage: usize,
    /// When the requests of the stage are to be sent.
    due: VecDeque<SimTime>,
    num_sent: u64,
    num_sent_in_stage: usize,
    in_flight: u32,
}

impl LadderWorkload {
    pub fn new(ladder: Ladder, seed: u64) -> Self {
        let mut order: Vec<u32> = (0..ladder.num_groups * ladder.prompts_per_group).collect();
        order.shuffle(&mut rng::stream(seed, "ladder order", 0));
        let mut workload = Self {
            ladder,
            seed,
            order,
            stage: 0,
            due: VecDeque::new(),
            num_sent: 0,
            num_sent_in_stage: 0,
            in_flight: 0,
        };
        workload.begin_stage(SimTime::ZERO);
        workload
    }

    fn begin_stage(&mut self, at: SimTime) {
        self.num_sent_in_stage = 0;
        let Some(&stage) = self.ladder.stages.get(self.stage) else { return };
        let mut rng = rng::stream(self.seed, "ladder times", self.stage as u64);
        let times_s = stage.times_s(&mut rng);
        self.due.extend(times_s.iter().map(|&time_s| at + SimTime::from_secs_f64(time_s)));
    }
}

impl Workload for LadderWorkload {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        Ok(self.due.front().copied())
    }

    /// `None` if the request that is due is refused.
    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        let Some(at) = self.due.pop_front() else { return Ok(None) };
        let question = self.order[self.num_sent_in_stage % self.order.len()];
        let group = question / self.ladder.prompts_per_group;
        let mut prompt =
            TokenRuns::from_run(u64::from(group) * IDS_PER_TEXT, self.ladder.system_prompt_tokens);
        prompt.push_run(FIRST_QUESTION + u64::from(question) * IDS_PER_TEXT, self.ladder.question_tokens);
        let index = self.num_sent;
        let answer = TokenRuns::from_run(FIRST_ANSWER + index * IDS_PER_TEXT, self.ladder.output_tokens);
        self.num_sent += 1;
        self.num_sent_in_stage += 1;
        if self.ladder.max_requests.is_some_and(|max| self.in_flight >= max) {
            return Ok(None);
        }
        self.in_flight += 1;
        Ok(Some(Arrival { at, request: RequestSpec { index, ..RequestSpec::plain(prompt, answer) } }))
    }

    fn finished(&mut self, _index: u64, at: SimTime) {
        self.in_flight -= 1;
        if self.in_flight == 0 && self.due.is_empty() {
            self.stage += 1;
            self.begin_stage(at + PAUSE);
        }
    }

    fn tenants(&self) -> &[String] {
        &[]
    }
}

/// Figures of each stage.
pub(super) struct StageFigures<'a> {
    ladder: &'a Ladder,
    pub stages: Vec<Figures<'a>>,
}

impl<'a> StageFigures<'a> {
    pub fn new(ladder: &'a Ladder, frontend_ns: &'a dyn Fn(&RequestRecord) -> u64) -> Self {
        Self { ladder, stages: ladder.stages.iter().map(|_| Figures::new(frontend_ns)).collect() }
    }
}

impl Observer for StageFigures<'_> {
    fn on_step(&mut self, _step: &StepRecord) {}

    fn on_request(&mut self, request: &RequestRecord) {
        let figures = &mut self.stages[self.ladder.stage_of(request.index)];
        figures.add_lookup(request.num_prompt_tokens, request.num_local_cached_tokens);
        figures.on_request(request);
    }

    fn on_evictions(&mut self, _replica: u32, _evictions: &[BlockEviction]) {}

    fn on_reuse_gaps(&mut self, _replica: u32, _gaps_ns: &[u64]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(stages: Vec<Stage>, max_requests: Option<u32>) -> Ladder {
        Ladder {
            num_replicas: 2,
            router: RouterConfig::default(),
            stages,
            num_groups: 2,
            prompts_per_group: 2,
            system_prompt_tokens: 60,
            question_tokens: 12,
            output_tokens: 10,
            max_requests,
        }
    }

    fn stage(rate_per_s: f64, duration_s: f64) -> Stage {
        Stage { rate_per_s, duration_s, sent_per_s: None }
    }

    #[test]
    fn a_stage_waits_for_the_answers_of_the_one_before() {
        let ladder = ladder(vec![stage(3.0, 1.0), stage(2.0, 1.0)], Some(2));
        assert_eq!([0, 1, 2, 3, 4].map(|index| ladder.stage_of(index)), [0, 0, 0, 1, 1]);
        let mut workload = LadderWorkload::new(ladder, 1);
        let first = workload.next().unwrap().unwrap();
        assert_eq!((first.at, first.request.prompt.len()), (SimTime::ZERO, 72));
        let second = workload.next().unwrap().unwrap();
        assert_ne!(first.request.prompt, second.request.prompt);
        // Two are under way; the third is refused.
        assert!(workload.peek().unwrap().is_some());
        assert_eq!(workload.next().unwrap(), None);
        assert_eq!(workload.peek().unwrap(), None);
        workload.finished(0, SimTime::from_secs_f64(50.0));
        assert_eq!(workload.peek().unwrap(), None);
        workload.finished(1, SimTime::from_secs_f64(60.0));
        let next = workload.next().unwrap().unwrap();
        // Each stage asks from the first prompt on.
        assert_eq!((next.at, &next.request.prompt), (SimTime::from_secs_f64(62.0), &first.request.prompt));
        assert_eq!(next.request.index, 3);
    }

    #[test]
    fn a_stage_is_sent_in_the_time_that_it_took() {
        let mut rng = rng::stream(1, "times", 0);
        let times_s = Stage { sent_per_s: Some(4.0), ..stage(3.0, 20.0) }.times_s(&mut rng);
        assert_eq!((times_s.len(), times_s[0]), (60, 0.0));
        assert!((times_s[59] - 15.0).abs() < 1e-9, "{times_s:?}");
        assert!(times_s.is_sorted());
    }
}
