//! Conversations of a trace: how many, how long, with what pauses.

use serde::Serialize;

use super::percentiles::{Percentiles, Times, Values};
use crate::reuse::TooManyBlocks;
use crate::trace_tools::SessionFinder;
use crate::units::SimTime;
use crate::workload::trace::TraceRequest;

/// Conversations. A request that belongs to none is one of its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionInfo {
    pub count: u64,
    /// Those that the trace does not tell: found by prompts that go on from earlier ones, see
    /// [`SessionFinder`].
    pub estimated: u64,
    /// Those that nothing tells: requests of whose prompts only the length is known.
    pub unknown: u64,
    /// Requests of a session.
    pub turns: Option<Percentiles<u64>>,
    /// From a request to the next of its session, both sent.
    pub time_between_turns_s: Option<Percentiles<f64>>,
    /// From the end of an answer to the next request of its session, where the trace tells.
    pub think_time_s: Option<Percentiles<f64>>,
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    finder: SessionFinder,
    /// Of each session: requests so far, and when the last was sent.
    turns: Vec<(u64, Option<SimTime>)>,
    between_turns: Times,
    think_times: Times,
}

impl Sessions {
    pub fn add(&mut self, request: &TraceRequest, hash_id_tokens: Option<u32>) -> Result<(), TooManyBlocks> {
        let session = self.finder.session_of(request, hash_id_tokens)? as usize;
        if session == self.turns.len() {
            self.turns.push((0, None));
        }
        let (turns, last) = &mut self.turns[session];
        *turns += 1;
        if let (Some(last), Some(at)) = (*last, request.at) {
            self.between_turns.add(at.since(last), 1);
        }
        *last = request.at;
        if let Some(think_time) = request.think_time {
            self.think_times.add(think_time, 1);
        }
        Ok(())
    }

    pub fn info(&self) -> SessionInfo {
        let mut turns = Values::default();
        self.turns.iter().for_each(|&(count, _)| turns.add(count));
        SessionInfo {
            count: u64::from(self.finder.num_sessions()),
            estimated: u64::from(self.finder.num_estimated()),
            unknown: u64::from(self.finder.num_unknown()),
            turns: turns.percentiles(),
            time_between_turns_s: self.between_turns.percentiles(),
            think_time_s: self.think_times.percentiles(),
        }
    }
}
