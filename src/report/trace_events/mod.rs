//! What a run did, as Perfetto (ui.perfetto.dev) and chrome://tracing show it: JSON of the Trace Event
//! Format, with a process for each replica.
//!
//! Events are written while the simulation runs, in the order of their times. What is kept is the
//! requests in the engine, and events since the begin of the first step or copy that is under way.

mod file;
mod lifeline;
mod queue;
mod running;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use file::TraceFile;
use lifeline::Lifelines;
use queue::{EventQueue, Track};
use running::{Running, Work};

use super::ReportError;
use super::json::{number, string};
use crate::engine::connector::{Direction, TierKind};
use crate::engine::scheduler::Scheduler;
use crate::simulation::{EngineCall, ReplicaState, RequestRecord, StepRecord, TransferRecord};
use crate::units::SimTime;

/// The name where none is given, in the report's folder.
pub const TRACE_EVENTS: &str = "trace_events.json.gz";

const HOST: u32 = 1;
const GPU: u32 = 2;
/// Loads of the first tier; its stores come next, and then those of the next tier.
const FIRST_TIER: u32 = 3;

/// What to write, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEventsOptions {
    /// `None` is [`TRACE_EVENTS`] in the report's folder. `.gz` at the end of the name compresses it.
    pub path: Option<PathBuf>,
    /// What overlaps this part of the run is written.
    pub window: Range<SimTime>,
}

/// Names for the head of the file.
pub(super) struct TraceNames<'a> {
    pub scenario: &'a str,
    pub seed: u64,
    pub tiers: &'a [TierKind],
    /// Of each replica, or data-parallel rank: what it is called, and its blocks.
    pub replicas: Vec<String>,
    pub usable_blocks: Vec<u32>,
}

pub(super) struct TraceEvents {
    queue: EventQueue<TraceFile>,
    window: Range<SimTime>,
    lifelines: Lifelines,
    running: Running,
    replicas: Vec<Counted>,
    is_open: bool,
    is_over: bool,
}

/// What has been counted of a replica.
#[derive(Clone, Copy, Default)]
struct Counted {
    usable_blocks: u32,
    /// Of the requests that were admitted.
    queried_tokens: u64,
    hit_tokens: u64,
    /// As they were last told.
    told: [Option<u64>; COUNTERS.len()],
}

/// Each is a track, so that its height is its own.
const COUNTERS: [&str; 5] =
    ["running", "waiting", "KV blocks in use", "prefix cache queries", "prefix cache hits"];

impl TraceEvents {
    /// Begins the file beside `path`, or in the folder that is being made at `folder`.
    pub fn create(
        options: &TraceEventsOptions,
        folder: &Path,
        names: &TraceNames<'_>,
    ) -> Result<Self, ReportError> {
        let file = match &options.path {
            Some(path) => TraceFile::beside(path)?,
            None => TraceFile::inside(&folder.join(TRACE_EVENTS))?,
        };
        let mut queue = EventQueue::new(file);
        let mut head = String::from("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"scenario\":");
        string(&mut head, names.scenario);
        let _ = write!(
            head,
            ",\"seed\":\"{}\",\"simulator\":\"kvsim {}\"}},\"traceEvents\":[",
            names.seed,
            env!("CARGO_PKG_VERSION")
        );
        queue.begin(&head);
        for (replica, name) in (0..).zip(&names.replicas) {
            name_process(&mut queue, replica, name, names.tiers);
        }
        Ok(Self {
            queue,
            window: options.window.clone(),
            lifelines: Lifelines::default(),
            running: Running::default(),
            replicas: names
                .usable_blocks
                .iter()
                .map(|&usable_blocks| Counted { usable_blocks, ..Counted::default() })
                .collect(),
            is_open: false,
            is_over: false,
        })
    }

    pub fn is_in_folder(&self) -> bool {
        self.queue.out().is_in_folder()
    }

    /// Ends the file and puts it in its place.
    pub fn finish(mut self) -> Result<(), ReportError> {
        self.close();
        let path = self.queue.out().path().to_owned();
        self.queue.finish().map_err(ReportError::write(path))?.publish()
    }

