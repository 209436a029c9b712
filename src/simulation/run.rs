//! The clock: takes the next event, whatever it is, until there is none.

use std::collections::VecDeque;
use std::fmt;

use thiserror::Error;

use super::data_parallel::{DataParallel, DataParallelConfig, Endpoints, Lockstep, LockstepStats, World};
use super::disaggregation::{Delivery, Disaggregation, Part};
use super::event_queue::{Event, EventQueue};
use super::lifecycle::{Lifecycle, ReplicaState};
use super::observer::Observer;
use super::pull::PullFailures;
use super::replica::{Answers, EndedRequest, Next, Replica};
use super::router::{Metrics, PrefixIndexStats, Router};
use super::serving::Serving;
use super::tier_ending::{TierEnding, tier_endings};
use crate::engine::hash::RequestBlockHasher;
use crate::engine::kv_events::CacheChange;
use crate::engine::scheduler::RequestError;
use crate::units::SimTime;
use crate::workload::{Arrival, Workload, WorkloadError, WorkloadNotes};

/// Why a simulation cannot go on.
#[derive(Debug, Error)]
pub enum SimulationError {
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The engine would refuse the request.
    #[error("request {index}: {source}")]
    Request {
        index: u64,
        /// Where the request stands in its trace.
        trace_line: Option<u64>,
        source: RequestError,
    },
    /// Requests wait and nothing will ever make room for them.
    #[error(
        "at {at} {num_waiting} requests wait and none can be admitted: request {index} needs more blocks \
         than the pool has; raise num_gpu_blocks or lower max_model_len"
    )]
    Deadlock { at: SimTime, num_waiting: usize, index: u64 },
    /// Requests wait at the router for a replica that never comes.
    #[error(
        "at {at} {num_waiting} requests wait at the router, and no replica will be ready again; restart one, \
         or let an autoscaler replace those that fail"
    )]
    NobodyReady { at: SimTime, num_waiting: usize },
    /// No two of them may look alike, and 32 bits tell them apart.
    #[error(
        "at {at} there have been more than 4 billion different KV cache blocks; raise block_size, or simulate a \
         part of the load"
    )]
    TooManyBlocks { at: SimTime },
}

impl SimulationError {
    /// What happened, with the name of the trace in front where it comes from one.
    pub fn in_trace(&self, trace: Option<impl fmt::Display>) -> String {
        let Some(trace) = trace else { return self.to_string() };
        match self {
            Self::Workload(error) => format!("{trace}: {error}"),
            Self::Request { trace_line: Some(line), source, .. } => format!("{trace}: line {line}: {source}"),
            other => other.to_string(),
        }
    }
}

/// What somebody does to the servers, or what happens to them, at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Of all. `reset_external` also empties the tiers behind the GPU's cache.
    ResetPrefixCache { reset_running_requests: bool, reset_external: bool },
    /// A replica is gone, with its requests and its cache.
    Fail { replica: usize },
    /// A machine is gone: so many replicas from this one on, and the tiers that they share as its replicas.
    FailNode { first: usize, num_replicas: usize },
    /// It begins anew and is ready after so long; if it is there, it fails first.
    Restart { replica: usize, start_up: SimTime },
    /// It takes no more requests, and goes when those that it has are done.
    Drain { replica: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    pub at: SimTime,
    pub kind: ActionKind,
}

pub struct Simulation {
    pub(super) workload: Box<dyn Workload>,
    pub(super) router: Box<dyn Router>,
    /// The engine cores of all replicas.
    pub(super) replicas: Vec<Serving>,
    pub(super) data_parallel: DataParallel,
    pub(super) metrics: Metrics,
    pub(super) lifecycle: Lifecycle,
    pub(super) disaggregation: Option<Disaggregation>,
    /// From the router to a replica.
    router_latency: SimTime,
    /// Requests on that way, with the endpoint.
    in_transit: VecDeque<(usize, Delivery)>,
    pub(super) actions: Vec<Action>,
    pub(super) events: EventQueue,
    pub(super) now: SimTime,
    /// Of one step, kept for their memory.
    answers: Answers,
    cache_changes: Vec<CacheChange>,
}

