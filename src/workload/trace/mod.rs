//! Recorded traffic, replayed at the recorded times whatever the server does.
//!
//! A format is a file here that implements `Rows`, and a line in each of [`TraceFormat`] and
//! `TraceFormat::rows`.

mod decompress;
mod lines;
mod mooncake;

use std::io::BufRead;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use decompress::decompress;

use super::{Arrival, ConfigError, RequestSpec, Workload, WorkloadError};
use crate::prompt::{PromptExtras, TokenRuns};
use crate::units::SimTime;

/// Which file to replay and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// The file, plain or gzip. The caller opens it and passes it to [`Trace::new`].
    pub path: PathBuf,
    pub format: TraceFormat,
    /// The prompt tokens that one hash id stands for; the format's own number if not given.
    #[serde(default)]
    pub hash_id_tokens: Option<u32>,
    /// Ends the trace after so many requests.
    #[serde(default)]
    pub max_requests: Option<u64>,
    /// Divides all times: 2 replays the trace in half the time.
    #[serde(default = "one")]
    pub rate_scale: f64,
}

const fn one() -> f64 {
    1.0
}

impl TraceConfig {
    /// Checks the values; the error names the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.hash_id_tokens == Some(0) {
            return Err(ConfigError::new("hash_id_tokens", 0, "at least 1 (Mooncake traces: 512)"));
        }
        if !(1e-6..=1e6).contains(&self.rate_scale) {
            let expected = "a number from 0.000001 to 1000000; 1 replays the recorded times";
            return Err(ConfigError::new("rate_scale", self.rate_scale, expected));
        }
        Ok(())
    }
}

/// The formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// JSON lines of Mooncake (FAST '25): times, lengths and prefix hash ids.
    Mooncake,
}

impl TraceFormat {
    fn rows(self, input: Box<dyn BufRead + Send>, config: &TraceConfig) -> Box<dyn Rows> {
        match self {
            Self::Mooncake => Box::new(mooncake::MooncakeRows::new(input, config)),
        }
    }
}

/// Prompt token ids of a format lie below this; sampled tokens lie above.
const FIRST_OUTPUT_TOKEN: u64 = 1 << 62;

/// A request as a format knows it.
struct Row {
    /// Where it was found, counted from 1.
    line: u64,
    /// From the start of the trace.
    at: SimTime,
    /// 1 to 2^31 - 1 tokens below [`FIRST_OUTPUT_TOKEN`].
    prompt: TokenRuns,
    /// From 1 to 2^31 - 1.
    output_tokens: u32,
}

/// A format: its rows in the order of the file.
trait Rows: Send {
    /// The format's name for the time of a row, for messages.
    fn time_field(&self) -> &'static str;

    fn next_row(&mut self) -> Result<Option<Row>, WorkloadError>;
}

/// The workload that replays a trace. It holds one row in memory at a time.
pub struct Trace {
    rows: Box<dyn Rows>,
    rate_scale: f64,
    requests_left: u64,
    ahead: Option<Arrival>,
    next_index: u64,
    next_output_token: u64,
    last_row_at: SimTime,
}

impl Trace {
    /// Replays `input`, the content of the trace file after [`decompress()`].
    pub fn new(input: Box<dyn BufRead + Send>, config: &TraceConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            rows: config.format.rows(input, config),
            rate_scale: config.rate_scale,
            requests_left: config.max_requests.unwrap_or(u64::MAX),
            ahead: None,
            next_index: 0,
            next_output_token: FIRST_OUTPUT_TOKEN,
            last_row_at: SimTime::ZERO,
        })
    }

    fn read(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        let Some(row) = self.rows.next_row()? else { return Ok(None) };
        if row.at < self.last_row_at {
            return Err(WorkloadError::Row {
                line: row.line,
                field: Some(self.rows.time_field()),
                found: row.at.to_string(),
                expected: format!("at least {}, the time of the row before; sort the rows", self.last_row_at),
            });
        }
        self.last_row_at = row.at;
        // What is sampled is nobody else's: a later prompt that holds this answer says so with
        // hash ids, which cannot be told from its other ids.
        let output = TokenRuns::from_run(self.next_output_token, row.output_tokens);
        self.next_output_token += u64::from(row.output_tokens);
        let request = RequestSpec {
            index: self.next_index,
            prompt: row.prompt,
            output,
            extras: PromptExtras::default(),
            priority: 0,
            skip_reading_prefix_cache: false,
            patience: None,
            tenant: 0,
            session: None,
            turn: 0,
            trace_line: Some(row.line),
        };
        self.next_index += 1;
        Ok(Some(Arrival { at: SimTime((row.at.as_ns() as f64 / self.rate_scale).round() as u64), request }))
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
        &[]
    }
}
