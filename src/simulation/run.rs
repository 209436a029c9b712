//! The clock: takes the next event, whatever it is, until there is none.

use std::fmt;

use thiserror::Error;

use super::event_queue::{Event, EventQueue};
use super::lifecycle::Lifecycle;
use super::observer::Observer;
use super::replica::Replica;
use super::router::{ReplicaView, Router};
use super::serving::Serving;
use crate::engine::connector::{TierKind, TierStats};
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
    pub(super) replicas: Vec<Serving>,
    /// What the router sees of each replica.
    pub(super) views: Vec<ReplicaView>,
    pub(super) lifecycle: Lifecycle,
    pub(super) actions: Vec<Action>,
    pub(super) events: EventQueue,
    pub(super) now: SimTime,
    ended: Vec<u64>,
}

impl Simulation {
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
        let view = |replica: &Replica| ReplicaView {
            is_ready: true,
            num_blocks: replica.scheduler().config().num_gpu_blocks - 1,
            ..ReplicaView::default()
        };
        let views = replicas.iter().map(view).collect();
        let lifecycle = Lifecycle::new(replicas.len());
        let serving = |(index, mut replica): (usize, Replica)| {
            replica.set_index(index as u32);
            Serving::new(replica)
        };
        let replicas = replicas.into_iter().enumerate().map(serving).collect();
        Self {
            workload,
            router,
            replicas,
            views,
            lifecycle,
            actions,
            events,
            now: SimTime::ZERO,
            ended: Vec::new(),
        }
    }

    /// The time of the last event.
    pub fn now(&self) -> SimTime {
        self.now
    }

    pub fn replicas(&self) -> impl ExactSizeIterator<Item = &Replica> {
        self.replicas.iter().map(|serving| &serving.replica)
    }

    /// What the tiers behind the GPUs' caches have done, if there are any: those of one place in the
    /// order of tiers are added up over the replicas.
    pub fn tier_stats(&self) -> Vec<(TierKind, TierStats)> {
        let mut sum: Vec<(TierKind, TierStats)> = Vec::new();
        for replica in self.replicas() {
            for (place, (kind, stats)) in replica.tier_stats().into_iter().enumerate() {
                match sum.get_mut(place) {
                    Some((_, so_far)) => so_far.add(&stats),
                    None => sum.push((kind, stats)),
                }
            }
        }
        sum
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

    /// What the workload says of where its requests come from, so far.
    pub fn workload_notes(&self) -> WorkloadNotes {
        self.workload.notes()
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
            let num_waiting = self.lifecycle.at_router.len();
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
            self.events.pop();
        }
        match event {
            Event::Arrival => self.arrive(observer)?,
            Event::Update { replica } => {
                if self.replicas[replica as usize].takes_update(at) {
                    self.update(replica as usize, observer);
                }
            }
            Event::Abort { replica, slot, index } => {
                let at_replica = replica as usize;
                if self.replicas[at_replica].replica.abort(at, slot, index, observer) {
                    self.left(at_replica, index);
                    self.workload.aborted(index, at);
                    self.wake(at_replica);
                    self.switch_off_if_drained(at_replica, observer);
                }
            }
            Event::GiveUp { index } => self.give_up(index, observer),
            Event::Action(index) => self.act(index, observer)?,
            Event::Ready { replica } => self.ready(replica as usize, observer)?,
            Event::Scale => self.scale(observer)?,
            Event::Iterate { replica } => {
                if self.replicas[replica as usize].iterate(at, &mut self.events, observer) {
                    self.look(replica as usize);
                }
            }
        }
        Ok(true)
    }

    fn update(&mut self, at: usize, observer: &mut dyn Observer) {
        let mut ended = std::mem::take(&mut self.ended);
        let next = self.replicas[at].replica.update(self.now, &mut ended, observer);
        for index in ended.drain(..) {
            self.left(at, index);
            self.workload.finished(index, self.now);
        }
        self.ended = ended;
        self.replicas[at].plan(next, &mut self.events);
        self.look(at);
        self.switch_off_if_drained(at, observer);
    }

    /// Brings the router's view of a replica up to date.
    fn look(&mut self, at: usize) {
        self.replicas[at].look(&mut self.views[at]);
    }

    /// A request is no longer at a replica.
    fn left(&mut self, at: usize, index: u64) {
        self.views[at].num_in_flight -= 1;
        self.router.ended(index, at);
        self.lifecycle.ended(index);
    }

    /// Wakes a replica if it waits.
    fn wake(&mut self, at: usize) {
        self.replicas[at].wake(self.now, &mut self.events);
        self.look(at);
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
        let at = self.router.choose(&arrival.request, &self.views);
        self.router.sent(&arrival.request, at);
        self.views[at].num_in_flight += 1;
        let index = arrival.request.index;
        let trace_line = arrival.request.trace_line;
        let gives_up_at = arrival.request.patience.map(|patience| arrival.at + patience.lasts);
        let added = self.replicas[at].replica.add_request(self.now, arrival, observer);
        let slot = added.map_err(|source| SimulationError::Request { index, trace_line, source })?;
        if let Some(gives_up_at) = gives_up_at {
            let event = Event::Abort { replica: at as u32, slot, index };
            self.events.push(gives_up_at.max(self.now), event);
        }
        self.wake(at);
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
                    self.wake(at);
                }
            }
            ActionKind::Fail { replica } => self.fail(replica, observer)?,
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
