//! The traces of BurstGPT: CSV with the columns
//!
//! ```text
//! Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
//! 5,ChatGPT,472,18,490,Conversation log
//! ```
//!
//! `Timestamp` is in seconds, of which the first counts as the start. The third release adds `Session
//! ID` to conversations. Failed requests have 0 response tokens and are mistakes here: take the files
//! `without_fails`, or skip bad rows.
//!
//! Which prompts share what is not known: the scenario's `reuse` has to say.
//!
//! Source of the format: <https://github.com/HPMLL/BurstGPT>.

use xxhash_rust::xxh3::xxh3_64;

use super::csv_rows::{CsvRow, CsvRows};
use super::fields::TimeUnit;
use super::head::Head;
use super::input::TraceInput;
use super::mistake::Mistake;
use super::turns::Turns;
use super::{TraceReader, TraceRequest, TraceTokens};
use crate::workload::WorkloadError;

const COLUMNS: [&str; 3] = ["Timestamp", "Request tokens", "Response tokens"];

pub(super) fn matches(head: &Head) -> bool {
    head.has_columns(&COLUMNS)
}

pub(super) struct BurstGpt {
    rows: CsvRows,
    turns: Turns,
}

impl BurstGpt {
    pub fn new(input: TraceInput) -> Result<Self, WorkloadError> {
        Ok(Self { rows: CsvRows::new(input, &COLUMNS, &["Session ID"])?, turns: Turns::default() })
    }
}

impl TraceReader for BurstGpt {
    fn time_field(&self) -> &'static str {
        COLUMNS[0]
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some(row) = self.rows.next_row()? else { return Ok(None) };
        read(&mut self.turns, &row).map(Some).map_err(|mistake| mistake.at_line(row.line))
    }
}

fn read(turns: &mut Turns, row: &CsvRow<'_>) -> Result<TraceRequest, Mistake> {
    let at = row.time("Timestamp", TimeUnit::Seconds)?;
    let prompt = TraceTokens::Length(row.length_tokens("Request tokens")?);
    let output = TraceTokens::Length(row.length_tokens("Response tokens")?);
    // Requests of the API have none.
    let session = match row.text("Session ID")? {
        "" => None,
        text => Some(text.parse().unwrap_or_else(|_| xxh3_64(text.as_bytes()))),
    };
    let turn = session.map_or(0, |session| turns.next(session));
    Ok(TraceRequest { session, turn, ..TraceRequest::new(row.line, Some(at), prompt, output) })
}
