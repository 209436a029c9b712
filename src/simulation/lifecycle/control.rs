//! The simulation's part in the coming and going of replicas.

use std::ops::Range;

use super::autoscaler::{Reading, ScalingMetric};
use super::{LifecycleConfig, OnFailure, PoolScaler, ReplicaState};
use crate::engine::FinishReason;
use crate::simulation::disaggregation::Role;
use crate::simulation::event_queue::Event;
use crate::simulation::observer::{NO_REPLICA, Observer, RequestRecord, ServerLoss};
use crate::simulation::router::ReplicaView;
use crate::simulation::run::{ActionKind, Simulation, SimulationError};
use crate::units::SimTime;
use crate::workload::Arrival;

impl Simulation {
    /// Replicas may come and go.
    pub fn with_lifecycle(mut self, config: LifecycleConfig) -> Self {
        for (at, _) in config.is_there.iter().enumerate().filter(|(_, is_there)| !**is_there) {
            self.lifecycle.states[at] = ReplicaState::Off;
            self.set_ready(at, false);
        }
        let loses_requests = |kind| {
            matches!(kind, ActionKind::Fail { .. } | ActionKind::FailNode { .. } | ActionKind::Restart { .. })
        };
        let can_lose_requests = self.actions.iter().any(|action| loses_requests(action.kind));
        self.lifecycle.on_failure = config.on_failure;
        self.lifecycle.can_lose_requests = can_lose_requests;
        self.lifecycle.in_flight =
            (can_lose_requests && config.on_failure == OnFailure::Retry).then(Default::default);
        for (scaler, pool) in config.autoscalers.iter().enumerate() {
            self.events.push(pool.autoscaler.interval(), Event::Scale { scaler: scaler as u32 });
        }
        self.lifecycle.scalers = config.autoscalers;
        self
    }

    /// The simulation's own router may send requests to a replica.
    pub(in crate::simulation) fn takes_requests(&self, at: usize) -> bool {
        self.lifecycle.states[at] == ReplicaState::Ready && self.role(at) != Some(Role::Decode)
    }

    /// Somebody is ready for requests.
    pub(in crate::simulation) fn has_ready_replica(&self) -> bool {
        self.metrics.known().iter().any(|view| view.is_ready)
    }

    /// Nobody is ready for a request: it waits here.
    pub(in crate::simulation) fn wait_at_router(&mut self, arrival: Arrival) {
        if let Some(patience) = arrival.request.patience {
            let gives_up_at = (arrival.at + patience.lasts).max(self.now);
            self.events.push(gives_up_at, Event::GiveUp { index: arrival.request.index });
        }
        self.lifecycle.at_router.push_back(arrival);
    }

    /// The client of a request gives up; if that still waits here, it ends.
    pub(in crate::simulation) fn give_up(&mut self, index: u64, observer: &mut dyn Observer) {
        let whole = self.lifecycle.give_up(index).map(|arrival| (arrival, None));
        let Some((arrival, first_scheduled)) = whole.or_else(|| self.give_up_decode(index)) else { return };
        self.lifecycle.ended(index);
        observer.on_request(&RequestRecord { first_scheduled, ..unserved(&arrival, self.now) });
        self.workload.aborted(index, self.now);
    }

    /// All endpoints of a replica take requests, or none.
    pub(in crate::simulation) fn set_ready(&mut self, at: usize, is_ready: bool) {
        for endpoint in self.data_parallel.endpoints_of(at) {
            self.metrics.set_ready(endpoint, is_ready);
        }
    }

    fn set_state(&mut self, at: usize, state: ReplicaState, observer: &mut dyn Observer) {
        self.lifecycle.states[at] = state;
        self.set_ready(at, self.takes_requests(at));
        observer.on_replica_state(at as u32, self.now, state);
    }

