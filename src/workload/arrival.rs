//! A request and the time at which it is sent.

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
            tenant: 0,
            session: None,
            turn: 0,
            trace_line: None,
        }
    }
}
