//! A measured run, simulated: the same server, the same load, the same figures.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rayon::prelude::*;
use serde_json::json;

use super::bench_run::{BenchRun, Load, Settings};
use super::closed_loop::{ClosedLoop, FrontEndLog};
use super::ladder::{LadderWorkload, StageFigures};
use super::recorded::Recorded;
use super::requests_csv::latency_metrics;
use super::{BenchError, Metric, versions};
use crate::catalog::{Gpu, MemoryConfig, Model, size_kv_cache};
use crate::cost::{Format, Profile, StepShape, StepTime};
use crate::engine::kv_cache::BlockEviction;
use crate::scenario::{Pool, Scenario, Source};
use crate::simulation::{Observer, RequestRecord, StepRecord};
use crate::units::SimTime;
use crate::workload::Workload;

/// A ladder's arrivals, the order of its prompts and what its router leaves to chance were measured once and
/// are drawn so often: where a percentile lies between two waves of answers, one draw tells little.
const LADDER_SEEDS: u64 = 4;

/// Profile by GPU: the built-in ones, or those given for their GPU.
#[derive(Clone, Debug, Default)]
pub struct Profiles(BTreeMap<String, Profile>);

impl Profiles {
    /// Uses this for its GPU from now on.
    pub fn insert(&mut self, profile: Profile) {
        self.0.insert(profile.gpu.clone(), profile);
    }

    pub fn get(&self, gpu: &Gpu) -> Result<Profile, BenchError> {
        match self.0.get(gpu.name) {
            Some(profile) => Ok(profile.clone()),
            None => Ok(Profile::built_in(gpu)?.clone()),
        }
    }
}

/// What the simulation says of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Prediction {
    pub metrics: BTreeMap<Metric, f64>,
    /// A step in the middle of the load: every user decodes half-way through an answer.
    pub decode_step: StepTime,
}

impl Prediction {
    /// Of several draws of the same load, each figure over those that have it.
    fn mean<'a>(draws: impl Iterator<Item = &'a Self>) -> Self {
        let mut sums: BTreeMap<Metric, (f64, f64)> = BTreeMap::new();
        let mut decode_step = StepTime::default();
        for draw in draws {
            decode_step = draw.decode_step;
            for (&metric, &value) in &draw.metrics {
                let (sum, count) = sums.entry(metric).or_default();
                *sum += value;
                *count += 1.0;
            }
        }
        let metrics = sums.into_iter().map(|(metric, (sum, count))| (metric, sum / count)).collect();
        Self { metrics, decode_step }
    }
}

/// A server that can be simulated with one profile after another.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub scenario: Scenario,
    pub num_gpu_blocks: Option<u32>,
    moe_format: Option<Format>,
    is_remote: bool,
}

impl Server {
    /// # Errors
    /// Why the settings cannot be simulated; to be reported, not to stop at.
    pub fn new(run: &BenchRun, load: Option<&Load>) -> Result<Self, String> {
        let settings = &run.settings;
        let model = Model::find(&settings.model).map_err(|error| error.to_string())?;
        let gpu = Gpu::find(&settings.gpu).map_err(|error| error.to_string())?;
        let mut engine = engine_section(settings, gpu, &model, load);
        let cluster = match load {
            Some(Load::Ladder { ladder, .. }) => {
                json!({"replicas": ladder.num_replicas, "router": ladder.router})
            }
            _ => json!({}),
        };
        let text = |engine: &serde_json::Value| {
            json!({"name": "validate", "model": settings.model, "gpu": gpu.name, "engine": engine,
                "cluster": cluster, "workload": {"trace": {"path": "unused", "format": "mooncake"}}})
            .to_string()
        };
        let load_scenario = |text: String| {
            Scenario::load(Source { path: PathBuf::from(&run.id), text, ..Source::default() }).map_err(
                |error| {
                    // Nobody has seen this scenario, so a place in it says nothing.
                    let hint = error.hint.map_or_else(String::new, |hint| format!("; {hint}"));
                    error.message + &hint
                },
            )
        };
        // First for vLLM's defaults, which decide the number of blocks of an older version.
        let scenario = load_scenario(text(&engine))?;
        let predicted = size_kv_cache(&scenario.model, gpu, &memory_config(settings, &scenario));
        let num_gpu_blocks = predicted.map(|size| size.num_gpu_blocks).ok();
        if let Some(blocks) = settings.num_gpu_blocks.or(num_gpu_blocks) {
            engine["num_gpu_blocks_override"] = json!(blocks);
        }
        let mut scenario = load_scenario(text(&engine))?;
        for pool in &mut scenario.pools {
            pool.section.router_kernels = versions::router_kernels(settings);
        }
        Ok(Self { scenario, num_gpu_blocks, moe_format: settings.moe_format, is_remote: settings.is_remote })
    }

