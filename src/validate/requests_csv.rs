//! A log of single requests: when each was sent, how long it was, and what it waited.
//!
//! Columns `input_len`, `output_len`, `arrival_s`, `ttft_ms`, `tpot_ms`, `e2e_ms` and
//! `prefix_block_ids`: the prompt as blocks of 16 tokens, equal numbers for equal blocks after
//! equal beginnings. Beside `NAME.csv` there may be `NAME.engine.json` with vLLM's settings.

use std::collections::BTreeMap;
use std::path::Path;

use super::bench_run::{RecordedRequest, Settings};
use super::csv_rows::{CsvRows, Row};
use super::{BenchError, BenchRun, Load, Metric};
use crate::prompt::TokenRuns;
use crate::report::LatencyMs;
use crate::units::SimTime;

/// Tokens that one of `prefix_block_ids` stands for.
const BLOCK_TOKENS: u32 = 16;
/// Tokens after the last whole block are no other request's.
const FIRST_TAIL_ID: u64 = 1 << 61;

/// What every log has.
pub(super) const REQUEST_COLUMNS: [&str; 6] =
    ["input_len", "output_len", "arrival_s", "ttft_ms", "e2e_ms", "prefix_block_ids"];

/// Reads a log; `settings` are the server's.
///
/// # Errors
/// The first cell that is not understood.
pub fn read_requests_csv(
    path: &Path,
    id: &str,
    source: &str,
    settings: Settings,
) -> Result<BenchRun, BenchError> {
    let mut rows = CsvRows::open(path)?;
    rows.need(&REQUEST_COLUMNS)?;
    let mut requests = Vec::new();
    let mut timings = Timings::default();
    while let Some(row) = rows.next_row()? {
        let request = read_request(&row, requests.len() as u64)?;
        timings.push(&row, &request)?;
        requests.push(request);
    }
    if requests.is_empty() {
        return Err(BenchError::File {
            path: path.to_owned(),
            problem: "there is no request".to_owned(),
            hint: "give a log with a row for each request".to_owned(),
        });
    }
    Ok(BenchRun {
        id: id.to_owned(),
        source: source.to_owned(),
        settings,
        load: Ok(Load::Recorded(requests)),
        measured: timings.metrics(),
    })
}

fn read_request(row: &Row<'_>, index: u64) -> Result<RecordedRequest, BenchError> {
    const TOKENS: &str = "a number of tokens from 1 to 10000000";
    let tokens = |column: &str| -> Result<u32, BenchError> {
        let value = row.needed(column, row.get(column, TOKENS)?, TOKENS)?;
        if (1..=10_000_000).contains(&value) {
            Ok(value)
        } else {
            Err(row.wrong(column, &value.to_string(), TOKENS))
        }
    };
    let (input, output) = (tokens("input_len")?, tokens("output_len")?);
    let mut prompt = TokenRuns::new();
    let ids = row.text("prefix_block_ids");
    for id in ids.split_ascii_whitespace() {
        let block: u32 = id.parse().map_err(|_| row.wrong("prefix_block_ids", id, "whole numbers"))?;
        prompt.push_run(u64::from(block) * u64::from(BLOCK_TOKENS), BLOCK_TOKENS);
    }
    if prompt.len() > input {
        return Err(row.wrong("prefix_block_ids", ids, "at most a block for every 16 tokens of input_len"));
    }
    prompt.push_run(FIRST_TAIL_ID + (index << 32), input - prompt.len());
    let seconds = row.needed("arrival_s", row.number("arrival_s")?, "seconds")?;
    Ok(RecordedRequest { at: SimTime::from_secs_f64(seconds), prompt, num_output_tokens: output })
}

/// What was measured, in nanoseconds.
#[derive(Default)]
struct Timings {
    ttft: Vec<u64>,
    tpot: Vec<u64>,
    e2e: Vec<u64>,
    output_tokens: u64,
    first_sent: Option<SimTime>,
    last_done: SimTime,
}

impl Timings {
    fn push(&mut self, row: &Row<'_>, request: &RecordedRequest) -> Result<(), BenchError> {
        let ns = |column: &str| -> Result<u64, BenchError> {
            let ms = row.needed(column, row.number(column)?, "milliseconds")?;
            Ok((ms * 1e6).round() as u64)
        };
        let (ttft, e2e) = (ns("ttft_ms")?, ns("e2e_ms")?);
        self.ttft.push(ttft);
        self.e2e.push(e2e);
        if request.num_output_tokens > 1 {
            self.tpot.push(e2e.saturating_sub(ttft) / u64::from(request.num_output_tokens - 1));
        }
        self.output_tokens += u64::from(request.num_output_tokens);
        self.first_sent = Some(self.first_sent.map_or(request.at, |first| first.min(request.at)));
        self.last_done = self.last_done.max(request.at + SimTime(e2e));
        Ok(())
    }

    fn metrics(mut self) -> BTreeMap<Metric, f64> {
        let makespan_s = self.last_done.since(self.first_sent.unwrap_or_default()).as_secs_f64();
        let num_requests = self.ttft.len() as f64;
        let mut metrics = latency_metrics(&mut self.ttft, &mut self.tpot, &mut self.e2e);
        metrics.insert(Metric::MakespanS, makespan_s);
        metrics.insert(Metric::RequestsS, num_requests / makespan_s);
        metrics.insert(Metric::OutputTokS, self.output_tokens as f64 / makespan_s);
        metrics
    }
}

/// Means and percentiles of what single requests took.
pub(super) fn latency_metrics(
    ttft_ns: &mut [u64],
    tpot_ns: &mut [u64],
    e2e_ns: &mut [u64],
) -> BTreeMap<Metric, f64> {
    let (ttft, tpot, e2e) = (LatencyMs::of_ns(ttft_ns), LatencyMs::of_ns(tpot_ns), LatencyMs::of_ns(e2e_ns));
    let mut metrics = BTreeMap::from([
        (Metric::TtftMeanMs, ttft.mean_ms),
        (Metric::TtftP50Ms, ttft.p50_ms),
        (Metric::TtftP90Ms, ttft.p90_ms),
        (Metric::TtftP95Ms, ttft.p95_ms),
        (Metric::TtftP99Ms, ttft.p99_ms),
        (Metric::E2eMeanMs, e2e.mean_ms),
        (Metric::E2eP50Ms, e2e.p50_ms),
        (Metric::E2eP90Ms, e2e.p90_ms),
        (Metric::E2eP99Ms, e2e.p99_ms),
    ]);
    // Requests of one token have none.
    if tpot.count > 0 {
        metrics.extend([
            (Metric::TpotMeanMs, tpot.mean_ms),
            (Metric::TpotP50Ms, tpot.p50_ms),
            (Metric::TpotP90Ms, tpot.p90_ms),
            (Metric::TpotP99Ms, tpot.p99_ms),
        ]);
    }
    metrics
}