    /// The clock has come to `now`, and everything before is known.
    fn advance(&mut self, now: SimTime) {
        if self.is_over {
            return;
        }
        while let Some((work, end)) = self.running.pop_over(now.min(self.window.end)) {
            self.write(&work, end);
        }
        if now < self.window.start {
            return;
        }
        if !self.is_open {
            self.is_open = true;
            self.lifelines.open(&mut self.queue);
        }
        if now >= self.window.end {
            self.close();
            return;
        }
        let is_known = self.running.first_begin().map_or(now, |begin| begin.min(now));
        self.queue.flush(is_known);
    }

    fn close(&mut self) {
        if self.is_over {
            return;
        }
        while let Some((work, end)) = self.running.pop_over(SimTime::MAX) {
            self.write(&work, end);
        }
        self.is_over = true;
        if self.is_open {
            self.lifelines.close(&mut self.queue, self.window.end);
        }
        self.queue.flush(SimTime::MAX);
    }

    fn is_in_window(&self, started_at: SimTime, finished_at: SimTime) -> bool {
        !self.is_over && finished_at >= self.window.start && started_at < self.window.end
    }

    pub fn on_engine_call(&mut self, replica: u32, at: SimTime, call: EngineCall<'_>, scheduler: &Scheduler) {
        self.advance(at);
        if self.is_over {
            return;
        }
        let queue = self.is_open.then_some(&mut self.queue);
        match call {
            EngineCall::AddRequest { slot, id } => {
                let num_prompt_tokens =
                    scheduler.request(slot, id).map_or(0, |request| request.num_prompt_tokens);
                self.lifelines.arrive(at, replica, id, num_prompt_tokens, queue);
            }
            EngineCall::Schedule { record, output } => {
                self.lifelines.schedule(at, output, queue);
                let num_tokens = output.total_num_scheduled_tokens;
                if num_tokens > 0 {
                    self.running.push(Work::Step { record: *record, num_tokens });
                }
            }
            EngineCall::UpdateFromOutput { outputs, .. } => self.lifelines.update(at, outputs, queue),
            // The request's record follows.
            EngineCall::Abort { .. } => {}
            EngineCall::ResetPrefixCache { done, preempted } => {
                self.lifelines.preempt(at, preempted, queue);
                if self.is_open {
                    let args = format_args!("{{\"done\":{done},\"preempted\":{}}}", preempted.len());
                    self.queue.instant(at, Track { replica, tid: HOST }, "p", "reset prefix cache", args);
                }
            }
        }
    }

    /// A replica comes or goes. What it has under way when it is gone ends here.
    pub fn on_replica_state(&mut self, replica: u32, at: SimTime, state: ReplicaState) {
        self.advance(at);
        if self.is_over {
            return;
        }
        let name = match state {
            ReplicaState::Off => "off",
            ReplicaState::Starting(_) => "starting",
            ReplicaState::Ready => "ready",
            ReplicaState::Draining => "draining",
        };
        if state == ReplicaState::Off {
            for work in self.running.take_of(replica) {
                self.write(&work, at);
            }
        }
        if self.is_open {
            self.queue.instant(at, Track { replica, tid: HOST }, "p", name, "{}");
        }
    }

    /// The slices of something that ended at `end`.
    fn write(&mut self, work: &Work, end: SimTime) {
        match work {
            Work::Step { record, num_tokens } => self.write_step(record, *num_tokens, end),
            Work::Transfer { replica, record } => self.write_transfer(*replica, record, end),
        }
    }