    /// What is predicted for each part of the load; of a ladder the means over several seeds.
    pub fn run(&self, load: &Load, profile: &Profile) -> Result<Vec<Prediction>, String> {
        let num_seeds = if matches!(load, Load::Ladder { .. }) { LADDER_SEEDS } else { 1 };
        let draws: Result<Vec<Vec<Prediction>>, String> =
            (1..=num_seeds).into_par_iter().map(|seed| self.run_once(seed, load, profile)).collect();
        let draws = draws?;
        let num_parts = draws.first().map_or(0, Vec::len);
        Ok((0..num_parts).map(|part| Prediction::mean(draws.iter().map(|draw| &draw[part]))).collect())
    }

    fn run_once(&self, seed: u64, load: &Load, profile: &Profile) -> Result<Vec<Prediction>, String> {
        let num_users = match load {
            Load::ClosedLoop(load) => load.users_per_thread(),
            // The front end of the server's own process streams nothing.
            Load::Recorded(_) => 0,
            Load::Ladder { ladder, .. } => ladder.max_requests_per_replica(),
        };
        let log = FrontEndLog::default();
        let frontend_ns = |request: &RequestRecord| {
            let before_ns = match load {
                _ if !self.is_remote => return 0,
                // With the wait for requests of others.
                Load::ClosedLoop(_) => log.delay_ns(request.index),
                Load::Recorded(_) | Load::Ladder { .. } => {
                    profile.host.frontend_busy_ns(request.num_prompt_tokens)
                }
            };
            before_ns + profile.host.frontend_latency_ns(num_users)
        };
        let workload: Box<dyn Workload> = match load {
            Load::Recorded(requests) => Box::new(Recorded::new(requests, SimTime::ZERO)),
            Load::ClosedLoop(load) => Box::new(ClosedLoop::new(*load, &profile.host, log.clone())),
            Load::Ladder { ladder, .. } => Box::new(LadderWorkload::new(ladder.as_ref().clone(), seed)),
        };
        let mut served = profile.clone();
        if let Some(fit) = self.moe_format.and_then(|format| profile.moe.get(&format)) {
            // Whatever the experts' format asks for first, these kernels run.
            served.moe.insert(Format::Mxfp4, fit.clone());
        }
        let cost = |pool: &Pool| pool.cost_with(served.clone());
        let decode_step = cost(&self.scenario.pools[0]).step_time(&decode_shape(load));
        let mut scenario = self.scenario.clone();
        scenario.file.seed = seed;
        let mut simulation = scenario.build_with(workload, &cost).map_err(|error| error.to_string())?;
        let parts = match load {
            Load::Ladder { ladder, .. } => {
                let mut figures = StageFigures::new(ladder, &frontend_ns);
                simulation.run(&mut figures).map_err(|error| error.to_string())?;
                figures.stages
            }
            Load::Recorded(_) | Load::ClosedLoop(_) => {
                let mut figures = Figures::new(&frontend_ns);
                simulation.run(&mut figures).map_err(|error| error.to_string())?;
                vec![figures]
            }
        };
        let prediction = |figures: Figures<'_>| {
            let mut metrics = figures.metrics();
            if let Some(blocks) = self.num_gpu_blocks {
                metrics.insert(Metric::NumGpuBlocks, f64::from(blocks));
            }
            Prediction { metrics, decode_step }
        };
        Ok(parts.into_iter().map(prediction).collect())
    }
}

