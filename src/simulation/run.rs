//! The clock: takes the next event, whatever it is, until there is none.

use std::fmt;

use thiserror::Error;

use super::event_queue::{Event, EventQueue};
use super::observer::Observer;
use super::replica::{Next, Replica};
use crate::engine::scheduler::RequestError;
use crate::units::SimTime;
use crate::workload::{Workload, WorkloadError, WorkloadNotes};

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

/// What somebody does to the server at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// `reset_external` also empties the tiers behind the GPU's cache.
    ResetPrefixCache { reset_running_requests: bool, reset_external: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    pub at: SimTime,
    pub kind: ActionKind,
}

pub struct Simulation {
    workload: Box<dyn Workload>,
    replica: Replica,
    actions: Vec<Action>,
    events: EventQueue,
    now: SimTime,
    /// When the replica's loop goes on; `None` while a step is being executed, or nothing is to do.
    /// An [`Event::Iterate`] of another time has been overtaken.
    iterate_at: Option<SimTime>,
    /// The replica's loop waits and may be woken.
    is_idle: bool,
    is_stuck: bool,
    ended: Vec<u64>,
}

impl Simulation {
    pub fn new(workload: Box<dyn Workload>, replica: Replica, actions: Vec<Action>) -> Self {
        let mut events = EventQueue::default();
        for (index, action) in actions.iter().enumerate() {
            events.push(action.at, Event::Action(index));
        }
        Self {
            workload,
            replica,
            actions,
            events,
            now: SimTime::ZERO,
            iterate_at: None,
            is_idle: true,
            is_stuck: false,
            ended: Vec::new(),
        }
    }

    /// The time of the last event.
    pub fn now(&self) -> SimTime {
        self.now
    }

    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Lets [`Observer::on_engine_call`] have the journal, and makes the engine list in full what it
    /// does. No decision changes.
    pub fn follow_engine(&mut self) {
        self.replica.follow_engine();
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
            return if self.is_stuck { Err(self.deadlock()) } else { Ok(false) };
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
            Event::Update => {
                let next = self.replica.update(at, &mut self.ended, observer);
                for index in self.ended.drain(..) {
                    self.workload.finished(index, at);
                }
                self.plan(next);
            }
            Event::Abort { slot, index } => {
                if self.replica.abort(at, slot, index, observer) {
                    self.workload.aborted(index, at);
                    self.wake();
                }
            }
            Event::Action(index) => self.act(index, observer),
            Event::Iterate if self.iterate_at == Some(at) => {
                self.iterate_at = None;
                self.is_idle = false;
                let next = self.replica.iterate(at, observer);
                self.plan(next);
            }
            Event::Iterate => {}
        }
        Ok(true)
    }

    fn plan(&mut self, next: Next) {
        self.is_stuck = next == Next::Stuck;
        match next {
            Next::Iterate(at) => self.iterate_at(at),
            Next::Update(at) => self.events.push(at, Event::Update),
            Next::Waiting(at) => {
                self.is_idle = true;
                self.iterate_at(at);
            }
            Next::Idle | Next::Stuck => self.is_idle = true,
        }
    }

    fn iterate_at(&mut self, at: SimTime) {
        self.iterate_at = Some(at);
        self.events.push(at, Event::Iterate);
    }

    /// Wakes the replica if it waits.
    fn wake(&mut self) {
        if std::mem::take(&mut self.is_idle) {
            self.iterate_at(self.now);
        }
    }

    fn arrive(&mut self, observer: &mut dyn Observer) -> Result<(), SimulationError> {
        if let Some(arrival) = self.workload.next()? {
            let index = arrival.request.index;
            let trace_line = arrival.request.trace_line;
            let patience = arrival.request.patience;
            let slot = self
                .replica
                .add_request(arrival, observer)
                .map_err(|source| SimulationError::Request { index, trace_line, source })?;
            if let Some(patience) = patience {
                self.events.push(self.now + patience.lasts, Event::Abort { slot, index });
            }
            self.wake();
        }
        Ok(())
    }

    fn act(&mut self, index: usize, observer: &mut dyn Observer) {
        match self.actions[index].kind {
            ActionKind::ResetPrefixCache { reset_running_requests, reset_external } => {
                self.replica.reset_prefix_cache(self.now, reset_running_requests, reset_external, observer);
                self.wake();
            }
        }
    }

    fn deadlock(&self) -> SimulationError {
        let scheduler = self.replica.scheduler();
        let mut waiting = scheduler.kv_holding_waiting().chain(scheduler.waiting());
        SimulationError::Deadlock {
            at: self.now,
            num_waiting: scheduler.get_num_unfinished_requests(),
            index: waiting.next().map_or(0, |request| request.id),
        }
    }
}