/// What a simulation knows at its end besides what it told its observer.
#[derive(Clone, Debug, Default)]
pub struct RunEnding {
    /// What the tiers behind the GPUs' caches have done, if there are any.
    pub tiers: Vec<TierEnding>,
    /// What the workload says of where its requests come from.
    pub workload: WorkloadNotes,
    /// Of a router that knows prefixes.
    pub prefix_index: Option<PrefixIndexStats>,
    /// Of ranks that run their steps together.
    pub lockstep: Option<LockstepStats>,
    /// What went wrong with reads of KV blocks between replicas, if there are any.
    pub pull_failures: Option<PullFailures>,
}

impl Simulation {
    /// Each engine core is a replica, unless [`Self::with_data_parallel`] says otherwise.
    ///
    /// # Panics
    /// Without a replica.
    pub fn new(
        workload: Box<dyn Workload>,
        replicas: Vec<Replica>,
        router: Box<dyn Router>,
        actions: Vec<Action>,
    ) -> Self {
        assert!(!replicas.is_empty(), "somebody has to serve");
        let mut events = EventQueue::default();
        for (index, action) in actions.iter().enumerate() {
            events.push(action.at, Event::Action(index));
        }
        let metrics = Metrics::new(replicas.iter().map(Replica::usable_blocks));
        let reads_events = router.reads_events();
        let lifecycle = Lifecycle::new(replicas.len());
        let data_parallel = DataParallel::none(replicas.len());
        let serving = |(index, mut replica): (usize, Replica)| {
            replica.set_index(index as u32);
            if reads_events {
                replica.record_cache_changes();
            }
            Serving::new(replica)
        };
        Self {
            workload,
            router,
            replicas: replicas.into_iter().enumerate().map(serving).collect(),
            data_parallel,
            metrics,
            lifecycle,
            disaggregation: None,
            router_latency: SimTime::ZERO,
            in_transit: VecDeque::new(),
            actions,
            events,
            now: SimTime::ZERO,
            answers: Answers::default(),
            cache_changes: Vec::new(),
        }
    }

    /// The engine cores are those of these replicas, in order; to be called before anything else is said
    /// of replicas. What the load balancers draw comes from streams of this seed.
    ///
    /// # Panics
    /// There are more or fewer engine cores.
    pub fn with_data_parallel(
        mut self,
        replicas: &[DataParallelConfig],
        endpoints: Endpoints,
        seed: u64,
    ) -> Self {
        let data_parallel = DataParallel::new(replicas, endpoints, seed);
        assert_eq!(data_parallel.num_engines(), self.replicas.len(), "engine cores of the replicas");
        let usable_blocks = |endpoint| {
            let engines = data_parallel.engines_of_endpoint(endpoint);
            self.replicas[engines].iter().map(|serving| serving.replica.usable_blocks()).sum()
        };
        self.metrics = Metrics::new((0..data_parallel.num_endpoints()).map(usable_blocks));
        self.lifecycle = Lifecycle::new(data_parallel.num_replicas());
        self.data_parallel = data_parallel;
        for (at, serving) in self.replicas.iter_mut().enumerate() {
            if self.data_parallel.lockstep(at).is_some() {
                serving.replica.run_in_lockstep();
            }
        }
        self
    }

    /// A request reaches its replica so long after it reached the router.
    pub fn with_router_latency(self, latency: SimTime) -> Self {
        Self { router_latency: latency, ..self }
    }

    /// The router sees the replicas' metrics as they were when they were last read: at 0 and after
    /// each interval. 0 is at any time.
    pub fn with_metrics_interval(mut self, interval: SimTime) -> Self {
        self.metrics.set_interval(interval);
        self
    }

    /// The time of the last event.
    pub fn now(&self) -> SimTime {
        self.now
    }

    pub fn replicas(&self) -> impl ExactSizeIterator<Item = &Replica> {
        self.replicas.iter().map(|serving| &serving.replica)
    }

    /// What is known at the end, or so far.
    pub fn ending(&self) -> RunEnding {
        let tiers = tier_endings(self.replicas());
        let prefix_index = self.router.index_stats();
        RunEnding {
            tiers,
            workload: self.workload.notes(),
            prefix_index,
            lockstep: self.data_parallel.lockstep_stats(),
            pull_failures: self.pull_failures(),
        }
    }

    /// Lets [`Observer::on_engine_call`] have the journal, and makes the engine list in full what it
    /// does. No decision changes.
    pub fn follow_engine(&mut self) {
        self.replicas.iter_mut().for_each(|serving| serving.replica.follow_engine());
    }

