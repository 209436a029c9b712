//! A table of runs, one a row, in the columns of the tables that collect published results.
//!
//! A row whose log of requests lies beside the table, as `requests/RUN_ID.csv`, is read from that
//! log: single requests tell more than their means.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::bench_run::{ClosedLoopLoad, Settings};
use super::csv_rows::{CsvRows, Row};
use super::ladder::{Ladder, Stage};
use super::requests_csv::read_requests_csv;
use super::{BenchError, BenchRun, Load, Metric, published, published_ladders};
use crate::cost::CudagraphMode;

/// Requests for each user where a table does not say: `--num-prompts $((CONC * 10))`.
const REQUESTS_PER_USER: u32 = 10;

/// Reads a table of runs.
///
/// # Errors
/// The first cell that is not understood.
pub fn read_runs_csv(path: &Path) -> Result<Vec<BenchRun>, BenchError> {
    let mut rows = CsvRows::open(path)?;
    rows.need(&["run_id", "source", "model", "gpu", "tp"])?;
    let mut runs = Vec::new();
    let mut ids = BTreeSet::new();
    while let Some(row) = rows.next_row()? {
        let id = row.text("run_id");
        if id.is_empty() || !ids.insert(id.to_owned()) {
            return Err(row.wrong("run_id", id, "a name that no other run has"));
        }
        runs.push(read_run(&row, path)?);
    }
    share_sent_rates(&mut runs);
    Ok(runs)
}

fn read_run(row: &Row<'_>, path: &Path) -> Result<BenchRun, BenchError> {
    let id = row.text("run_id").to_owned();
    let source = row.text("source").to_owned();
    let mut settings = read_settings(row)?;
    let log = path.with_file_name("requests").join(format!("{id}.csv"));
    let mut measured = read_measured(row)?;
    if log.is_file() {
        settings.is_remote = false;
        let mut run = read_requests_csv(&log, &id, &source, settings)?;
        if let Some(&blocks) = measured.get(&Metric::NumGpuBlocks) {
            run.measured.insert(Metric::NumGpuBlocks, blocks);
        }
        return Ok(run);
    }
    if let Some((mut ladder, stage)) = read_ladder(row, &mut settings)? {
        // The client counts an empty piece after each token: the median time between two is 0, and
        // the mean half of what a token takes.
        if let Some(itl_ms) = measured.remove(&Metric::ItlMeanMs) {
            measured.insert(Metric::TpotMeanMs, 2.0 * itl_ms);
        }
        ladder.stages[stage].sent_per_s = measured.remove(&Metric::RequestsS).filter(|&rate| rate > 0.0);
        let load = Ok(Load::Ladder { ladder: Box::new(ladder), stage });
        return Ok(BenchRun { id, source, settings, load, measured });
    }
    let load = read_load(row, &mut settings)?;
    if load.is_err() {
        // What cannot be simulated is compared by nothing but its blocks.
        measured.retain(|&metric, _| metric == Metric::NumGpuBlocks);
    }
    Ok(BenchRun { id, source, settings, load, measured })
}

/// Each row of a ladder says how fast its own stage was sent; each is simulated with all of them.
fn share_sent_rates(runs: &mut [BenchRun]) {
    let key = |run: &BenchRun| format!("{} {:?}", run.source, run.settings);
    let mut stages: BTreeMap<String, Vec<Stage>> = BTreeMap::new();
    for run in runs.iter() {
        let Ok(Load::Ladder { ladder, stage }) = &run.load else { continue };
        stages.entry(key(run)).or_insert_with(|| ladder.stages.clone())[*stage] = ladder.stages[*stage];
    }
    for run in runs {
        let shared = stages.get(&key(run));
        if let (Ok(Load::Ladder { ladder, .. }), Some(shared)) = (&mut run.load, shared) {
            ladder.stages.clone_from(shared);
        }
    }
}

fn read_settings(row: &Row<'_>) -> Result<Settings, BenchError> {
    const COUNT: &str = "a whole number";
    let text = |column: &str| Some(row.text(column).to_owned()).filter(|text| !text.is_empty());
    let ranks = |column: &str| row.get(column, COUNT).map(|ranks| ranks.unwrap_or(1).max(1));
    let (tp, dp, ep) = (row.needed("tp", row.get("tp", COUNT)?, COUNT)?, ranks("dp")?, ranks("ep")?);
    Ok(Settings {
        model: row.text("model").to_owned(),
        gpu: row.text("gpu").to_owned(),
        tensor_parallel_size: tp,
        data_parallel_size: if published::multiplies_ranks(row.text("source"), [tp, dp, ep]) {
            1
        } else {
            dp
        },
        enable_expert_parallel: ep > 1,
        engine_version: row.text("engine_version").to_owned(),
        weight_dtype: text("weight_dtype"),
        kv_cache_dtype: text("kv_dtype").filter(|dtype| !dtype.starts_with("auto")),
        max_model_len: row.get("max_model_len", COUNT)?,
        max_num_seqs: row.get("max_num_seqs", COUNT)?,
        max_num_batched_tokens: row.get("max_num_batched_tokens", COUNT)?,
        block_size: row.get("block_size", COUNT)?,
        gpu_memory_utilization: row.number("gpu_memory_utilization")?,
        num_gpu_blocks: row.get("num_gpu_blocks", COUNT)?,
        enable_prefix_caching: match row.text("prefix_caching") {
            "" => None,
            text => Some(text.eq_ignore_ascii_case("true")),
        },
        async_scheduling: None,
        fuse_allreduce_rms: None,
        has_tf32: false,
        cudagraph_mode: CudagraphMode::default(),
        max_cudagraph_capture_size: row.get("max_cudagraph_capture_size", COUNT)?,
        moe_format: None,
        is_remote: true,
        routing: text("routing"),
    })
}

