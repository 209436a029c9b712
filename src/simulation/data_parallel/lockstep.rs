//! Ranks of a mixture-of-experts model run their steps together: all of them share the experts of a
//! layer, so each step of one is a step of all (`DPEngineCoreProc` in `v1/engine/core.py`).
//!
//! - Each turn of an engine core's loop is one pass through the model: the step that it has planned, or
//!   where there is none, a dummy batch of one token.
//! - A pass begins when all have it ready, the one before has left the GPU, and ends when the slowest is
//!   done. Ranks are padded to the one with most tokens while all of them fit in a CUDA graph; else each
//!   has its own number (`coordinate_batch_across_dp` in `v1/worker/dp_utils.py`).
//! - After the first pass of a wave, and after every `dp_sync_interval` passes, the ranks wait for each
//!   other and agree whether any of them has requests. If none has, all sleep, and the next request
//!   begins a new wave. Until then they compute dummy batches.
//! - Input buffers are used again, so the next pass can be prepared when this one has begun on the GPU.
//!
//! Messages between processes take no time here.

use std::collections::VecDeque;
use std::ops::Range;

use serde::Serialize;

use crate::cost::{StepShape, StepTime, StepTokens};
use crate::simulation::event_queue::EventQueue;
use crate::simulation::observer::Observer;
use crate::simulation::pipeline::Pipeline;
use crate::simulation::replica::Next;
use crate::simulation::serving::Serving;
use crate::units::SimTime;

/// How the ranks of a replica run their steps together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockstepConfig {
    /// Passes between two agreements whether to go on; at least one.
    pub dp_sync_interval: u32,
    /// The most tokens of a CUDA graph; 0 without.
    pub max_cudagraph_capture_size: u32,
    pub pipeline_parallel_size: u32,
}

/// What ranks that run their steps together have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LockstepStats {
    /// Times in which they woke.
    pub waves: u64,
    /// Passes of all ranks together.
    pub passes: u64,
    /// Of these, those in which nobody had a step.
    pub idle_passes: u64,
    /// Parts of ranks in passes.
    pub batches: u64,
    /// Of these, dummy batches of ranks that had no step, idle passes included.
    pub dummy_batches: u64,
    /// Tokens that somebody asked for, in all passes, and those that were computed to pad ranks and in dummy
    /// batches.
    pub tokens: u64,
    pub padding_tokens: u64,
    /// GPU time of steps, summed over ranks, and what of it they waited for slower ranks.
    pub gpu_ns: u64,
    pub waiting_ns: u64,
}

impl LockstepStats {
    pub(in crate::simulation) fn add(&mut self, more: &Self) {
        self.waves += more.waves;
        self.passes += more.passes;
        self.idle_passes += more.idle_passes;
        self.batches += more.batches;
        self.dummy_batches += more.dummy_batches;
        self.tokens += more.tokens;
        self.padding_tokens += more.padding_tokens;
        self.gpu_ns += more.gpu_ns;
        self.waiting_ns += more.waiting_ns;
    }
}

/// What a rank's loop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// The time at which it goes on is known.
    No,
    /// The output of a step that has not begun, because others are not ready for it.
    Output,
    /// For its dummy batch to begin.
    Dummy,
    /// For the others to come to the agreement, since this time.
    Agreement(SimTime),
}

/// A part of a pass.
#[derive(Debug, Default)]
struct Part {
    ready_at: SimTime,
    /// Of a dummy batch empty.
    shape: StepShape,
}

#[derive(Debug)]
struct Rank {
    /// Of passes that have not begun.
    parts: VecDeque<Part>,
    waits: Waits,
    /// Its turn has brought its part in the pass.
    has_part: bool,
    num_turns: u64,
}

/// The ranks of one replica.
#[derive(Debug)]
pub(in crate::simulation) struct Lockstep {
    config: LockstepConfig,
    engines: Range<usize>,
    ranks: Vec<Rank>,
    pipeline: Pipeline,
    is_awake: bool,
    num_passes: u64,
    last_started_at: SimTime,
    stats: LockstepStats,
    /// Kept for their memory.
    spare: Vec<StepShape>,
    parts: Vec<Part>,
    times: Vec<StepTime>,
}

/// What the ranks' loops work on.
pub(in crate::simulation) struct World<'a> {
    pub now: SimTime,
    pub replicas: &'a mut [Serving],
    pub events: &'a mut EventQueue,
    pub observer: &'a mut dyn Observer,
}

