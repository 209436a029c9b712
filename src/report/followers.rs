//! What a report has of a run on demand: a trace of its events, the block explorer.

use super::ReportError;
use super::explorer::{Recorder, explorer_page};
use super::folder::Folder;
use super::run_report::RunInfo;
use super::trace_events::{TRACE_EVENTS, TraceEvents};
use crate::engine::kv_cache::JournalEntry;
use crate::engine::scheduler::Scheduler;
use crate::simulation::{EngineCall, ReplicaState, RequestRecord, StepRecord, TransferRecord};
use crate::units::SimTime;

#[derive(Default)]
pub(super) struct Followers {
    pub trace_events: Option<TraceEvents>,
    pub explorer: Option<Recorder>,
}

impl Followers {
    /// Names of those in the report's folder, and what they hold.
    pub fn files(&self) -> Vec<(&'static str, &'static str)> {
        let explorer = ("explorer.html", "what the engine did, block by block, to step through");
        let trace_events = (TRACE_EVENTS, "what happened when, for ui.perfetto.dev and chrome://tracing");
        let is_here = self.trace_events.as_ref().is_some_and(TraceEvents::is_in_folder);
        self.explorer
            .is_some()
            .then_some(explorer)
            .into_iter()
            .chain(is_here.then_some(trace_events))
            .collect()
    }

    /// Writes what is left.
    pub fn finish(self, folder: &Folder, info: &RunInfo) -> Result<(), ReportError> {
        if let Some(explorer) = &self.explorer {
            folder.write("explorer.html", &explorer_page(explorer, info))?;
        }
        self.trace_events.map_or(Ok(()), TraceEvents::finish)
    }

    pub fn on_engine_call(
        &mut self,
        replica: u32,
        at: SimTime,
        call: EngineCall<'_>,
        journal: &[JournalEntry],
        scheduler: &Scheduler,
    ) {
        if let Some(trace_events) = &mut self.trace_events {
            trace_events.on_engine_call(replica, at, call, scheduler);
        }
        if let Some(explorer) = &mut self.explorer {
            explorer.on_engine_call(replica, at, call, journal, scheduler);
        }
    }

    pub fn on_transfer(&mut self, replica: u32, transfer: &TransferRecord) {
        if let Some(trace_events) = &mut self.trace_events {
            trace_events.on_transfer(replica, transfer);
        }
    }

    pub fn on_replica_state(&mut self, replica: u32, at: SimTime, state: ReplicaState) {
        if let Some(trace_events) = &mut self.trace_events {
            trace_events.on_replica_state(replica, at, state);
        }
        if let Some(explorer) = self.explorer.as_mut().filter(|_| state == ReplicaState::Off) {
            explorer.on_off(replica);
        }
    }

    pub fn on_step(&mut self, step: &StepRecord) {
        if let Some(trace_events) = &mut self.trace_events {
            trace_events.on_step(step);
        }
    }

    pub fn on_request(&mut self, request: &RequestRecord, tenants: &[String]) {
        if let Some(trace_events) = &mut self.trace_events {
            trace_events.on_request(request);
        }
        if let Some(explorer) = &mut self.explorer {
            explorer.on_request(request, tenants);
        }
    }
}
