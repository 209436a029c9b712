//! What `vllm bench serve --save-result` writes (`vllm/benchmarks/serve.py`).
//!
//! With `--save-detailed` it holds when each request was sent and how long it was; those are
//! replayed. Without, a closed loop of the mean lengths stands for the load. Prompts are taken as
//! random: the file does not say what they share. The server's settings are what was given as
//! `--metadata`: `gpu=H100 tensor_parallel_size=2 engine_version=0.33.0 max_num_seqs=256 ...`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::bench_run::{ClosedLoopLoad, RecordedRequest, Settings};
use super::{BenchError, BenchRun, Load, Metric};
use crate::cost::CudagraphMode;
use crate::prompt::TokenRuns;
use crate::text_file::read_text;
use crate::units::SimTime;

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct ServeResult {
    model_id: String,
    num_prompts: u32,
    max_concurrency: Option<u32>,
    duration: f64,
    total_input_tokens: u64,
    total_output_tokens: u64,
    #[serde(default)]
    start_times: Vec<f64>,
    #[serde(default)]
    input_lens: Vec<u32>,
    #[serde(default)]
    output_lens: Vec<u32>,
    /// Figures and metadata.
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// Its name of each figure.
const FIGURES: [(&str, Metric); 15] = [
    ("mean_ttft_ms", Metric::TtftMeanMs),
    ("median_ttft_ms", Metric::TtftP50Ms),
    ("p90_ttft_ms", Metric::TtftP90Ms),
    ("p95_ttft_ms", Metric::TtftP95Ms),
    ("p99_ttft_ms", Metric::TtftP99Ms),
    ("mean_tpot_ms", Metric::TpotMeanMs),
    ("median_tpot_ms", Metric::TpotP50Ms),
    ("p90_tpot_ms", Metric::TpotP90Ms),
    ("p99_tpot_ms", Metric::TpotP99Ms),
    ("mean_e2el_ms", Metric::E2eMeanMs),
    ("median_e2el_ms", Metric::E2eP50Ms),
    ("p90_e2el_ms", Metric::E2eP90Ms),
    ("p99_e2el_ms", Metric::E2eP99Ms),
    ("output_throughput", Metric::OutputTokS),
    ("request_throughput", Metric::RequestsS),
];

/// Reads a result; `gpu` is the server's where the metadata does not say.
///
/// # Errors
/// A file that is no such result.
pub fn read_serve_json(path: &Path, gpu: &str) -> Result<BenchRun, BenchError> {
    let text = read_text(path)?;
    let result: ServeResult = serde_json::from_str(&text).map_err(|error| BenchError::File {
        path: path.to_owned(),
        problem: error.to_string(),
        hint: "give a file that `vllm bench serve --save-result` wrote".to_owned(),
    })?;
    let mut measured: BTreeMap<Metric, f64> = FIGURES
        .iter()
        .filter_map(|&(name, metric)| Some((metric, result.other.get(name)?.as_f64()?)))
        .collect();
    measured.insert(Metric::MakespanS, result.duration);
    Ok(BenchRun {
        id: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        source: "vllm bench serve".to_owned(),
        settings: result.settings(gpu),
        load: result.load(),
        measured,
    })
}

impl ServeResult {
    fn settings(&self, gpu: &str) -> Settings {
        // Metadata are strings, whatever they stand for.
        let text = |name: &str| match self.other.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(Value::Null) | None => None,
            Some(value) => Some(value.to_string()),
        };
        let number = |name: &str| text(name).and_then(|text| text.parse().ok());
        Settings {
            model: self.model_id.clone(),
            gpu: text("gpu").unwrap_or_else(|| gpu.to_owned()),
            tensor_parallel_size: number("tensor_parallel_size").or_else(|| number("tp")).unwrap_or(1),
            data_parallel_size: number("data_parallel_size").or_else(|| number("dp")).unwrap_or(1).max(1),
            enable_expert_parallel: text("enable_expert_parallel")
                .is_some_and(|text| text.eq_ignore_ascii_case("true")),
            engine_version: text("engine_version").unwrap_or_default(),
            weight_dtype: text("quantization"),
            kv_cache_dtype: text("kv_cache_dtype"),
            max_model_len: number("max_model_len"),
            max_num_seqs: number("max_num_seqs"),
            max_num_batched_tokens: number("max_num_batched_tokens"),
            block_size: number("block_size"),
            gpu_memory_utilization: text("gpu_memory_utilization").and_then(|text| text.parse().ok()),
            num_gpu_blocks: number("num_gpu_blocks"),
            enable_prefix_caching: text("enable_prefix_caching")
                .map(|text| text.eq_ignore_ascii_case("true")),
            async_scheduling: None,
            fuse_allreduce_rms: None,
            has_tf32: false,
            cudagraph_mode: CudagraphMode::default(),
            max_cudagraph_capture_size: number("max_cudagraph_capture_size"),
            moe_format: None,
            is_remote: true,
            routing: None,
        }
    }

    fn load(&self) -> Result<Load, String> {
        let count = self.start_times.len();
        let is_detailed = count > 0 && self.input_lens.len() == count && self.output_lens.len() == count;
        if is_detailed {
            return Ok(Load::Recorded(self.requests()));
        }
        let num_prompts = u64::from(self.num_prompts.max(1));
        let mean = |tokens: u64| u32::try_from(tokens / num_prompts).unwrap_or(u32::MAX).max(1);
        match self.max_concurrency {
            Some(concurrency) if concurrency > 0 => Ok(Load::ClosedLoop(ClosedLoopLoad {
                concurrency,
                num_requests: self.num_prompts,
                input_tokens: mean(self.total_input_tokens),
                output_tokens: mean(self.total_output_tokens),
                range_ratio: 1.0,
                client_has_workers: false,
            })),
            _ => Err("an open loop without --save-detailed does not say when requests were sent".to_owned()),
        }
    }

    fn requests(&self) -> Vec<RecordedRequest> {
        let first = self.start_times.iter().copied().fold(f64::INFINITY, f64::min);
        let lengths = self.input_lens.iter().zip(&self.output_lens);
        let requests = self.start_times.iter().zip(lengths).enumerate();
        requests
            // A request that failed has no output.
            .filter(|(_, (_, (input, output)))| **input > 0 && **output > 0)
            .map(|(index, (start, (&input, &output)))| RecordedRequest {
                at: SimTime::from_secs_f64(start - first),
                prompt: TokenRuns::from_run((index as u64) << 32, input),
                num_output_tokens: output,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BenchRun, BenchError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_serve_json(file.path(), "H100")
    }

    #[test]
    fn requests_are_replayed_where_they_are_saved() {
        let run = read(
            r#"{"model_id": "meta-llama/Llama-3.1-8B", "num_prompts": 2, "max_concurrency": null,
                "request_rate": 2.0, "duration": 3.5, "total_input_tokens": 300, "total_output_tokens": 30,
                "mean_ttft_ms": 25.5, "gpu": "H200", "tp": "2",
                "start_times": [100.25, 100.0], "input_lens": [100, 200], "output_lens": [10, 20]}"#,
        )
        .unwrap();
        assert_eq!((run.settings.gpu.as_str(), run.settings.tensor_parallel_size), ("H200", 2));
        assert_eq!(run.measured[&Metric::TtftMeanMs], 25.5);
        let Ok(Load::Recorded(requests)) = run.load else { panic!() };
        assert_eq!(requests[0].at, SimTime::from_ms(250));
        assert_eq!((requests[1].prompt.len(), requests[1].num_output_tokens), (200, 20));
    }

    #[test]
    fn a_closed_loop_stands_for_what_is_not_saved() {
        let run = read(
            r#"{"model_id": "m", "num_prompts": 40, "max_concurrency": 4, "duration": 3.5,
                "total_input_tokens": 4000, "total_output_tokens": 400}"#,
        )
        .unwrap();
        assert_eq!(run.settings.gpu, "H100");
        let Ok(Load::ClosedLoop(load)) = run.load else { panic!() };
        assert_eq!((load.concurrency, load.input_tokens, load.output_tokens), (4, 100, 10));
    }

    #[test]
    fn other_files_are_refused() {
        let error = read("{\"a\": 1}").unwrap_err().to_string();
        assert!(
            error.contains("missing field") && error.contains("vllm bench serve --save-result"),
            "{error}"
        );
    }
}