    /// See [`Workload::progress`].
    pub fn progress(&self) -> Option<f64> {
        self.workload.progress()
    }

    /// The workload's names of tenants.
    pub fn tenants(&self) -> &[String] {
        self.workload.tenants()
    }

    /// Takes one event; false when there is none left.
    ///
    /// # Errors
    /// See [`SimulationError`]; the simulation cannot go on after one.
    pub fn step(&mut self, observer: &mut dyn Observer) -> Result<bool, SimulationError> {
        self.step_before(SimTime::MAX, observer)
    }

    /// Takes all events up to and at `end`; false when there is none left after it.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn run_until(&mut self, end: SimTime, observer: &mut dyn Observer) -> Result<bool, SimulationError> {
        while self.step_before(end, observer)? {}
        Ok(self.next_event()?.is_some())
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<(), SimulationError> {
        while self.step(observer)? {}
        Ok(())
    }

    fn next_event(&mut self) -> Result<Option<(SimTime, Event)>, SimulationError> {
        let queued = self.events.peek();
        let arrival = self.workload.peek()?.map(|at| (at, Event::Arrival));
        Ok(match (queued, arrival) {
            (Some(queued), Some(arrival)) => Some(queued.min(arrival)),
            (queued, arrival) => queued.or(arrival),
        })
    }

    fn step_before(&mut self, end: SimTime, observer: &mut dyn Observer) -> Result<bool, SimulationError> {
        let Some((at, event)) = self.next_event()? else {
            let num_waiting = self.lifecycle.at_router.len() + self.num_waiting_for_decode();
            if num_waiting > 0 {
                return Err(SimulationError::NobodyReady { at: self.now, num_waiting });
            }
            let stuck = self.replicas.iter().find(|serving| serving.is_stuck);
            return stuck.map_or(Ok(false), |serving| Err(self.deadlock(&serving.replica)));
        };
        if at > end {
            return Ok(false);
        }
        debug_assert!(at >= self.now, "the clock went back from {} to {at}", self.now);
        self.now = at;
        if event != Event::Arrival {
            self.events.pop(event);
        }
        match event {
            Event::Arrival => self.arrive(observer)?,
            Event::Deliver => {
                if let Some((endpoint, delivery)) = self.in_transit.pop_front() {
                    self.deliver(endpoint, delivery, observer)?;
                }
            }
            Event::Update { replica } => {
                if self.replicas[replica as usize].takes_update(at) {
                    self.update(replica as usize, observer)?;
                }
            }
            Event::Hashed { replica } => self.admit(replica as usize, observer)?,
            Event::Abort { replica, slot, index } => {
                let engine = replica as usize;
                if self.replicas[engine].replica.abort(at, slot, index, observer) {
                    self.left(engine, index);
                    self.lifecycle.ended(index);
                    self.end_prefill(index);
                    self.workload.aborted(index, at);
                    self.wake(engine, observer);
                    self.switch_off_if_drained(engine, observer);
                }
            }
            Event::GiveUp { index } => self.give_up(index, observer),
            Event::Action(index) => self.act(index, observer)?,
            Event::Ready { replica } => self.ready(replica as usize, observer)?,
            Event::Land { replica } => self.replicas[replica as usize].land(at, &mut self.events, observer),
            Event::Wake { replica } => self.wake(replica as usize, observer),
            Event::Scale { scaler } => self.scale(scaler as usize, observer)?,
            Event::Iterate { replica } => self.iterate(replica as usize, observer),
        }
        self.wake_for_reads();
        Ok(true)
    }

    /// A turn of an engine core's loop, unless that has been overtaken.
    fn iterate(&mut self, at: usize, observer: &mut dyn Observer) {
        let serving = &mut self.replicas[at];
        if serving.takes_iterate(self.now) {
            serving.replica.process_input_queue();
            self.data_parallel.report(self.now, at, serving);
            let next = serving.iterate(self.now, observer);
            self.data_parallel.report(self.now, at, serving);
            match self.lockstep(at, observer) {
                Some((ranks, mut world)) if ranks.is_awake() => ranks.planned(at, next, &mut world),
                _ => self.replicas[at].plan(next, &mut self.events),
            }
        }
    }

