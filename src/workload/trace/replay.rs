//! A trace as a workload: replayed at the recorded times, whatever the server does.

use super::{
    FIRST_UNKNOWN_TOKEN, TraceConfig, TraceFormat, TraceInput, TraceReader, TraceRequest, TraceTokens, open,
};
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::{Arrival, RequestSpec, Workload, WorkloadError};

/// The workload that replays a trace. It holds one request in memory at a time.
pub struct Trace {
    format: TraceFormat,
    reader: Box<dyn TraceReader>,
    rate_scale: f64,
    requests_left: u64,
    ahead: Option<Arrival>,
    next_index: u64,
    next_unknown_token: u64,
    last_at: SimTime,
}

impl Trace {
    /// Replays `input`, the content of the trace file. The configuration has been
    /// [validated](TraceConfig::validate).
    ///
    /// # Errors
    /// The file cannot be read, or its format cannot be told.
    pub fn new(input: TraceInput, config: &TraceConfig) -> Result<Self, WorkloadError> {
        let (format, reader) = open(input, &config.read_options())?;
        Ok(Self {
            format,
            reader,
            rate_scale: config.rate_scale,
            requests_left: config.max_requests.unwrap_or(u64::MAX),
            ahead: None,
            next_index: 0,
            next_unknown_token: FIRST_UNKNOWN_TOKEN,
            last_at: SimTime::ZERO,
        })
    }

    /// The format of the file.
    pub fn format(&self) -> TraceFormat {
        self.format
    }

    fn read(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        let Some(row) = self.reader.next_request()? else { return Ok(None) };
        let at = self.check_time(&row)?;
        let TraceTokens::Known(prompt) = row.prompt else {
            return Err(WorkloadError::Row {
                line: row.line,
                field: None,
                found: "a prompt of which only the length is known".into(),
                expected: "its tokens".into(),
            });
        };
        let request = RequestSpec {
            index: self.next_index,
            prompt,
            output: match row.output {
                TraceTokens::Known(output) => output,
                TraceTokens::Length(length) => self.unknown_tokens(length),
            },
            extras: row.extras,
            priority: row.priority,
            skip_reading_prefix_cache: row.skip_reading_prefix_cache,
            patience: row.patience,
            tenant: row.tenant,
            session: row.session,
            turn: row.turn,
            trace_line: Some(row.line),
        };
        self.next_index += 1;
        Ok(Some(Arrival { at: SimTime((at.as_ns() as f64 / self.rate_scale).round() as u64), request }))
    }

    fn check_time(&mut self, row: &TraceRequest) -> Result<SimTime, WorkloadError> {
        let wrong = |found: String, expected: String| WorkloadError::Row {
            line: row.line,
            field: Some(self.reader.time_field()),
            found,
            expected,
        };
        let at = row.at.ok_or_else(|| wrong("nothing".into(), "a time".into()))?;
        if at < self.last_at {
            let expected = format!("at least {}, the time of the row before; sort the rows", self.last_at);
            return Err(wrong(at.to_string(), expected));
        }
        self.last_at = at;
        Ok(at)
    }

    /// Tokens that are nobody else's: a later prompt that holds an answer says so with ids of its
    /// own, which cannot be told from its other ids.
    fn unknown_tokens(&mut self, length: u32) -> TokenRuns {
        let first = self.next_unknown_token;
        self.next_unknown_token += u64::from(length);
        TokenRuns::from_run(first, length)
    }

    /// Reads one arrival ahead. After an error the trace has ended.
    fn fill(&mut self) -> Result<(), WorkloadError> {
        if self.ahead.is_none() && self.requests_left > 0 {
            let left = std::mem::take(&mut self.requests_left);
            self.ahead = self.read()?;
            self.requests_left = if self.ahead.is_some() { left - 1 } else { 0 };
        }
        Ok(())
    }
}

impl Workload for Trace {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        self.fill()?;
        Ok(self.ahead.as_ref().map(|arrival| arrival.at))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        self.fill()?;
        Ok(self.ahead.take())
    }

    fn finished(&mut self, _index: u64, _at: SimTime) {}

    fn tenants(&self) -> &[String] {
        self.reader.tenants()
    }
}