fn read_measured(row: &Row<'_>) -> Result<BTreeMap<Metric, f64>, BenchError> {
    let mut measured = BTreeMap::new();
    for metric in Metric::ALL {
        if let Some(value) = row.number(metric.name())? {
            measured.insert(metric, value);
        }
    }
    // A source that does not say which statistic it gives: taken as the mean.
    for (metric, column) in
        [(Metric::TtftMeanMs, "ttft_stat_unstated_ms"), (Metric::TpotMeanMs, "tpot_stat_unstated_ms")]
    {
        if let Some(value) = row.number(column)? {
            measured.entry(metric).or_insert(value);
        }
    }
    let block_size = row.number("block_size")?;
    if let (Some(tokens), Some(block_size)) = (row.number("kv_tokens_per_replica")?, block_size) {
        measured.entry(Metric::NumGpuBlocks).or_insert(tokens / block_size);
    }
    Ok(measured)
}

/// The ladder of rates that the row is a stage of, and which.
fn read_ladder(row: &Row<'_>, settings: &mut Settings) -> Result<Option<(Ladder, usize)>, BenchError> {
    const COUNT: &str = "a whole number";
    let count = |column: &str| row.get::<u32>(column, COUNT);
    let Some(rate_per_s) = row.number("rate_rps")? else { return Ok(None) };
    let tokens = row.number("kv_tokens_per_replica")?;
    let block_size = count("block_size")?;
    let num_gpu_blocks = tokens.zip(block_size).map(|(tokens, size)| (tokens / f64::from(size)) as u32);
    let ladder = published_ladders::find(&published_ladders::LadderRow {
        routing: row.text("routing"),
        num_replicas: count("replicas")?.unwrap_or(1),
        rate_per_s,
        input_tokens: count("input_len")?.unwrap_or(0),
        shared_tokens: count("shared_prefix_len")?.unwrap_or(0),
        output_tokens: count("output_len")?.unwrap_or(0),
        num_groups: count("num_prefix_groups")?.unwrap_or(0),
        prompts_per_group: count("prompts_per_group")?.unwrap_or(0),
        block_size: block_size.unwrap_or(64),
        num_gpu_blocks,
    });
    if ladder.is_some() {
        settings.block_size.get_or_insert(64);
        settings.num_gpu_blocks = settings.num_gpu_blocks.or(num_gpu_blocks);
    }
    Ok(ladder)
}

/// What the row was asked, or why that cannot be simulated.
fn read_load(row: &Row<'_>, settings: &mut Settings) -> Result<Result<Load, String>, BenchError> {
    const COUNT: &str = "a whole number from 1 to 10000000";
    let count = |column: &str| match row.get::<u32>(column, COUNT)? {
        Some(count) if !(1..=10_000_000).contains(&count) => Err(row.wrong(column, row.text(column), COUNT)),
        count => Ok(count),
    };
    let ranks = |column: &str| count(column).map(|ranks| ranks.unwrap_or(1).max(1));
    if ranks("replicas")? > 1 {
        return Ok(Err("several replicas behind a router, with a load that is not published".to_owned()));
    }
    let (Some(concurrency), Some(input_tokens), Some(output_tokens)) =
        (count("concurrency")?, count("input_len")?, count("output_len")?)
    else {
        return Ok(Err("no closed loop with fixed lengths and no log of its requests".to_owned()));
    };
    // Random prompts share nothing; the benchmark switches the cache off.
    settings.enable_prefix_caching.get_or_insert(false);
    let mut load = ClosedLoopLoad {
        concurrency,
        num_requests: count("num_requests")?.unwrap_or(concurrency.saturating_mul(REQUESTS_PER_USER)),
        input_tokens,
        output_tokens,
        range_ratio: 1.0,
        client_has_workers: false,
    };
    let measured_on = row.text("notes").strip_prefix("measured ").unwrap_or("");
    published::fill_in(row.text("source"), measured_on, settings, &mut load);
    Ok(Ok(Load::ClosedLoop(load)))
}
