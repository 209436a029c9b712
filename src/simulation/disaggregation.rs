//! Prompts are computed on some replicas, and answers on others, as the proxy before vLLM's servers has
//! it: the request goes to a replica that prefills, with `max_tokens` of 1; when that has answered, to one
//! that decodes, which reads the KV blocks from the first. The client sees the answer of the second.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::event_queue::Event;
use super::lifecycle::ReplicaState;
use super::observer::Observer;
use super::pull::{PullFailures, PullLinks};
use super::router::{ReplicaView, Router};
use super::run::{Simulation, SimulationError};
use crate::engine::hash::PromptHashes;
use crate::units::SimTime;
use crate::workload::Arrival;

/// What a replica does for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Prefill,
    Decode,
}

/// Which part of a request a replica is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    #[default]
    Whole,
    Prefill,
    /// Its prompt was first given tokens at this time.
    Decode {
        first_scheduled: Option<SimTime>,
    },
}

/// A request, or a part of it, on its way to an engine core.
pub(super) struct Delivery {
    pub arrival: Arrival,
    pub part: Part,
    /// That the router has made.
    pub prompt_hashes: Option<PromptHashes>,
}

/// Who computes prompts and who goes on from there.
pub struct Disaggregation {
    /// Of each replica.
    roles: Vec<Role>,
    /// Chooses among those that decode.
    router: Box<dyn Router>,
    links: Rc<RefCell<PullLinks>>,
    /// Requests whose prompts are being computed.
    in_prefill: FxHashMap<u64, Arrival>,
    /// Nobody that decodes is ready for them. With the time at which their prompts were first given tokens.
    at_router: VecDeque<(Arrival, Option<SimTime>)>,
    /// What the router sees; kept for its memory.
    views: Vec<ReplicaView>,
}

impl Disaggregation {
    /// The replicas' [`Puller`](super::Puller)s have these `links`.
    pub fn new(roles: Vec<Role>, router: Box<dyn Router>, links: Rc<RefCell<PullLinks>>) -> Self {
        Self {
            roles,
            router,
            links,
            in_prefill: FxHashMap::default(),
            at_router: VecDeque::new(),
            views: Vec::new(),
        }
    }
}

impl Simulation {
    /// The simulation's own router chooses among the replicas that prefill.
    pub fn with_disaggregation(mut self, disaggregation: Disaggregation) -> Self {
        if disaggregation.router.reads_events() {
            self.replicas.iter_mut().for_each(|serving| serving.replica.record_cache_changes());
        }
        if self.lifecycle.can_lose_requests {
            disaggregation.links.borrow_mut().expect_failures();
        }
        self.disaggregation = Some(disaggregation);
        for at in 0..self.data_parallel.num_replicas() {
            self.set_ready(at, self.takes_requests(at));
        }
        self
    }

    pub(super) fn role(&self, at: usize) -> Option<Role> {
        self.disaggregation.as_ref().map(|disaggregation| disaggregation.roles[at])
    }

    /// The part of a request that the first replica is given.
    pub(super) fn first_part(&mut self, arrival: &Arrival) -> Part {
        let Some(disaggregation) = &mut self.disaggregation else { return Part::Whole };
        disaggregation.in_prefill.insert(arrival.request.index, arrival.clone());
        Part::Prefill
    }

    /// A request has left a replica: what is still to be done for it, if that was only its prompt.
    pub(super) fn end_prefill(&mut self, index: u64) -> Option<Arrival> {
        self.disaggregation.as_mut()?.in_prefill.remove(&index)
    }

    /// The prompt has been computed on replica `source`: another goes on.
    pub(super) fn begin_decode(
        &mut self,
        source: usize,
        arrival: Arrival,
        first_scheduled: Option<SimTime>,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        observer.on_prefill(source as u32, arrival.request.prompt.len());
        if let Some(disaggregation) = &self.disaggregation {
            disaggregation.links.borrow_mut().set_source(arrival.request.index, source);
        }
        self.send_to_decode(arrival, first_scheduled, observer)
    }