fn engine_section(settings: &Settings, gpu: &Gpu, model: &Model, load: Option<&Load>) -> serde_json::Value {
    let longest = match load {
        Some(Load::Recorded(requests)) => requests
            .iter()
            .map(|request| request.prompt.len().saturating_add(request.num_output_tokens))
            .max(),
        Some(Load::ClosedLoop(load)) => Some(load.input_tokens.saturating_add(load.output_tokens)),
        Some(Load::Ladder { ladder, .. }) => Some(ladder.input_tokens() + ladder.output_tokens),
        None => None,
    };
    let longest = longest.unwrap_or(u32::MAX).min(model.max_position_embeddings);
    let mut engine = json!({
        "tensor_parallel_size": settings.tensor_parallel_size,
        "data_parallel_size": settings.data_parallel_size,
        "enable_expert_parallel": settings.enable_expert_parallel,
        "gpu_memory_utilization": settings.gpu_memory_utilization.unwrap_or(0.9),
        "max_model_len": settings.max_model_len.unwrap_or(longest),
        "enable_prefix_caching": settings.enable_prefix_caching.unwrap_or(true),
        "cudagraph_mode": settings.cudagraph_mode,
        "async_scheduling": versions::schedules_async(settings),
        "fuse_allreduce_rms": versions::fuses_all_reduce(settings, gpu),
        "scheduler_reserve_full_isl": versions::reserves_full_isl(settings),
    });
    let mut set = |field: &str, value: Option<serde_json::Value>| {
        if let Some(value) = value {
            engine[field] = value;
        }
    };
    set("block_size", settings.block_size.map(|size| json!(size)));
    set("max_num_seqs", settings.max_num_seqs.map(|seqs| json!(seqs)));
    set("max_cudagraph_capture_size", settings.max_cudagraph_capture_size.map(|size| json!(size)));
    set("max_num_batched_tokens", settings.max_num_batched_tokens.map(|tokens| json!(tokens)));
    set("quantization", weight_format(settings, model).map(|dtype| json!(dtype)));
    set("kv_cache_dtype", settings.kv_cache_dtype.as_ref().map(|dtype| json!(dtype)));
    engine
}

/// The name of the weights' format, where it is not that of the built-in checkpoint.
fn weight_format(settings: &Settings, model: &Model) -> Option<&'static str> {
    use crate::catalog::Dtype;
    // gpt-oss is published in MXFP4 alone; tables call any 4-bit float NVFP4.
    if model.moe.as_ref().is_some_and(|moe| moe.expert_dtype == Dtype::Mxfp4) {
        return None;
    }
    match settings.weight_dtype.as_deref()? {
        "fp8" | "fp8_block" => Some("fp8"),
        "nvfp4" => Some("nvfp4"),
        "int4" | "int4_wo" | "w4a16" => Some("int4"),
        _ => None,
    }
}

fn memory_config(settings: &Settings, scenario: &Scenario) -> MemoryConfig {
    let engine = &scenario.engine;
    MemoryConfig {
        gpu_memory_utilization: scenario.file.engine.gpu_memory_utilization,
        tensor_parallel_size: settings.tensor_parallel_size,
        data_parallel_size: scenario.file.engine.data_parallel_size,
        pipeline_parallel_size: 1,
        block_size: engine.block_size,
        max_num_batched_tokens: engine.max_num_batched_tokens,
        max_num_seqs: engine.max_num_seqs,
        estimate_cudagraphs: versions::estimates_cudagraphs(settings),
        has_draft_head: false,
    }
}

