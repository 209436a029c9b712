//! A ladder of rates, as inference-perf climbs it: stages of so many requests at Poisson times, each
//! stage after all answers of the one before, and no more requests under way than its workers hold.

use std::collections::VecDeque;

use rand::seq::SliceRandom;
use rand_distr::{Distribution, Exp};

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
    pub max_concurrency: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    pub rate_per_s: f64,
    pub duration_s: f64,
}

impl Stage {
    fn num_requests(self) -> usize {
        (self.rate_per_s * self.duration_s) as usize
    }
}

impl Ladder {
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
    /// When there was room again.
    not_before: SimTime,
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
            not_before: SimTime::ZERO,
        };
        workload.begin_stage(SimTime::ZERO);
        workload
    }

    fn begin_stage(&mut self, at: SimTime) {
        self.num_sent_in_stage = 0;
        let Some(&stage) = self.ladder.stages.get(self.stage) else { return };
        let mut rng = rng::stream(self.seed, "ladder times", self.stage as u64);
        let mut time_s = 0.0;
        for _ in 0..stage.num_requests() {
            self.due.push_back(at + SimTime::from_secs_f64(time_s));
            time_s += Exp::new(stage.rate_per_s).map_or(0.0, |gap| gap.sample(&mut rng));
        }
    }
}

impl Workload for LadderWorkload {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        let has_room = self.in_flight < self.ladder.max_concurrency;
        Ok(self.due.front().filter(|_| has_room).map(|&due| due.max(self.not_before)))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        let Some(at) = self.peek()? else { return Ok(None) };
        self.due.pop_front();
        let question = self.order[self.num_sent_in_stage % self.order.len()];
        let group = question / self.ladder.prompts_per_group;
        let mut prompt =
            TokenRuns::from_run(u64::from(group) * IDS_PER_TEXT, self.ladder.system_prompt_tokens);
        prompt.push_run(FIRST_QUESTION + u64::from(question) * IDS_PER_TEXT, self.ladder.question_tokens);
        let index = self.num_sent;
        let answer = TokenRuns::from_run(FIRST_ANSWER + index * IDS_PER_TEXT, self.ladder.output_tokens);
        self.num_sent += 1;
        self.num_sent_in_stage += 1;
        self.in_flight += 1;
        Ok(Some(Arrival { at, request: RequestSpec { index, ..RequestSpec::plain(prompt, answer) } }))
    }

    fn finished(&mut self, _index: u64, at: SimTime) {
        if self.in_flight == self.ladder.max_concurrency {
            self.not_before = at;
        }
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

    #[test]
    fn a_stage_waits_for_the_answers_of_the_one_before() {
        let stage = |rate_per_s, duration_s| Stage { rate_per_s, duration_s };
        let ladder = Ladder {
            num_replicas: 2,
            router: RouterConfig::default(),
            stages: vec![stage(3.0, 1.0), stage(2.0, 1.0)],
            num_groups: 2,
            prompts_per_group: 2,
            system_prompt_tokens: 60,
            question_tokens: 12,
            output_tokens: 10,
            max_concurrency: 2,
        };
        assert_eq!([0, 1, 2, 3, 4].map(|index| ladder.stage_of(index)), [0, 0, 0, 1, 1]);
        let mut workload = LadderWorkload::new(ladder, 1);
        let first = workload.next().unwrap().unwrap();
        assert_eq!((first.at, first.request.prompt.len()), (SimTime::ZERO, 72));
        let second = workload.next().unwrap().unwrap();
        assert_ne!(first.request.prompt, second.request.prompt);
        // Two are under way; the third is sent when there is room.
        assert_eq!(workload.peek().unwrap(), None);
        let late = SimTime::from_secs_f64(50.0);
        workload.finished(0, late);
        assert_eq!(workload.next().unwrap().unwrap().at, late);
        workload.finished(1, late);
        assert_eq!(workload.peek().unwrap(), None);
        workload.finished(2, SimTime::from_secs_f64(60.0));
        let next = workload.next().unwrap().unwrap();
        // Each stage asks from the first prompt on.
        assert_eq!((next.at, &next.request.prompt), (SimTime::from_secs_f64(62.0), &first.request.prompt));
    }
}