impl Lockstep {
    pub fn new(config: LockstepConfig, engines: Range<usize>) -> Self {
        let rank = |_| Rank { parts: VecDeque::new(), waits: Waits::No, has_part: false, num_turns: 0 };
        Self {
            ranks: engines.clone().map(rank).collect(),
            engines,
            pipeline: Pipeline::new(config.pipeline_parallel_size),
            config,
            is_awake: false,
            num_passes: 0,
            last_started_at: SimTime::ZERO,
            stats: LockstepStats::default(),
            spare: Vec::new(),
            parts: Vec::new(),
            times: Vec::new(),
        }
    }

    pub fn is_awake(&self) -> bool {
        self.is_awake
    }

    pub fn stats(&self) -> LockstepStats {
        self.stats
    }

    /// Which turn of which wave a rank is in, for its reports.
    pub fn step_of_wave(&self, engine: usize) -> (u64, u64) {
        (self.stats.waves, self.ranks[engine - self.engines.start].num_turns)
    }

    /// The servers are gone.
    pub fn reset(&mut self, now: SimTime) {
        for rank in &mut self.ranks {
            self.spare.extend(rank.parts.drain(..).map(|part| part.shape));
            (rank.waits, rank.has_part, rank.num_turns) = (Waits::No, false, 0);
        }
        self.pipeline = Pipeline::new(self.config.pipeline_parallel_size);
        self.last_started_at = now;
        self.is_awake = false;
    }

    /// A rank has a request, and all begin.
    pub fn begin_wave(&mut self, world: &mut World<'_>) {
        self.is_awake = true;
        self.stats.waves += 1;
        for (rank, engine) in self.ranks.iter_mut().zip(self.engines.clone()) {
            rank.num_turns = 0;
            rank.waits = Waits::No;
            world.replicas[engine].go_on_at(world.now, world.events);
        }
    }

    /// A rank's loop has planned what it could: `next` is what it would do alone.
    pub fn planned(&mut self, engine: usize, next: Next, world: &mut World<'_>) {
        let at = engine - self.engines.start;
        let serving = &mut world.replicas[engine];
        serving.expect_landings(world.events);
        serving.is_stuck = next == Next::Stuck;
        let planned = serving.replica.take_planned_for_ranks();
        self.ranks[at].has_part = planned.is_some();
        if let Some((ready_at, shape)) = planned {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.clone_from(shape);
            self.ranks[at].parts.push_back(Part { ready_at, shape: copy });
        }
        match next {
            Next::Iterate(later) if self.ranks[at].has_part => self.end_turn(engine, later, world),
            Next::Update(_) => self.await_output(engine, world),
            Next::Iterate(_) | Next::Idle | Next::Waiting(_) | Next::Stuck => self.join_idly(engine, world),
        }
        self.run_passes(world);
    }

    /// A rank's loop has processed the output of a step, and would go on at `later`.
    pub fn updated(&mut self, engine: usize, later: SimTime, world: &mut World<'_>) {
        if self.ranks[engine - self.engines.start].has_part {
            self.end_turn(engine, later, world);
        } else {
            self.join_idly(engine, world);
        }
        self.run_passes(world);
    }

    fn await_output(&mut self, engine: usize, world: &mut World<'_>) {
        let serving = &mut world.replicas[engine];
        let done_at = serving.replica.oldest_done_at();
        self.ranks[engine - self.engines.start].waits =
            if done_at.is_some() { Waits::No } else { Waits::Output };
        if let Some(done_at) = done_at {
            serving.plan(Next::Update(done_at.max(world.now)), world.events);
        }
    }

    /// A rank without a step takes part with a dummy batch.
    fn join_idly(&mut self, engine: usize, world: &World<'_>) {
        let host_time = world.replicas[engine].replica.dummy_host_time();
        let rank = &mut self.ranks[engine - self.engines.start];
        let mut shape = self.spare.pop().unwrap_or_default();
        shape.clear();
        rank.parts.push_back(Part { ready_at: world.now + host_time, shape });
        rank.waits = Waits::Dummy;
    }

    fn end_turn(&mut self, engine: usize, at: SimTime, world: &mut World<'_>) {
        let rank = &mut self.ranks[engine - self.engines.start];
        rank.num_turns += 1;
        if rank.num_turns == 1 || rank.num_turns.is_multiple_of(u64::from(self.config.dp_sync_interval)) {
            rank.waits = Waits::Agreement(at);
            self.agree(world);
        } else {
            rank.waits = Waits::No;
            world.replicas[engine].go_on_at(at, world.events);
        }
    }