    fn update(&mut self, at: usize, observer: &mut dyn Observer) -> Result<(), SimulationError> {
        let mut answers = std::mem::take(&mut self.answers);
        let next = self.replicas[at].replica.update(self.now, &mut answers, observer);
        let endpoint = self.data_parallel.endpoint_of(at);
        answers.started.drain(..).for_each(|index| self.router_of(endpoint).started(index, endpoint));
        for EndedRequest { index, first_scheduled } in answers.ended.drain(..) {
            self.left(at, index);
            match self.end_prefill(index) {
                Some(arrival) => self.begin_decode(at, arrival, first_scheduled, observer)?,
                None => {
                    self.lifecycle.ended(index);
                    self.workload.finished(index, self.now);
                }
            }
        }
        self.answers = answers;
        if self.some_router_reads_events() {
            let mut changes = std::mem::take(&mut self.cache_changes);
            self.replicas[at].replica.take_cache_changes(&mut changes);
            let now = self.now;
            let router = self.router_of(endpoint);
            if router.reads_events() && !changes.is_empty() {
                router.on_events(now, at, &changes);
            }
            self.cache_changes = changes;
        }
        self.plan_after_update(at, next, observer);
        self.data_parallel.report(self.now, at, &self.replicas[at]);
        // vLLM's gauges come with the output of a step (`make_stats` in `update_from_output`), and a long
        // step is long.
        let gauges = self.data_parallel.gauges(at, self.replicas[at].gauges());
        self.metrics.set(self.now, endpoint, gauges);
        self.switch_off_if_drained(at, observer);
        self.check_hashes(at)
    }

    /// Hashes of an engine core mean something still.
    fn check_hashes(&self, at: usize) -> Result<(), SimulationError> {
        let hasher = self.replicas[at].replica.scheduler().hasher();
        if hasher.is_some_and(RequestBlockHasher::is_exhausted) {
            return Err(SimulationError::TooManyBlocks { at: self.now });
        }
        Ok(())
    }

    fn plan_after_update(&mut self, at: usize, next: Next, observer: &mut dyn Observer) {
        match (self.lockstep(at, observer), next) {
            (Some((ranks, mut world)), Next::Iterate(later)) if ranks.is_awake() => {
                ranks.updated(at, later, &mut world);
            }
            (_, next) => self.replicas[at].plan(next, &mut self.events),
        }
    }

