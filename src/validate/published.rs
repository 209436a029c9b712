//! Settings that a published table leaves out and the benchmark's own scripts state.
//!
//! Tables of closed loops with the models and lengths below hold results of the public benchmark InferenceMAX
//! (later InferenceX). Its client (`utils/bench_serving/benchmark_serving.py` of the repository
//! SemiAnalysisAI/InferenceX) draws every length between 80 % and the whole, and sends ten requests for each user,
//! the first of all users at once, when the answers to its warm-up are there. How its scripts start vLLM is in
//! `benchmarks/` of the same repository, when that changed in its `perf-changelog.yaml`; the day of a run decides
//! between versions of a script. Steps take 8,192 tokens, stated or vLLM's default then, unless said otherwise.
//!
//! The collection's own runs of vLLM 0.12 were set up by AIConfigurator, whose generator for benchmarks gives a
//! step as many tokens as the prompt has, the requests of a batch and 1,500 more
//! (`rule_plugin/benchmark/vllm.rule` of the repository ai-dynamo/aiconfigurator). The table does not say so, but
//! no other limit fits: at 8 users with 1,024 tokens each the first token came after 126 ms, which a step of all
//! eight does not allow, and with a fixed 512 in place of the batch TTFT of 8 users with 4,096 is a quarter too
//! long. Its client is AIPerf, whose workers read the answers in processes of their own.

use super::bench_run::{ClosedLoopLoad, Settings};
use crate::cost::{CudagraphMode, Format};

/// Lengths of prompts and answers in tokens.
const LENGTHS: [(u32, u32); 3] = [(1024, 1024), (1024, 8192), (8192, 1024)];
const RANGE_RATIO: f64 = 0.8;
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;
const FP8: &str = "fp8";

/// Whether a table took the ranks of expert parallelism for others than those of tensor parallelism, as
/// AIConfigurator's does of some runs: names say `tp2_ep2`, columns 2 x 2 with 4 for the experts, and TPOT is
/// that of the row with `tp` 2 and `ep` 2 at the same number of users, within 1 %.
pub(super) fn multiplies_ranks(source: &str, [tp, dp, ep]: [u32; 3]) -> bool {
    source == "aiconfigurator/silicon_sample.csv" && dp == tp && dp > 1 && ep == tp * dp
}

/// Source and version of the runs that AIConfigurator set up.
const AICONFIGURATOR: (&str, &str) = ("aiconfigurator/silicon_sample.csv", "0.12.0");
/// What its step takes beyond the tokens of a prompt and one for each user.
const AICONFIGURATOR_TOKENS: u32 = 1500;

/// Fills in what the benchmark states; other loads stay as they are. `measured_on` is a day such as 2026-04-03,
/// or empty.
pub(super) fn fill_in(source: &str, measured_on: &str, settings: &mut Settings, load: &mut ClosedLoopLoad) {
    if (source, settings.engine_version.as_str()) == AICONFIGURATOR {
        let tokens = load.input_tokens.saturating_add(AICONFIGURATOR_TOKENS).saturating_add(load.concurrency);
        settings.max_num_batched_tokens.get_or_insert(tokens);
        load.client_has_workers = true;
        return;
    }
    let model = settings.model.to_lowercase();
    let Some(script) = MODELS.iter().find_map(|(name, script)| model.contains(name).then_some(script)) else {
        return;
    };
    if !LENGTHS.contains(&(load.input_tokens, load.output_tokens)) {
        return;
    }
    load.range_ratio = RANGE_RATIO;
    script(settings, load, measured_on);
    settings.max_num_batched_tokens.get_or_insert(MAX_NUM_BATCHED_TOKENS);
}

/// What the scripts of a model state.
type Script = fn(&mut Settings, &ClosedLoopLoad, &str);

/// Those that vLLM serves, in lower case.
const MODELS: [(&str, Script); 4] =
    [("llama-3.1-70b", llama), ("gpt-oss-120b", gpt_oss), ("minimax-m2.5", minimax), ("kimi-k2.5", kimi)];

fn is_blackwell(settings: &Settings) -> bool {
    settings.gpu.starts_with('B')
}

/// `70b_fp8_*.sh` and `70b_fp4_*.sh` of October 2025, for vLLM 0.10.2, which captured no whole batches unless
/// told to.
fn llama(settings: &mut Settings, load: &ClosedLoopLoad, _: &str) {
    settings.async_scheduling = Some(true);
    settings.fuse_allreduce_rms = Some(is_blackwell(settings));
    settings.kv_cache_dtype.get_or_insert_with(|| FP8.to_owned());
    if is_blackwell(settings) {
        settings.max_num_seqs.get_or_insert(512);
        settings.cudagraph_mode = CudagraphMode::FullDecodeOnly;
    } else {
        settings.max_num_seqs.get_or_insert(load.concurrency);
        settings.cudagraph_mode = CudagraphMode::Piecewise;
    }
}

