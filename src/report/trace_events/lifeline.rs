//! The lives of requests: an async slice for each, and its phases inside.

use std::io::Write;

use rustc_hash::FxHashMap;

use super::queue::{EventQueue, Track};
use crate::engine::scheduler::{EngineCoreOutputs, ScheduledKind, SchedulerOutput};
use crate::simulation::RequestRecord;
use crate::units::SimTime;

const REQUEST: &str = "request";
const NO_ARGS: &str = "{}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Prefill,
    Decode,
    /// Waits to be admitted again.
    Preempted,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Preempted => "preempted",
        }
    }
}

struct Life {
    replica: u32,
    arrival: SimTime,
    num_prompt_tokens: u32,
    phase: Phase,
    phase_began: SimTime,
}

/// The requests in the engine. Calls without a queue come before the window: then nothing is written,
/// and [`Self::open`] catches up.
#[derive(Default)]
pub(super) struct Lifelines {
    lives: FxHashMap<u64, Life>,
}

impl Lifelines {
    /// Begins the slices of those who are there already, at their true times.
    pub fn open(&mut self, queue: &mut EventQueue<impl Write>) {
        for (id, life) in self.in_order() {
            begin(id, life, queue);
        }
    }

    /// Ends the slices of those who are still there.
    pub fn close(&mut self, queue: &mut EventQueue<impl Write>, at: SimTime) {
        let last = self.lives.values().map(|life| life.phase_began).max().unwrap_or_default();
        // A window without an end closes when the last of them has begun.
        let at = if at == SimTime::MAX { last } else { at };
        for (id, life) in self.in_order() {
            let id = (life.replica, id);
            queue.lifeline(at, 'e', id, life.phase.name(), NO_ARGS);
            queue.lifeline(at, 'e', id, REQUEST, "{\"finished\":false}");
        }
        self.lives.clear();
    }

    fn in_order(&self) -> Vec<(u64, &Life)> {
        let mut lives: Vec<_> = self.lives.iter().map(|(&id, life)| (id, life)).collect();
        lives.sort_unstable_by_key(|&(id, _)| id);
        lives
    }

    pub fn arrive(
        &mut self,
        at: SimTime,
        replica: u32,
        id: u64,
        num_prompt_tokens: u32,
        mut queue: Option<&mut EventQueue<impl Write>>,
    ) {
        // One that its server took with it, and that is sent anew.
        if let Some(lost) = self.lives.remove(&id)
            && let Some(queue) = queue.as_deref_mut()
        {
            queue.lifeline(at, 'e', (lost.replica, id), lost.phase.name(), NO_ARGS);
            queue.lifeline(at, 'e', (lost.replica, id), REQUEST, "{\"finished\":\"lost\"}");
        }
        let life = Life { replica, arrival: at, num_prompt_tokens, phase: Phase::Queued, phase_began: at };
        if let Some(queue) = queue {
            begin(id, &life, queue);
        }
        self.lives.insert(id, life);
    }

    pub fn schedule(
        &mut self,
        at: SimTime,
        output: &SchedulerOutput,
        mut queue: Option<&mut EventQueue<impl Write>>,
    ) {
        self.preempt(at, &output.preempted, queue.as_deref_mut());
        for entry in output.scheduled.iter().filter(|entry| entry.kind != ScheduledKind::Running) {
            self.enter(at, entry.id, Phase::Prefill, queue.as_deref_mut());
        }
    }

    pub fn preempt(&mut self, at: SimTime, ids: &[u64], mut queue: Option<&mut EventQueue<impl Write>>) {
        for &id in ids {
            if let Some(queue) = queue.as_deref_mut()
                && let Some(life) = self.lives.get(&id)
            {
                let track = Track { replica: life.replica, tid: super::HOST };
                queue.instant(at, track, "t", "preempt", format_args!("{{\"request\":{id}}}"));
            }
            self.enter(at, id, Phase::Preempted, queue.as_deref_mut());
        }
    }

    pub fn update(
        &mut self,
        at: SimTime,
        outputs: &EngineCoreOutputs,
        mut queue: Option<&mut EventQueue<impl Write>>,
    ) {
        for output in outputs.outputs.iter().filter(|output| !outputs.tokens(output).is_empty()) {
            // They come with the first output.
            let Some(life) = self.lives.get(&output.id) else { continue };
            if output.prefill_stats.is_some()
                && let Some(queue) = queue.as_deref_mut()
            {
                queue.lifeline(at, 'n', (life.replica, output.id), "first token", NO_ARGS);
            }
            if life.phase == Phase::Prefill && output.finish_reason.is_none() {
                self.enter(at, output.id, Phase::Decode, queue.as_deref_mut());
            }
        }
    }

    pub fn finish(&mut self, request: &RequestRecord, queue: Option<&mut EventQueue<impl Write>>) {
        let Some(life) = self.lives.remove(&request.index) else { return };
        let Some(queue) = queue else { return };
        let id = (life.replica, request.index);
        let finish = format!("{:?}", request.finish_reason).to_lowercase();
        queue.lifeline(request.finished, 'e', id, life.phase.name(), NO_ARGS);
        queue.lifeline(
            request.finished,
            'e',
            id,
            REQUEST,
            format_args!(
                "{{\"finished\":\"{finish}\",\"output_tokens\":{},\"local_cached_tokens\":{},\
                 \"external_cached_tokens\":{},\"preemptions\":{},\"turn\":{}}}",
                request.num_output_tokens,
                request.num_local_cached_tokens,
                request.num_external_cached_tokens,
                request.num_preemptions,
                request.turn,
            ),
        );
    }

    /// Ends the phase that a request is in, and begins another.
    fn enter(&mut self, at: SimTime, id: u64, phase: Phase, queue: Option<&mut EventQueue<impl Write>>) {
        let Some(life) = self.lives.get_mut(&id) else { return };
        if let Some(queue) = queue {
            let id = (life.replica, id);
            queue.lifeline(at, 'e', id, life.phase.name(), NO_ARGS);
            queue.lifeline(at, 'b', id, phase.name(), NO_ARGS);
        }
        (life.phase, life.phase_began) = (phase, at);
    }
}

fn begin(id: u64, life: &Life, queue: &mut EventQueue<impl Write>) {
    let args = format_args!("{{\"request\":{id},\"prompt_tokens\":{}}}", life.num_prompt_tokens);
    queue.lifeline(life.arrival, 'b', (life.replica, id), REQUEST, args);
    queue.lifeline(life.phase_began, 'b', (life.replica, id), life.phase.name(), NO_ARGS);
}