    /// The host plans a step, the GPU executes it, and an arrow goes from one to the other.
    fn write_step(&mut self, record: &StepRecord, num_tokens: u32, end: SimTime) {
        let (at, started_at) = (record.scheduled_at, record.started_at);
        if !self.is_in_window(at, end) {
            return;
        }
        let (step, replica) = (record.index, record.replica);
        // Arrows have numbers of their own over all processes.
        let arrow = step * self.replicas.len() as u64 + u64::from(replica);
        let (host, gpu) = (Track { replica, tid: HOST }, Track { replica, tid: GPU });
        let (prefill, decode) = (record.num_prefill_tokens, record.num_decode_tokens);
        let queue = &mut self.queue;
        queue.slice(
            at,
            record.host_ns.min(end.since(at).as_ns()),
            host,
            "schedule",
            format_args!(
                "{{\"step\":{step},\"tokens\":{num_tokens},\"requests\":{},\"preempted\":{}}}",
                record.num_scheduled_requests, record.num_preempted
            ),
        );
        if started_at > end {
            // Its server went away before the GPU began.
            return;
        }
        let kind = match (prefill, decode) {
            (0, _) => "execute decode",
            (_, 0) => "execute prefill",
            _ => "execute prefill and decode",
        };
        queue.flow(at, host, arrow, 's');
        queue.slice(
            started_at,
            end.since(started_at).as_ns(),
            gpu,
            kind,
            format_args!(
                "{{\"step\":{step},\"tokens\":{num_tokens},\"requests\":{},\"prefill_tokens\":{prefill},\
                 \"decode_tokens\":{decode},\"gpu_ns\":{}}}",
                record.num_scheduled_requests, record.gpu_ns
            ),
        );
        queue.flow(started_at, gpu, arrow, 'f');
    }

    pub fn on_step(&mut self, step: &StepRecord) {
        let Some(counted) = self.replicas.get_mut(step.replica as usize) else { return };
        counted.queried_tokens += step.prefix_cache.queries;
        counted.hit_tokens += step.prefix_cache.hits;
        if !self.is_open || self.is_over {
            return;
        }
        let values = [
            step.num_running.into(),
            step.num_waiting.into(),
            (counted.usable_blocks - step.num_free_blocks).into(),
            counted.queried_tokens,
            counted.hit_tokens,
        ];
        for ((name, value), told) in COUNTERS.iter().zip(values).zip(&mut counted.told) {
            if *told != Some(value) {
                *told = Some(value);
                self.queue.counter(step.finished_at, step.replica, name, value);
            }
        }
    }

    pub fn on_request(&mut self, request: &RequestRecord) {
        if !self.is_over {
            let queue = self.is_open.then_some(&mut self.queue);
            self.lifelines.finish(request, queue);
        }
    }

    pub fn on_transfer(&mut self, replica: u32, transfer: &TransferRecord) {
        if !self.is_over {
            self.running.push(Work::Transfer { replica, record: *transfer });
        }
    }

    fn write_transfer(&mut self, replica: u32, transfer: &TransferRecord, end: SimTime) {
        let begin = transfer.started_at;
        // Its server may have gone away before the link was free for it.
        if begin > end || !self.is_in_window(begin, end) {
            return;
        }
        let (offset, name) = match transfer.direction {
            Direction::Read => (0, "load"),
            Direction::Write => (1, "store"),
        };
        let track = Track { replica, tid: FIRST_TIER + 2 * transfer.tier as u32 + offset };
        let mut args = String::new();
        let _ = write!(args, "{{\"blocks\":{},\"bytes\":{}", transfer.num_blocks, transfer.bytes);
        if let Some(request) = transfer.request {
            let _ = write!(args, ",\"request\":{request}");
        }
        args.push('}');
        self.queue.slice(begin, end.since(begin).as_ns(), track, name, args);
    }
}

/// Names of a replica's process and of its tracks, in the order in which they are shown.
fn name_process(queue: &mut EventQueue<TraceFile>, replica: u32, title: &str, tiers: &[TierKind]) {
    let mut name = |what: &str, tid: Option<u32>, key: &str, value: &dyn Fn(&mut String)| {
        let mut args = format!("{{\"{key}\":");
        value(&mut args);
        args.push('}');
        queue.metadata(what, Track { replica, tid: tid.unwrap_or(0) }, &args);
    };
    name("process_name", None, "name", &|out| string(out, &format!("replica {title}")));
    name("process_sort_index", None, "sort_index", &|out| number(out, replica));
    let mut track = |tid: u32, title: &str| {
        name("thread_name", Some(tid), "name", &|out| string(out, title));
        name("thread_sort_index", Some(tid), "sort_index", &|out| number(out, tid));
    };
    track(HOST, "host: schedule");
    track(GPU, "GPU: execute");
    for (tid, kind) in (FIRST_TIER..).step_by(2).zip(tiers) {
        let tier = match kind {
            TierKind::Host => "host memory",
            TierKind::Disk => "disk",
            TierKind::Remote => "remote",
        };
        track(tid, &format!("{tier}: load"));
        track(tid + 1, &format!("{tier}: store"));
    }
}