    /// A replica is gone at once, and what it was doing is lost.
    pub(in crate::simulation) fn fail(
        &mut self,
        at: usize,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        if !self.lifecycle.states[at].is_paid() {
            return Ok(());
        }
        for engine in self.data_parallel.engines(at) {
            self.admit_all(engine, observer)?;
        }
        self.set_state(at, ReplicaState::Off, observer);
        let reports = self.lifecycle.on_failure == OnFailure::Report;
        let mut loss = ServerLoss { replica: at as u32, at: self.now, num_requests: 0, num_output_tokens: 0 };
        let mut lost_at = Vec::new();
        for engine in self.data_parallel.engines(at) {
            let lost = self.replicas[engine].shut_down(self.now, reports, observer);
            loss.num_requests += lost.indices.len() as u64;
            loss.num_output_tokens += lost.num_output_tokens;
            self.fail_links(engine, &lost.indices);
            lost_at.extend(lost.indices.into_iter().map(|index| (index, engine)));
        }
        self.data_parallel.reset(at, self.now);
        observer.on_failure(&loss);
        lost_at.sort_unstable();
        for (index, engine) in lost_at {
            self.left(engine, index);
            self.end_prefill(index);
            match self.lifecycle.in_flight.as_mut().and_then(|in_flight| in_flight.remove(&index)) {
                Some(arrival) => self.send(arrival, observer)?,
                None => self.workload.finished(index, self.now),
            }
        }
        self.reconcile(observer);
        Ok(())
    }

    /// A machine is gone at once, with its replicas and what they kept there together.
    pub(in crate::simulation) fn fail_node(
        &mut self,
        replicas: Range<usize>,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        // What is lost on one of them is not sent to the next.
        replicas.clone().for_each(|at| self.metrics.set_ready(at, false));
        for at in replicas.clone() {
            self.fail(at, observer)?;
            if let Some(transfers) = self.replicas[at].replica.transfers() {
                transfers.connector().lose_node();
            }
        }
        Ok(())
    }

    /// A replica begins anew; what it was doing is lost.
    pub(in crate::simulation) fn restart(
        &mut self,
        at: usize,
        start_up: SimTime,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        self.fail(at, observer)?;
        if self.lifecycle.states[at] == ReplicaState::Off {
            self.start(at, start_up, observer);
        }
        Ok(())
    }

    fn start(&mut self, at: usize, start_up: SimTime, observer: &mut dyn Observer) {
        let ready_at = self.now + start_up;
        self.lifecycle.started_at[at] = self.now;
        self.set_state(at, ReplicaState::Starting(ready_at), observer);
        self.events.push(ready_at, Event::Ready { replica: at as u32 });
    }

    /// A replica has started, unless it is gone again.
    pub(in crate::simulation) fn ready(
        &mut self,
        at: usize,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        if self.lifecycle.states[at] != ReplicaState::Starting(self.now) {
            return Ok(());
        }
        self.set_state(at, ReplicaState::Ready, observer);
        for arrival in std::mem::take(&mut self.lifecycle.at_router) {
            self.send(arrival, observer)?;
        }
        for (arrival, first_scheduled) in self.take_waiting_for_decode() {
            self.send_to_decode(arrival, first_scheduled, observer)?;
        }
        Ok(())
    }

    /// A replica takes no more requests, and goes when those that it has are done.
    pub(in crate::simulation) fn drain(&mut self, at: usize, observer: &mut dyn Observer) {
        match self.lifecycle.states[at] {
            ReplicaState::Ready => self.set_state(at, ReplicaState::Draining, observer),
            ReplicaState::Starting(_) => self.set_state(at, ReplicaState::Off, observer),
            ReplicaState::Off | ReplicaState::Draining => return,
        }
        self.switch_off_if_drained(self.data_parallel.engines(at).start, observer);
        self.reconcile(observer);
    }

    /// Called when a request has left an engine core, or its blocks have been read.
    pub(in crate::simulation) fn switch_off_if_drained(
        &mut self,
        engine: usize,
        observer: &mut dyn Observer,
    ) {
        let at = self.data_parallel.replica_of(engine);
        if self.lifecycle.states[at] != ReplicaState::Draining || !self.is_drained(at) {
            return;
        }
        self.set_state(at, ReplicaState::Off, observer);
        for engine in self.data_parallel.engines(at) {
            self.replicas[engine].shut_down(self.now, false, observer);
            self.fail_links(engine, &[]);
        }
        self.data_parallel.reset(at, self.now);
        self.reconcile(observer);
    }

    /// Nobody needs a replica any more, nor the blocks of prompts that it has computed.
    fn is_drained(&self, at: usize) -> bool {
        let is_free = |endpoint: usize| self.metrics.known()[endpoint].num_in_flight == 0;
        let is_read = |engine: usize| self.replicas[engine].replica.used_blocks() == 0;
        self.data_parallel.endpoints_of(at).all(is_free)
            && (self.role(at) != Some(Role::Prefill) || self.data_parallel.engines(at).all(is_read))
    }

