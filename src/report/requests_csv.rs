//! `requests.csv`: a row for each request that ended, in the order in which they did.

use std::fs::File;
use std::path::Path;

use serde::Serialize;

use super::table_column::{Column, Kind, csv_with_header};
use crate::engine::FinishReason;
use crate::simulation::{NO_REPLICA, RequestRecord};

#[derive(Serialize)]
struct Row<'a> {
    index: u64,
    /// With several replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<Option<u32>>,
    tenant: &'a str,
    session: Option<u64>,
    turn: u32,
    arrival_s: f64,
    first_scheduled_s: Option<f64>,
    first_token_s: Option<f64>,
    finished_s: f64,
    queue_ms: Option<f64>,
    ttft_ms: Option<f64>,
    tpot_ms: Option<f64>,
    e2e_ms: f64,
    prompt_tokens: u32,
    output_tokens: u32,
    local_cached_tokens: u32,
    external_cached_tokens: u32,
    num_preemptions: u32,
    finish_reason: &'static str,
}

/// The columns of [`Row`]; `replica` only with several.
const COLUMNS: [Column<&str>; 19] = [
    ("index", Kind::Count),
    ("replica", Kind::Count),
    ("tenant", Kind::Text),
    ("session", Kind::Id),
    ("turn", Kind::Count),
    ("arrival_s", Kind::Float),
    ("first_scheduled_s", Kind::Float),
    ("first_token_s", Kind::Float),
    ("finished_s", Kind::Float),
    ("queue_ms", Kind::Float),
    ("ttft_ms", Kind::Float),
    ("tpot_ms", Kind::Float),
    ("e2e_ms", Kind::Float),
    ("prompt_tokens", Kind::Count),
    ("output_tokens", Kind::Count),
    ("local_cached_tokens", Kind::Count),
    ("external_cached_tokens", Kind::Count),
    ("num_preemptions", Kind::Count),
    ("finish_reason", Kind::Text),
];

pub(super) fn columns(is_fleet: bool) -> Vec<Column<&'static str>> {
    COLUMNS.into_iter().filter(|(name, _)| is_fleet || *name != "replica").collect()
}

pub(super) struct RequestsCsv {
    writer: csv::Writer<File>,
    is_fleet: bool,
}

impl RequestsCsv {
    /// `is_fleet` adds a column with the replica.
    pub fn create(path: &Path, is_fleet: bool) -> std::io::Result<Self> {
        let writer = csv_with_header(path, &columns(is_fleet))?;
        Ok(Self { writer, is_fleet })
    }

    pub fn push(&mut self, request: &RequestRecord, tenants: &[String]) -> csv::Result<()> {
        self.writer.serialize(Row {
            index: request.index,
            replica: self.is_fleet.then(|| replica(request)),
            tenant: tenants.get(request.tenant as usize).map_or("", String::as_str),
            session: request.session,
            turn: request.turn,
            arrival_s: request.arrival.as_secs_f64(),
            first_scheduled_s: request.first_scheduled.map(|at| at.as_secs_f64()),
            first_token_s: request.first_token.map(|at| at.as_secs_f64()),
            finished_s: request.finished.as_secs_f64(),
            queue_ms: request.first_scheduled.map(|at| at.since(request.arrival).as_ms_f64()),
            ttft_ms: request.first_token.map(|at| at.since(request.arrival).as_ms_f64()),
            tpot_ms: tpot_ns(request).map(|ns| ns as f64 / 1e6),
            e2e_ms: request.finished.since(request.arrival).as_ms_f64(),
            prompt_tokens: request.num_prompt_tokens,
            output_tokens: request.num_output_tokens,
            local_cached_tokens: request.num_local_cached_tokens,
            external_cached_tokens: request.num_external_cached_tokens,
            num_preemptions: request.num_preemptions,
            finish_reason: match request.finish_reason {
                FinishReason::Stop => "stop",
                FinishReason::Length => "length",
                FinishReason::Abort => "abort",
                FinishReason::Error => "error",
            },
        })
    }

    pub fn finish(mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

/// `None` for a request that reached none.
fn replica(request: &RequestRecord) -> Option<u32> {
    Some(request.replica).filter(|&replica| replica != NO_REPLICA)
}

/// Time per output token after the first; `None` with fewer than two, or if the answer is not whole.
pub(crate) fn tpot_ns(request: &RequestRecord) -> Option<u64> {
    let first_token = request.first_token.filter(|_| request.is_whole())?;
    let tokens_after = request.num_output_tokens.checked_sub(1).filter(|&tokens| tokens > 0)?;
    Some(request.finished.since(first_token).as_ns() / u64::from(tokens_after))
}