fn decode_shape(load: &Load) -> StepShape {
    let (num, context) = match load {
        Load::Recorded(requests) => {
            let tokens = |request: &super::bench_run::RecordedRequest| {
                u64::from(request.prompt.len() + request.num_output_tokens / 2)
            };
            (64, 64 * requests.iter().map(tokens).sum::<u64>() / requests.len() as u64)
        }
        Load::ClosedLoop(load) => {
            let context =
                f64::from(load.input_tokens + load.output_tokens / 2) * (1.0 + load.range_ratio) / 2.0;
            (load.concurrency, (f64::from(load.concurrency) * context) as u64)
        }
        Load::Ladder { ladder, .. } => {
            let num = ladder.max_requests_per_replica();
            (num, u64::from(num) * u64::from(ladder.input_tokens() + ladder.output_tokens / 2))
        }
    };
    let mut shape = StepShape::default();
    shape.add_decodes(num, context);
    shape
}

/// Collects what the client of a benchmark would see.
pub(super) struct Figures<'a> {
    frontend_ns: &'a dyn Fn(&RequestRecord) -> u64,
    ttft_ns: Vec<u64>,
    tpot_ns: Vec<u64>,
    e2e_ns: Vec<u64>,
    output_tokens: u64,
    queries_tokens: u64,
    hits_tokens: u64,
    first_arrival: SimTime,
    last_finish: SimTime,
}

impl<'a> Figures<'a> {
    pub fn new(frontend_ns: &'a dyn Fn(&RequestRecord) -> u64) -> Self {
        Self {
            frontend_ns,
            ttft_ns: Vec::new(),
            tpot_ns: Vec::new(),
            e2e_ns: Vec::new(),
            output_tokens: 0,
            queries_tokens: 0,
            hits_tokens: 0,
            first_arrival: SimTime::MAX,
            last_finish: SimTime::ZERO,
        }
    }

    /// A prompt was looked up, and so much of it found.
    pub fn add_lookup(&mut self, queries_tokens: u32, hits_tokens: u32) {
        self.queries_tokens += u64::from(queries_tokens);
        self.hits_tokens += u64::from(hits_tokens);
    }

    fn metrics(mut self) -> BTreeMap<Metric, f64> {
        let makespan_s = self.last_finish.since(self.first_arrival).as_secs_f64();
        let num_requests = self.e2e_ns.len() as f64;
        let mut metrics = latency_metrics(&mut self.ttft_ns, &mut self.tpot_ns, &mut self.e2e_ns);
        metrics.insert(Metric::MakespanS, makespan_s);
        if makespan_s > 0.0 {
            metrics.insert(Metric::RequestsS, num_requests / makespan_s);
            metrics.insert(Metric::OutputTokS, self.output_tokens as f64 / makespan_s);
        }
        if self.queries_tokens > 0 {
            metrics.insert(Metric::HitRate, self.hits_tokens as f64 / self.queries_tokens as f64);
        }
        metrics
    }
}

impl Observer for Figures<'_> {
    fn on_step(&mut self, step: &StepRecord) {
        self.queries_tokens += step.prefix_cache.queries;
        self.hits_tokens += step.prefix_cache.hits;
    }

    fn on_request(&mut self, request: &RequestRecord) {
        let frontend_ns = (self.frontend_ns)(request);
        let Some(first_token) = request.first_token else { return };
        self.ttft_ns.push(first_token.since(request.arrival).as_ns() + frontend_ns);
        self.e2e_ns.push(request.finished.since(request.arrival).as_ns() + frontend_ns);
        if request.num_output_tokens > 1 {
            let decoding = request.finished.since(first_token).as_ns();
            self.tpot_ns.push(decoding / u64::from(request.num_output_tokens - 1));
        }
        self.output_tokens += u64::from(request.num_output_tokens);
        self.first_arrival = self.first_arrival.min(request.arrival);
        self.last_finish = self.last_finish.max(request.finished);
    }

    fn on_evictions(&mut self, _replica: u32, _evictions: &[BlockEviction]) {}

    fn on_reuse_gaps(&mut self, _replica: u32, _gaps_ns: &[u64]) {}
}
