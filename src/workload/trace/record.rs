//! One request as a trace tells of it.

use crate::prompt::{PromptExtras, TokenRuns};
use crate::units::SimTime;
use crate::workload::{Patience, WorkloadError};

/// What a format's reader yields for each request, and what kvsim's own format can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The line that it was read from, counted from 1.
    pub line: u64,
    /// When it was sent, from the start of the trace; `None` where the format does not tell.
    pub at: Option<SimTime>,
    /// From the end of the session's answer before to this request, where the trace tells.
    pub think_time: Option<SimTime>,
    pub prompt: TraceTokens,
    pub output: TraceTokens,
    pub extras: PromptExtras,
    /// vLLM's request priority: a lower value is served first.
    pub priority: i32,
    /// The request fills the prefix cache but does not look into it.
    pub skip_reading_prefix_cache: bool,
    /// The client goes away when this ends.
    pub patience: Option<Patience>,
    /// Index into [`TraceReader::tenants`].
    pub tenant: u32,
    /// The conversation that this is a turn of, where the trace tells.
    pub session: Option<u64>,
    /// 0 for the first turn of a session.
    pub turn: u32,
}

impl TraceRequest {
    /// A plain request: a prompt and its answer.
    pub fn new(line: u64, at: Option<SimTime>, prompt: TraceTokens, output: TraceTokens) -> Self {
        Self {
            line,
            at,
            think_time: None,
            prompt,
            output,
            extras: PromptExtras::default(),
            priority: 0,
            skip_reading_prefix_cache: false,
            patience: None,
            tenant: 0,
            session: None,
            turn: 0,
        }
    }
}

/// A prompt or an answer, as far as the trace knows it: 1 to 2^31 - 1 tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceTokens {
    /// Which of them are equal to which others: equal ids are equal tokens. Ids lie below
    /// [`FIRST_UNKNOWN_TOKEN`].
    Known(TokenRuns),
    /// Only how many there are.
    Length(u32),
}

/// Ids from here upwards are given to tokens that the trace tells only the number of.
pub const FIRST_UNKNOWN_TOKEN: u64 = 1 << 63;

impl TraceTokens {
    /// The number of tokens.
    pub fn len(&self) -> u32 {
        match self {
            Self::Known(tokens) => tokens.len(),
            Self::Length(len) => *len,
        }
    }

    /// Never, in what a reader yields.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An open trace: its requests in the order of the file, one in memory at a time.
pub trait TraceReader: Send {
    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// After [`WorkloadError::Row`] the reader can go on with the next row; after any other error
    /// it cannot.
    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError>;

    /// The format's name for the time of a row, for messages.
    fn time_field(&self) -> &'static str;

    /// The names that [`TraceRequest::tenant`] points into; empty when there is only one tenant
    /// without a name.
    fn tenants(&self) -> &[String] {
        &[]
    }

    /// Where prompts are lists of hash ids, the number of tokens that one stands for: what prompts
    /// share is only known in whole ids. Known after the first request.
    fn hash_id_tokens(&self) -> Option<u32> {
        None
    }

    /// What was assumed where the file does not tell, such as characters per token: sentences for
    /// the report.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The rows left out so far because they could not be read.
    fn skipped(&self) -> SkippedRows {
        SkippedRows::default()
    }
}

/// Rows that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedRows {
    pub count: u64,
    /// What was wrong with the first of them.
    pub first: Option<String>,
}
