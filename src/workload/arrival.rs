//! A request and the time at which it is sent.

use serde::{Deserialize, Serialize};

use crate::prompt::{PromptExtras, TokenRuns};
use crate::units::SimTime;

/// A request that reaches the server at `at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub at: SimTime,
    pub request: RequestSpec,
}

/// What is asked, and what the model will answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSpec {
    /// 0, 1, 2, ... in the order in which the workload hands requests out.
    pub index: u64,
    pub prompt: TokenRuns,
    /// What the model will sample; the length, at least 1, is the request's `max_tokens`.
    pub output: TokenRuns,
    pub extras: PromptExtras,
    /// vLLM's request priority: a lower value is served first.
    pub priority: i32,
    /// The request fills the prefix cache but does not look into it.
    pub skip_reading_prefix_cache: bool,
    /// The client goes away when this ends; `None` waits for ever.
    pub patience: Option<Patience>,
    /// Index into [`Workload::tenants`](super::Workload::tenants).
    pub tenant: u32,
    /// The conversation that this is a turn of, where the workload knows it.
    pub session: Option<u64>,
    /// 0 for the first turn of a session.
    pub turn: u32,
    /// The line of the trace that it was read from, counted from 1.
    pub trace_line: Option<u64>,
}

impl RequestSpec {
    /// A plain request of the first tenant.
    pub fn plain(prompt: TokenRuns, output: TokenRuns) -> Self {
        Self {
            index: 0,
            prompt,
            output,
            extras: PromptExtras::default(),
            priority: 0,
            skip_reading_prefix_cache: false,
            patience: None,
            tenant: 0,
            session: None,
            turn: 0,
            trace_line: None,
        }
    }
}

/// How long a client waits. When it goes away the server aborts its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the arrival. What comes at the very end still comes in time.
    pub lasts: SimTime,
    pub waits_for: WaitsFor,
}

/// What must have come before the patience ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// Whoever sees the answer begin reads it to its end.
    #[default]
    FirstToken,
    /// A client with a time limit for the whole answer.
    LastToken,
}