    /// An autoscaler looks at its metric.
    pub(in crate::simulation) fn scale(
        &mut self,
        scaler: usize,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        let reading = self.read_metric(scaler);
        let is_over = self.workload.peek()?.is_none()
            && self.lifecycle.at_router.is_empty()
            && self.num_waiting_for_decode() == 0
            && self.metrics.known().iter().all(|view| view.num_in_flight == 0);
        let autoscaler = &mut self.lifecycle.scalers[scaler].autoscaler;
        autoscaler.decide(self.now, reading);
        if !is_over {
            let at = self.now + autoscaler.interval();
            self.events.push(at, Event::Scale { scaler: scaler as u32 });
        }
        self.reconcile(observer);
        Ok(())
    }

    /// Over the ready replicas of a scaler. Requests at the router count for each that could take them.
    fn read_metric(&self, scaler: usize) -> Reading {
        let PoolScaler { autoscaler, replicas } = &self.lifecycle.scalers[scaler];
        let states = &self.lifecycle.states[replicas.clone()];
        let at_router = match self.role(replicas.start) {
            Some(Role::Decode) => self.num_waiting_for_decode(),
            Some(Role::Prefill) | None => self.lifecycle.at_router.len(),
        } as f64;
        let ready = replicas.clone().filter(|&at| self.lifecycle.states[at] == ReplicaState::Ready);
        let views = |at: usize| &self.metrics.known()[self.data_parallel.endpoints_of(at)];
        let of_replica = |at: usize, value: fn(&ReplicaView) -> f64| views(at).iter().map(value).sum::<f64>();
        let sum = |value: fn(&ReplicaView) -> f64| ready.clone().map(|at| of_replica(at, value)).sum::<f64>();
        // Of a replica the mean over its ranks.
        let kv_usage = |at: usize| of_replica(at, ReplicaView::kv_usage) / views(at).len() as f64;
        Reading {
            num_ready: ready.clone().count(),
            num_starting: states.iter().filter(|state| matches!(state, ReplicaState::Starting(_))).count(),
            sum: match autoscaler.metric() {
                ScalingMetric::RequestsInFlight => at_router + sum(|view| f64::from(view.num_in_flight)),
                ScalingMetric::Waiting => at_router + sum(|view| f64::from(view.num_waiting)),
                ScalingMetric::KvUsage => ready.clone().map(kv_usage).sum(),
            },
        }
    }

    /// Brings the number of replicas to what the autoscalers want, as a ReplicaSet does: those that have
    /// failed are replaced, and of those too many the youngest goes first, one that is not ready before
    /// one that is.
    fn reconcile(&mut self, observer: &mut dyn Observer) {
        for scaler in 0..self.lifecycle.scalers.len() {
            let PoolScaler { autoscaler, replicas } = &self.lifecycle.scalers[scaler];
            let (desired, start_up) = (autoscaler.desired(), autoscaler.start_up());
            let replicas = replicas.clone();
            while self.lifecycle.num_active(&replicas) < desired {
                let is_off = |&at: &usize| self.lifecycle.states[at] == ReplicaState::Off;
                let Some(at) = replicas.clone().find(is_off) else { break };
                self.start(at, start_up, observer);
            }
            while self.lifecycle.num_active(&replicas) > desired {
                let states = &self.lifecycle.states;
                let active = replicas.clone().filter(|&at| states[at].is_active());
                let youngest = active
                    .max_by_key(|&at| (states[at] != ReplicaState::Ready, self.lifecycle.started_at[at], at));
                let Some(at) = youngest else { break };
                self.drain(at, observer);
            }
        }
    }
}

/// A request whose client gave up before any replica was ready for it.
fn unserved(arrival: &Arrival, now: SimTime) -> RequestRecord {
    let request = &arrival.request;
    RequestRecord {
        index: request.index,
        replica: NO_REPLICA,
        tenant: request.tenant,
        session: request.session,
        turn: request.turn,
        arrival: arrival.at,
        first_scheduled: None,
        first_token: None,
        finished: now,
        num_prompt_tokens: request.prompt.len(),
        num_output_tokens: 0,
        was_admitted: false,
        num_local_cached_tokens: 0,
        num_external_cached_tokens: 0,
        num_preemptions: 0,
        finish_reason: FinishReason::Abort,
        skip_reading_prefix_cache: request.skip_reading_prefix_cache,
        is_long_enough_to_hit: false,
        shares_shortest_hit: false,
    }
}