    /// The ranks that run their steps with an engine core, and what else there is.
    fn lockstep<'a>(
        &'a mut self,
        at: usize,
        observer: &'a mut dyn Observer,
    ) -> Option<(&'a mut Lockstep, World<'a>)> {
        let Self { data_parallel, replicas, events, now, .. } = self;
        Some((data_parallel.lockstep(at)?, World { now: *now, replicas, events, observer }))
    }

    /// A request is no longer at an engine core.
    pub(super) fn left(&mut self, at: usize, index: u64) {
        self.left_endpoint(self.data_parallel.endpoint_of(at), index);
        self.data_parallel.left(index, at);
    }

    /// The router sees that a request has left.
    fn left_endpoint(&mut self, endpoint: usize, index: u64) {
        self.metrics.left(endpoint);
        self.router_of(endpoint).ended(index, endpoint);
    }

    /// Wakes an engine core if it waits, and with a request those that run their steps with it.
    fn wake(&mut self, at: usize, observer: &mut dyn Observer) {
        let has_requests = self.replicas[at].replica.scheduler().has_unfinished_requests();
        match self.lockstep(at, observer) {
            Some((ranks, mut world)) if has_requests && !ranks.is_awake() => {
                ranks.begin_wave(&mut world);
                self.data_parallel.wave_changed(self.now, at);
            }
            _ => self.replicas[at].wake(self.now, &mut self.events),
        }
    }

    fn arrive(&mut self, observer: &mut dyn Observer) -> Result<(), SimulationError> {
        let Some(arrival) = self.workload.next()? else { return Ok(()) };
        self.send(arrival, observer)
    }

    /// Sends a request to the replica that the router chooses.
    pub(super) fn send(
        &mut self,
        arrival: Arrival,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        if !self.has_ready_replica() {
            self.wait_at_router(arrival);
            return Ok(());
        }
        self.lifecycle.sent(&arrival);
        let endpoint = self.router.choose(self.now, &arrival.request, self.metrics.views(self.now));
        self.router.sent(&arrival.request, endpoint);
        let prompt_hashes = self.router.take_prompt_hashes();
        let part = self.first_part(&arrival);
        self.dispatch(endpoint, Delivery { arrival, part, prompt_hashes }, observer)
    }

    /// A request, or a part of it, goes to an endpoint.
    pub(super) fn dispatch(
        &mut self,
        endpoint: usize,
        delivery: Delivery,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        self.metrics.sent(endpoint);
        if self.router_latency == SimTime::ZERO {
            return self.deliver(endpoint, delivery, observer);
        }
        self.in_transit.push_back((endpoint, delivery));
        self.events.push(self.now + self.router_latency, Event::Deliver);
        Ok(())
    }

    fn deliver(
        &mut self,
        endpoint: usize,
        delivery: Delivery,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        let index = delivery.arrival.request.index;
        let state = self.lifecycle.states[self.data_parallel.replica_of_endpoint(endpoint)];
        if matches!(state, ReplicaState::Off | ReplicaState::Starting(_)) {
            // It went while the request was on its way.
            self.left_endpoint(endpoint, index);
            let Delivery { arrival, part, .. } = delivery;
            return match part {
                Part::Decode { first_scheduled } => self.send_to_decode(arrival, first_scheduled, observer),
                Part::Whole | Part::Prefill => self.send(arrival, observer),
            };
        }
        let at = self.data_parallel.choose(self.now, endpoint, index);
        let hashed_at = self.replicas[at].replica.receive(self.now, delivery);
        if hashed_at > self.now {
            self.events.push(hashed_at, Event::Hashed { replica: at as u32 });
            return Ok(());
        }
        self.admit(at, observer)
    }

    /// A replica's engine takes in the request that reached it first, if that is hashed; a server that
    /// began anew meanwhile may have lost it.
    fn admit(&mut self, at: usize, observer: &mut dyn Observer) -> Result<(), SimulationError> {
        match self.replicas[at].replica.next_received(self.now) {
            Some(delivery) => self.take_in(at, delivery, observer),
            None => Ok(()),
        }
    }

    /// A replica's engine takes in what its input thread still hashes, because it fails.
    pub(super) fn admit_all(
        &mut self,
        at: usize,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        while let Some(delivery) = self.replicas[at].replica.next_received(SimTime::MAX) {
            self.take_in(at, delivery, observer)?;
        }
        Ok(())
    }

    fn take_in(
        &mut self,
        at: usize,
        delivery: Delivery,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        let arrival = &delivery.arrival;
        let index = arrival.request.index;
        let trace_line = arrival.request.trace_line;
        // An abort waits behind its request in the input thread.
        let gives_up_at = arrival.request.patience.map(|patience| arrival.at + patience.lasts);
        let added = self.replicas[at].replica.add_request(self.now, delivery, observer);
        let slot = added.map_err(|source| SimulationError::Request { index, trace_line, source })?;
        self.check_hashes(at)?;
        if let Some(gives_up_at) = gives_up_at {
            // Who gave up on the way is aborted as soon as it is there.
            let event = Event::Abort { replica: at as u32, slot, index };
            self.events.push(gives_up_at.max(self.now), event);
        }
        self.wake(at, observer);
        Ok(())
    }

    fn act(&mut self, index: usize, observer: &mut dyn Observer) -> Result<(), SimulationError> {
        match self.actions[index].kind {
            ActionKind::ResetPrefixCache { reset_running_requests, reset_external } => {
                for at in 0..self.replicas.len() {
                    self.replicas[at].replica.reset_prefix_cache(
                        self.now,
                        reset_running_requests,
                        reset_external,
                        observer,
                    );
                    self.wake(at, observer);
                }
            }
            ActionKind::Fail { replica } => self.fail(replica, observer)?,
            ActionKind::FailNode { first, num_replicas } => {
                self.fail_node(first..first + num_replicas, observer)?;
            }
            ActionKind::Restart { replica, start_up } => self.restart(replica, start_up, observer)?,
            ActionKind::Drain { replica } => self.drain(replica, observer),
        }
        Ok(())
    }

    fn deadlock(&self, replica: &Replica) -> SimulationError {
        let scheduler = replica.scheduler();
        let mut waiting = scheduler.kv_holding_waiting().chain(scheduler.waiting());
        SimulationError::Deadlock {
            at: self.now,
            num_waiting: scheduler.get_num_unfinished_requests(),
            index: waiting.next().map_or(0, |request| request.id),
        }
    }
}
