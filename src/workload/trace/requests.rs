//! The requests of a trace in the order of the file, ready to be sent.

use super::reuse::{Reuse, ReuseConfig};
use super::{
    FIRST_UNKNOWN_TOKEN, HfTokenizer, TraceConfig, TraceFormat, TraceInput, TraceReader, TraceRequest,
    TraceTokens, open,
};
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::{ConfigError, RequestSpec, WorkloadError, WorkloadNotes};

const REUSE: &str = "`none`, `shared_prefix` or `sessions`: the trace does not tell what prompts share";

/// Reads requests, scales their times, and gives tokens to prompts of which only the length is known.
pub(super) struct Requests {
    format: TraceFormat,
    reader: Box<dyn TraceReader>,
    reuse: Option<Reuse>,
    reuse_note: Option<String>,
    /// Some prompt had only a length.
    has_used_reuse: bool,
    rate_scale: f64,
    /// Rows that may still be read; none after an error.
    rows_left: u64,
    /// Read and not taken.
    ahead: Option<TraceRequest>,
    next_position: u64,
    next_unknown_token: u64,
}

impl Requests {
    pub fn open(
        input: TraceInput,
        config: &TraceConfig,
        tokenizer: Option<HfTokenizer>,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let (format, reader) = open(input, &config.read_options(tokenizer))?;
        if format.has_lengths_only() && config.reuse.is_none() {
            return Err(ConfigError::new("reuse", "not given", REUSE).into());
        }
        Ok(Self {
            format,
            reader,
            reuse: config.reuse.as_ref().map(|reuse| Reuse::new(reuse, seed)),
            reuse_note: config.reuse.as_ref().map(ReuseConfig::note),
            has_used_reuse: false,
            rate_scale: config.rate_scale,
            rows_left: config.max_requests.unwrap_or(u64::MAX),
            ahead: None,
            next_position: 0,
            next_unknown_token: FIRST_UNKNOWN_TOKEN,
        })
    }

    pub fn format(&self) -> TraceFormat {
        self.format
    }

    pub fn tenants(&self) -> &[String] {
        self.reader.tenants()
    }

    pub fn notes(&self) -> WorkloadNotes {
        let mut notes = self.reader.notes();
        notes.extend(self.reuse_note.clone().filter(|_| self.has_used_reuse));
        let skipped = self.reader.skipped();
        WorkloadNotes {
            trace_format: Some(self.format.name()),
            notes,
            hash_id_tokens: self.reader.hash_id_tokens(),
            skipped_rows: skipped.count,
            first_skipped_row: skipped.first,
        }
    }

    /// The next request and its position in the file, counted from 0.
    pub fn next(&mut self) -> Result<Option<(TraceRequest, u64)>, WorkloadError> {
        self.look_ahead()?;
        Ok(self.ahead.take().map(|request| (request, self.count())))
    }

    /// The next request, if it is of this session.
    pub fn next_of_session(
        &mut self,
        session: Option<u64>,
    ) -> Result<Option<(TraceRequest, u64)>, WorkloadError> {
        self.look_ahead()?;
        let next = self.ahead.take_if(|request| request.session == session);
        Ok(next.map(|request| (request, self.count())))
    }

    fn count(&mut self) -> u64 {
        self.next_position += 1;
        self.next_position - 1
    }

    fn look_ahead(&mut self) -> Result<(), WorkloadError> {
        if self.ahead.is_none() && self.rows_left > 0 {
            let left = std::mem::take(&mut self.rows_left);
            self.ahead = self.read()?;
            self.rows_left = if self.ahead.is_some() { left - 1 } else { 0 };
        }
        Ok(())
    }

    fn read(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some(mut request) = self.reader.next_request()? else { return Ok(None) };
        request.at = request.at.map(|at| self.scaled(at));
        request.think_time = request.think_time.map(|time| self.scaled(time));
        if let TraceTokens::Length(length) = request.prompt {
            let Some(reuse) = &mut self.reuse else {
                return Err(WorkloadError::Row {
                    line: request.line,
                    field: None,
                    found: format!("a prompt of which only the length, {length}, is recorded"),
                    expected: format!("`reuse` in the scenario's trace, {REUSE}"),
                });
            };
            reuse.fill(&mut request);
            self.has_used_reuse = true;
        }
        if let TraceTokens::Length(length) = request.output {
            request.output = TraceTokens::Known(self.unknown_tokens(length));
        }
        Ok(Some(request))
    }

    fn scaled(&self, time: SimTime) -> SimTime {
        if self.rate_scale == 1.0 {
            return time;
        }
        SimTime((time.as_ns() as f64 / self.rate_scale).round() as u64)
    }

    /// Tokens that are nobody else's: a later prompt that holds an answer says so with ids of its
    /// own, which cannot be told from its other ids.
    fn unknown_tokens(&mut self, length: u32) -> TokenRuns {
        let first = self.next_unknown_token;
        self.next_unknown_token += u64::from(length);
        TokenRuns::from_run(first, length)
    }

    /// The request as the server sees it.
    pub fn spec(&mut self, request: TraceRequest, index: u64) -> RequestSpec {
        let mut tokens = |tokens: TraceTokens| match tokens {
            TraceTokens::Known(known) => known,
            TraceTokens::Length(length) => self.unknown_tokens(length),
        };
        RequestSpec {
            index,
            prompt: tokens(request.prompt),
            output: tokens(request.output),
            extras: request.extras,
            priority: request.priority,
            skip_reading_prefix_cache: request.skip_reading_prefix_cache,
            patience: request.patience,
            tenant: request.tenant,
            session: request.session,
            turn: request.turn,
            trace_line: Some(request.line),
        }
    }

    /// The mistake of a request that nothing says when to send.
    pub fn no_time(&self, request: &TraceRequest) -> WorkloadError {
        WorkloadError::Row {
            line: request.line,
            field: None,
            found: "a request without a time".into(),
            expected: "one; or `arrivals` in the scenario's trace, such as `{concurrency: 8}` or `{rate: {per_s: 2}}`"
                .into(),
        }
    }

    /// The mistake of a turn without a time that comes too late in the file.
    pub fn too_late(&self, request: &TraceRequest, at: SimTime, now: SimTime) -> WorkloadError {
        WorkloadError::Row {
            line: request.line,
            field: Some(self.reader.time_field()),
            found: "nothing".into(),
            expected: format!(
                "a time: the turn was due at {at}, but the rows before it are at {now} already; or put the rows \
                 of a session one after the other"
            ),
        }
    }
}