    /// Sends a request whose prompt has been computed to a replica that decodes.
    pub(super) fn send_to_decode(
        &mut self,
        arrival: Arrival,
        first_scheduled: Option<SimTime>,
        observer: &mut dyn Observer,
    ) -> Result<(), SimulationError> {
        let Some(disaggregation) = &mut self.disaggregation else { return Ok(()) };
        let index = arrival.request.index;
        disaggregation.views.clear();
        disaggregation.views.extend_from_slice(self.metrics.views(self.now));
        for (endpoint, view) in disaggregation.views.iter_mut().enumerate() {
            let at = self.data_parallel.replica_of_endpoint(endpoint);
            view.is_ready =
                (disaggregation.roles[at], self.lifecycle.states[at]) == (Role::Decode, ReplicaState::Ready);
        }
        if disaggregation.views.iter().all(|view| !view.is_ready) {
            disaggregation.links.borrow_mut().lose_reader(index, self.now);
            if let Some(patience) = arrival.request.patience {
                let gives_up_at = (arrival.at + patience.lasts).max(self.now);
                self.events.push(gives_up_at, Event::GiveUp { index });
            }
            disaggregation.at_router.push_back((arrival, first_scheduled));
            return Ok(());
        }
        disaggregation.links.borrow_mut().expect_read(index);
        let at = disaggregation.router.choose(self.now, &arrival.request, &disaggregation.views);
        disaggregation.router.sent(&arrival.request, at);
        let prompt_hashes = disaggregation.router.take_prompt_hashes();
        let part = Part::Decode { first_scheduled };
        self.dispatch(at, Delivery { arrival, part, prompt_hashes }, observer)
    }

    /// Requests whose prompts have been computed and that wait for somebody who is ready.
    pub(super) fn num_waiting_for_decode(&self) -> usize {
        self.disaggregation.as_ref().map_or(0, |disaggregation| disaggregation.at_router.len())
    }

    pub(super) fn take_waiting_for_decode(&mut self) -> VecDeque<(Arrival, Option<SimTime>)> {
        self.disaggregation.as_mut().map(|both| std::mem::take(&mut both.at_router)).unwrap_or_default()
    }

    /// One of them leaves the router, because its client gives up.
    pub(super) fn give_up_decode(&mut self, index: u64) -> Option<(Arrival, Option<SimTime>)> {
        let waiting = &mut self.disaggregation.as_mut()?.at_router;
        let at = waiting.iter().position(|(arrival, _)| arrival.request.index == index)?;
        waiting.remove(at)
    }

    /// An engine core is gone; others read from it in vain, and what it has read no longer matters.
    pub(super) fn fail_links(&mut self, at: usize, lost: &[u64]) {
        let Some(disaggregation) = &self.disaggregation else { return };
        let links = &mut *disaggregation.links.borrow_mut();
        links.fail(at, self.now);
        if disaggregation.roles[self.data_parallel.replica_of(at)] == Role::Decode {
            lost.iter().for_each(|&index| links.lose_reader(index, self.now));
        }
    }

    /// What went wrong with reads, if there are any.
    pub(super) fn pull_failures(&self) -> Option<PullFailures> {
        self.disaggregation.as_ref().map(|disaggregation| disaggregation.links.borrow().failures())
    }

    /// The replicas' cache changes are to be taken.
    pub(super) fn some_router_reads_events(&self) -> bool {
        let decodes = self.disaggregation.as_ref().is_some_and(|both| both.router.reads_events());
        decodes || self.router.reads_events()
    }

    /// The router that sends requests to an endpoint.
    pub(super) fn router_of(&mut self, endpoint: usize) -> &mut dyn Router {
        let at = self.data_parallel.replica_of_endpoint(endpoint);
        match &mut self.disaggregation {
            Some(disaggregation) if disaggregation.roles[at] == Role::Decode => &mut *disaggregation.router,
            _ => &mut *self.router,
        }
    }

    /// Replicas that have something to report at a time are woken then.
    pub(super) fn wake_for_reads(&mut self) {
        let Some(disaggregation) = &self.disaggregation else { return };
        for (at, replica) in disaggregation.links.borrow_mut().take_wakes() {
            self.events.push(at, Event::Wake { replica: replica as u32 });
        }
    }
}
