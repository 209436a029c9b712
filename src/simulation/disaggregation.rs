//! Prompts are computed on some replicas, and answers on others, as the proxy before vLLM's servers has
//! it: the request goes to a replica that prefills, with `max_tokens` of 1; when that has answered, to one
//! that decodes, which reads the KV blocks from the first. The client sees the answer of the second.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::observer::Observer;
use super::pull::PullLinks;
use super::router::{ReplicaView, Router};
use super::run::{Simulation, SimulationError};
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

/// Who computes prompts and who goes on from there.
pub struct Disaggregation {
    /// Of each endpoint.
    roles: Vec<Role>,
    /// Chooses among those that decode.
    router: Box<dyn Router>,
    links: Rc<RefCell<PullLinks>>,
    /// Requests whose prompts are being computed.
    in_prefill: FxHashMap<u64, Arrival>,
    /// What the router sees; kept for its memory.
    views: Vec<ReplicaView>,
}

impl Disaggregation {
    /// The replicas' [`Puller`](super::Puller)s have these `links`.
    pub fn new(roles: Vec<Role>, router: Box<dyn Router>, links: Rc<RefCell<PullLinks>>) -> Self {
        Self { roles, router, links, in_prefill: FxHashMap::default(), views: Vec::new() }
    }
}

impl Simulation {
    /// The simulation's own router chooses among the replicas that prefill.
    pub fn with_disaggregation(mut self, disaggregation: Disaggregation) -> Self {
        for (at, role) in disaggregation.roles.iter().enumerate() {
            self.metrics.set_ready(at, *role == Role::Prefill);
        }
        if disaggregation.router.reads_events() {
            self.replicas.iter_mut().for_each(|serving| serving.replica.record_cache_changes());
        }
        self.disaggregation = Some(disaggregation);
        self
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
        let Some(disaggregation) = &mut self.disaggregation else { return Ok(()) };
        disaggregation.links.borrow_mut().set_source(arrival.request.index, source);
        disaggregation.views.clear();
        disaggregation.views.extend_from_slice(self.metrics.views(self.now));
        for (view, role) in disaggregation.views.iter_mut().zip(&disaggregation.roles) {
            view.is_ready = *role == Role::Decode;
        }
        let at = disaggregation.router.choose(self.now, &arrival.request, &disaggregation.views);
        disaggregation.router.sent(&arrival.request, at);
        self.dispatch(at, arrival, Part::Decode { first_scheduled }, observer)
    }

    /// The replicas' cache changes are to be taken.
    pub(super) fn some_router_reads_events(&self) -> bool {
        let decodes = self.disaggregation.as_ref().is_some_and(|both| both.router.reads_events());
        decodes || self.router.reads_events()
    }

    /// The router that sends requests to an endpoint.
    pub(super) fn router_of(&mut self, endpoint: usize) -> &mut dyn Router {
        match &mut self.disaggregation {
            Some(disaggregation) if disaggregation.roles[endpoint] == Role::Decode => {
                &mut *disaggregation.router
            }
            _ => &mut *self.router,
        }
    }

    /// Replicas that have something to report at a time are woken then.
    pub(super) fn wake_for_reads(&mut self) {
        let Some(disaggregation) = &self.disaggregation else { return };
        for (at, replica) in disaggregation.links.borrow_mut().take_wakes() {
            self.events.push(at, super::event_queue::Event::Wake { replica: replica as u32 });
        }
    }
}
