//! Settings that a published table leaves out and the benchmark's own scripts state.
//!
//! Tables of closed loops with the models and lengths below hold results of the public benchmark InferenceMAX
//! (later InferenceX). Its client draws every length between 80 % and the whole, and sends ten
//! requests for each user; its scripts start vLLM with 8,192 tokens to a step, and on Blackwell with
//! an 8-bit KV cache. (README.md and benchmarks/ of the repository SemiAnalysisAI/InferenceX:
//! `--random-range-ratio 0.8`, `--num-prompts $((CONC * 10))`, `--max-num-batched-tokens 8192`,
//! `--kv-cache-dtype fp8`, `--gpu-memory-utilization`.)
//!
//! The collection's own runs of vLLM 0.12 were set up by AIConfigurator, whose generator gives a step
//! as many tokens as the prompt has, 1,500 and the requests of a batch, of which it takes 512 at least
//! (`rule_plugin/vllm.rule` of the repository ai-dynamo/aiconfigurator). The table does not say so,
//! but no other limit fits: at 8 users with 1,024 tokens each the first token came after 126 ms, which
//! a step of all eight does not allow, and 128 users with 4,096 were served 3,900 tokens a step.

use super::bench_run::{ClosedLoopLoad, Settings};
use crate::cost::Format;

/// The models of it that vLLM serves, in lower case.
const MODELS: [&str; 4] = ["llama-3.1-70b", "gpt-oss-120b", "minimax-m2.5", "kimi-k2.5"];
/// Lengths of prompts and answers in tokens.
const LENGTHS: [(u32, u32); 3] = [(1024, 1024), (1024, 8192), (8192, 1024)];
const RANGE_RATIO: f64 = 0.8;
const MAX_NUM_BATCHED_TOKENS: u32 = 8192;

/// Whether a table took the ranks of expert parallelism for others than those of tensor parallelism, as
/// AIConfigurator's does of some runs: names say `tp2_ep2`, columns 2 x 2 with 4 for the experts, and TPOT is
/// that of the row with `tp` 2 and `ep` 2 at the same number of users, within 1 %.
pub(super) fn multiplies_ranks(source: &str, [tp, dp, ep]: [u32; 3]) -> bool {
    source == "aiconfigurator/silicon_sample.csv" && dp == tp && dp > 1 && ep == tp * dp
}

/// Source and version of the runs that AIConfigurator set up.
const AICONFIGURATOR: (&str, &str) = ("aiconfigurator/silicon_sample.csv", "0.12.0");
/// What its step takes beyond the tokens of a prompt.
const AICONFIGURATOR_TOKENS: u32 = 512 + 1500;

/// Fills in what the benchmark states; other loads stay as they are.
pub(super) fn fill_in(source: &str, settings: &mut Settings, load: &mut ClosedLoopLoad) {
    if (source, settings.engine_version.as_str()) == AICONFIGURATOR {
        let tokens = load.input_tokens.saturating_add(AICONFIGURATOR_TOKENS);
        settings.max_num_batched_tokens.get_or_insert(tokens);
        return;
    }
    let model = settings.model.to_lowercase();
    let is_known = MODELS.iter().any(|known| model.contains(known));
    if !is_known || !LENGTHS.contains(&(load.input_tokens, load.output_tokens)) {
        return;
    }
    load.range_ratio = RANGE_RATIO;
    settings.max_num_batched_tokens.get_or_insert(MAX_NUM_BATCHED_TOKENS);
    let is_minimax = model.contains("minimax");
    let is_kimi_in_4_bits = model.contains("kimi") && settings.weight_dtype.as_deref() == Some("int4_wo");
    if is_minimax || is_kimi_in_4_bits {
        settings.gpu_memory_utilization.get_or_insert(0.95);
    }
    // VLLM_MXFP4_USE_MARLIN on Hopper, VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8 on Blackwell.
    if model.contains("gpt-oss") {
        let is_blackwell = settings.gpu.starts_with('B');
        settings.moe_format = Some(if is_blackwell { Format::Mxfp4Mxfp8 } else { Format::Mxfp4Marlin });
    }
    // Kimi attends to a latent vector in 16 bits.
    if settings.gpu.starts_with('B') && !model.contains("kimi") {
        settings.kv_cache_dtype.get_or_insert_with(|| "fp8".to_owned());
    }
}