    /// Goes on, or to sleep, if all have come.
    fn agree(&mut self, world: &mut World<'_>) {
        let mut all_at = world.now;
        for rank in &self.ranks {
            let Waits::Agreement(at) = rank.waits else { return };
            all_at = all_at.max(at);
        }
        // Who is stuck is not helped by dummy batches; something has to happen first.
        let can_go_on =
            |serving: &Serving| serving.replica.scheduler().has_unfinished_requests() && !serving.is_stuck;
        let goes_on = world.replicas[self.engines.clone()].iter().any(can_go_on);
        self.is_awake = goes_on;
        for (rank, engine) in self.ranks.iter_mut().zip(self.engines.clone()) {
            rank.waits = Waits::No;
            if goes_on {
                world.replicas[engine].go_on_at(all_at, world.events);
            } else {
                world.replicas[engine].sleep();
            }
        }
    }

    /// Runs the passes that all have ready.
    fn run_passes(&mut self, world: &mut World<'_>) {
        while self.ranks.iter().all(|rank| !rank.parts.is_empty()) {
            self.parts.clear();
            self.parts.extend(self.ranks.iter_mut().filter_map(|rank| rank.parts.pop_front()));
            let joined_at = self.run_pass(world);
            for at in 0..self.ranks.len() {
                let engine = self.engines.start + at;
                match self.ranks[at].waits {
                    Waits::Output => self.await_output(engine, world),
                    Waits::Dummy if self.ranks[at].parts.is_empty() => {
                        self.end_turn(engine, joined_at, world)
                    }
                    Waits::Dummy | Waits::No | Waits::Agreement(_) => {}
                }
            }
            self.spare.extend(self.parts.drain(..).map(|part| part.shape));
        }
    }

    /// Runs the pass that is in `parts`, and says when all were ready for it.
    fn run_pass(&mut self, world: &mut World<'_>) -> SimTime {
        let ready_at = self.parts.iter().map(|part| part.ready_at).max().unwrap_or_default();
        let joined_at = ready_at.max(self.last_started_at).max(world.now);
        let num_tokens = |part: &Part| part.shape.num_tokens().max(1);
        let most = self.parts.iter().map(num_tokens).max().unwrap_or(1);
        let is_padded = most <= self.config.max_cudagraph_capture_size;
        let all = if is_padded {
            most.saturating_mul(self.parts.len() as u32)
        } else {
            self.parts.iter().map(num_tokens).sum()
        };
        let tokens =
            |part: &Part| StepTokens { own: if is_padded { most } else { num_tokens(part) }, most, all };
        let is_idle = self.parts.iter().all(Part::is_dummy);
        self.times.clear();
        for (part, engine) in self.parts.iter().zip(self.engines.clone()) {
            // A dummy batch does no more than the steps that it goes with.
            let time = if part.is_dummy() && !is_idle {
                StepTime::default()
            } else {
                world.replicas[engine].replica.step_time_of_rank(&part.shape, tokens(part))
            };
            self.times.push(time);
        }
        let gpu_ns = self.times.iter().map(StepTime::gpu_ns).max().unwrap_or(0);
        let head_ns = self.times.iter().map(|time| time.head_ns).max().unwrap_or(0);
        let whole = StepTime { other_ns: gpu_ns, head_ns, ..StepTime::default() };
        let passage = self.pipeline.run(self.num_passes, joined_at, whole);
        self.num_passes += 1;
        self.last_started_at = passage.started_at;
        self.stats.passes += 1;
        self.stats.batches += self.parts.len() as u64;
        self.stats.idle_passes += u64::from(is_idle);
        self.stats.padding_tokens += u64::from(all);
        for (at, engine) in self.engines.clone().enumerate() {
            if self.parts[at].is_dummy() {
                self.stats.dummy_batches += 1;
                continue;
            }
            let own_tokens = u64::from(self.parts[at].shape.num_tokens());
            self.stats.tokens += own_tokens;
            self.stats.padding_tokens -= own_tokens;
            let mut time = self.times[at];
            let waiting_ns = gpu_ns - time.gpu_ns();
            self.stats.gpu_ns += gpu_ns;
            self.stats.waiting_ns += waiting_ns;
            // It waits in the collectives of the layers.
            time.comms_ns += waiting_ns;
            world.replicas[engine].replica.launch_oldest(world.now, time, passage, world.observer);
            world.replicas[engine].expect_landings(world.events);
        }
        joined_at
    }
}

impl Part {
    fn is_dummy(&self) -> bool {
        self.shape.num_tokens() == 0
    }
}
