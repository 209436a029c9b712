//! `requests.csv`: a row for each request that ended, in the order in which they did.

use std::fs::File;
use std::path::Path;

use serde::Serialize;

use super::fleet::FleetInfo;
use super::table_column::{Column, Kind, csv_with_header};
use crate::engine::FinishReason;
use crate::simulation::RequestRecord;

#[derive(Serialize)]
struct Row<'a> {
    index: u64,
    /// With several replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    replica: Option<Option<u32>>,
    /// With several data-parallel ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_parallel_rank: Option<Option<u32>>,
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

/// The columns of [`Row`]; `replica` and `data_parallel_rank` only with several.
const COLUMNS: [Column<&str>; 20] = [
    ("index", Kind::Count),
    ("replica", Kind::Count),
    ("data_parallel_rank", Kind::Count),
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

pub(super) fn columns(fleet: Option<&FleetInfo>) -> Vec<Column<&'static str>> {
    let is_there = |column: &Column<&str>| match column.0 {
        "replica" => fleet.is_some(),
        "data_parallel_rank" => fleet.is_some_and(FleetInfo::has_ranks),
        _ => true,
    };
    COLUMNS.into_iter().filter(is_there).collect()
}

pub(super) struct RequestsCsv {
    writer: csv::Writer<File>,
}

impl RequestsCsv {
    /// A fleet adds columns with the replica, and the data-parallel rank.
    pub fn create(path: &Path, fleet: Option<&FleetInfo>) -> std::io::Result<Self> {
        Ok(Self { writer: csv_with_header(path, &columns(fleet))? })
    }

    pub fn push(
        &mut self,
        request: &RequestRecord,
        tenants: &[String],
        fleet: Option<&FleetInfo>,
    ) -> csv::Result<()> {
        // None for a request that reached nobody.
        let served_by = fleet.and_then(|fleet| fleet.replicas.get(request.replica as usize));
        self.writer.serialize(Row {
            index: request.index,
            replica: fleet.map(|_| served_by.map(|info| info.replica)),
            data_parallel_rank: fleet
                .filter(|fleet| fleet.has_ranks())
                .map(|_| served_by.and_then(|info| info.data_parallel_rank)),
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

/// Time per output token after the first; `None` with fewer than two, or if the answer is not whole.
pub(crate) fn tpot_ns(request: &RequestRecord) -> Option<u64> {
    let first_token = request.first_token.filter(|_| request.is_whole())?;
    let tokens_after = request.num_output_tokens.checked_sub(1).filter(|&tokens| tokens > 0)?;
    Some(request.finished.since(first_token).as_ns() / u64::from(tokens_after))
}
