//! End-to-end results in whatever form they are.

use std::path::Path;

use serde_json::Value;

use super::bench_run::Settings;
use super::csv_rows::CsvRows;
use super::requests_csv::{REQUEST_COLUMNS, read_requests_csv};
use super::runs_csv::read_runs_csv;
use super::serve_json::read_serve_json;
use super::{BenchError, BenchRun};
use crate::cost::CudagraphMode;
use crate::text_file::read_text;

/// Reads `vllm bench serve`'s JSON, a table of runs, or a log of requests with its
/// `NAME.engine.json` beside it. `gpu` is taken where the file does not name one.
///
/// # Errors
/// A file of none of these forms, or a value in it that is not understood.
pub fn read_bench_file(path: &Path, gpu: &str) -> Result<Vec<BenchRun>, BenchError> {
    if path.extension().is_some_and(|extension| extension == "json") {
        return Ok(vec![read_serve_json(path, gpu)?]);
    }
    let columns = CsvRows::open(path)?;
    if columns.has_column("run_id") {
        return read_runs_csv(path);
    }
    if !REQUEST_COLUMNS.iter().any(|column| columns.has_column(column)) {
        return Err(BenchError::File {
            path: path.to_owned(),
            problem: "its first line names the columns neither of a table of runs nor of a log of requests"
                .to_owned(),
            hint: format!(
                "give a CSV file with run_id, source, model, gpu, tp and figures, or with {}; JSON of `vllm bench \
                 serve --save-result` is told by its name, which ends in .json",
                REQUEST_COLUMNS.join(", ")
            ),
        });
    }
    columns.need(&REQUEST_COLUMNS)?;
    let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let settings = read_engine_json(&path.with_extension("engine.json"), gpu)?;
    Ok(vec![read_requests_csv(path, &id, "log of requests", settings)?])
}

/// vLLM's arguments and what it made of them.
fn read_engine_json(path: &Path, gpu: &str) -> Result<Settings, BenchError> {
    if !path.exists() {
        return Err(BenchError::File {
            path: path.to_owned(),
            problem: "there is no such file beside the log of requests".to_owned(),
            hint: "give the server's settings there: `model`, `vllm_version`, `engine_kwargs` and `kv_cache`"
                .to_owned(),
        });
    }
    let text = read_text(path)?;
    let json: Value = serde_json::from_str(&text).map_err(|error| BenchError::File {
        path: path.to_owned(),
        problem: error.to_string(),
        hint: "give `model`, `vllm_version`, `engine_kwargs` and `kv_cache`".to_owned(),
    })?;
    let number = |section: &str, name: &str| json[section][name].as_u64().and_then(|n| u32::try_from(n).ok());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(Settings {
        model: text(&json["model"]).unwrap_or_default(),
        gpu: text(&json["hardware"]["device_name"]).unwrap_or_else(|| gpu.to_owned()),
        tensor_parallel_size: number("engine_kwargs", "tensor_parallel_size").unwrap_or(1),
        data_parallel_size: number("engine_kwargs", "data_parallel_size").unwrap_or(1).max(1),
        enable_expert_parallel: json["engine_kwargs"]["enable_expert_parallel"].as_bool().unwrap_or(false),
        engine_version: text(&json["vllm_version"]).unwrap_or_default(),
        weight_dtype: text(&json["engine_kwargs"]["quantization"]),
        kv_cache_dtype: text(&json["engine_kwargs"]["kv_cache_dtype"]).filter(|dtype| dtype != "auto"),
        max_model_len: number("engine_kwargs", "max_model_len"),
        max_num_seqs: number("engine_kwargs", "max_num_seqs"),
        max_num_batched_tokens: number("engine_kwargs", "max_num_batched_tokens"),
        block_size: number("kv_cache", "block_size"),
        gpu_memory_utilization: json["kv_cache"]["gpu_memory_utilization"].as_f64(),
        num_gpu_blocks: number("kv_cache", "num_gpu_blocks"),
        enable_prefix_caching: json["kv_cache"]["enable_prefix_caching"].as_bool(),
        async_scheduling: None,
        fuse_allreduce_rms: None,
        has_tf32: false,
        cudagraph_mode: CudagraphMode::default(),
        max_cudagraph_capture_size: number("engine_kwargs", "max_cudagraph_capture_size"),
        moe_format: None,
        is_remote: false,
        routing: None,
    })
}