/// `gptoss_fp4_*.sh`. Runs without a version are those of vLLM 0.11.0, where the scripts for Hopper ask for graphs
/// that leave attention out, and those for B200 do not ask for an 8-bit cache yet.
fn gpt_oss(settings: &mut Settings, load: &ClosedLoopLoad, _: &str) {
    settings.async_scheduling = Some(true);
    settings.max_cudagraph_capture_size = Some(2_048);
    if is_blackwell(settings) {
        settings.fuse_allreduce_rms = Some(true);
        if !settings.engine_version.is_empty() {
            settings.kv_cache_dtype.get_or_insert_with(|| FP8.to_owned());
        }
        settings.max_num_seqs.get_or_insert(512);
        // VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8
        settings.moe_format = Some(Format::Mxfp4Mxfp8);
    } else {
        if settings.engine_version.is_empty() {
            settings.cudagraph_mode = CudagraphMode::Piecewise;
            settings.fuse_allreduce_rms = Some(false);
        }
        settings.max_num_seqs.get_or_insert(load.concurrency);
        // VLLM_MXFP4_USE_MARLIN; before vLLM shipped Triton's kernels, its choice.
        settings.moe_format = Some(Format::Mxfp4Marlin);
    }
}

/// `minimaxm2.5_fp8_*.sh` and `minimaxm2.5_fp4_*.sh`. Up to vLLM 0.17 those for Blackwell turned expert
/// parallelism on whatever the number of expert ranks that a run was listed with; the first for H200, of February 2026,
/// did not know of it. On Blackwell products in 32 bits are on tensor cores since
/// its pull requests 1069, 1106 and 1107 of April 2026.
fn minimax(settings: &mut Settings, load: &ClosedLoopLoad, measured_on: &str) {
    settings.has_tf32 = is_blackwell(settings) && measured_on >= "2026-04-20";
    if settings.version().is_some_and(|version| version <= (0, 17)) {
        settings.enable_expert_parallel = is_blackwell(settings);
        settings.gpu_memory_utilization.get_or_insert(0.95);
        return;
    }
    settings.kv_cache_dtype.get_or_insert_with(|| FP8.to_owned());
    settings.max_num_batched_tokens.get_or_insert(2 * load.input_tokens);
    settings.max_cudagraph_capture_size = Some(2_048);
}

/// `kimik2.5_int4_h200.sh`, and `kimik2.5_fp4_*.sh`, which on B200 changed in April 2026. The latent vector has
/// 16 bits unless said otherwise.
fn kimi(settings: &mut Settings, load: &ClosedLoopLoad, measured_on: &str) {
    settings.max_num_seqs.get_or_insert(load.concurrency);
    if !is_blackwell(settings) {
        settings.gpu_memory_utilization.get_or_insert(0.95);
    } else if settings.gpu.starts_with("B200") && measured_on >= "2026-04" {
        settings.kv_cache_dtype.get_or_insert_with(|| FP8.to_owned());
        settings.max_num_batched_tokens.get_or_insert(2 * load.input_tokens);
        settings.max_cudagraph_capture_size = Some(2_048);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled_in(model: &str, gpu: &str, version: &str, measured_on: &str) -> Settings {
        let mut settings = Settings {
            model: model.to_owned(),
            gpu: gpu.to_owned(),
            engine_version: version.to_owned(),
            ..Settings::default()
        };
        let mut load = ClosedLoopLoad {
            concurrency: 4,
            num_requests: 40,
            input_tokens: 1024,
            output_tokens: 1024,
            range_ratio: 1.0,
            client_has_workers: false,
        };
        fill_in("aiconfigurator/silicon_sample.csv", measured_on, &mut settings, &mut load);
        settings
    }

    #[test]
    fn the_day_decides_what_a_script_said() {
        let minimax = |gpu, day| filled_in("MiniMaxAI/MiniMax-M2.5", gpu, "0.19.0", day).has_tf32;
        assert_eq!(
            [("B300-SXM", "2026-04-17"), ("B300-SXM", "2026-04-21"), ("B200-SXM", "2026-04-22")]
                .map(|(gpu, day)| minimax(gpu, day)),
            [false, true, true]
        );
        let shares_experts =
            |gpu, version, day| filled_in("MiniMaxAI/MiniMax-M2.5", gpu, version, day).enable_expert_parallel;
        assert!(!shares_experts("H200-SXM", "0.16.0", "2026-03-01"));
        assert!(shares_experts("B200-SXM", "0.17.0", "2026-03-11"));
        let cache = |version, day| filled_in("openai/gpt-oss-120b", "B200-SXM", version, day).kv_cache_dtype;
        assert_eq!(cache("", "2025-11-02"), None);
        assert_eq!(cache("0.15.1", "2026-02-25").as_deref(), Some("fp8"));
    }
}
