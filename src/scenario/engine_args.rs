//! The `engine` section as it is typed: vLLM's `EngineArgs`, as far as they change an answer.

use serde::Deserialize;

use super::kv_cache_groups::KvCacheGroupArgs;
use crate::catalog::{Dtype, Gpu, Model};
use crate::engine::SchedulingPolicy;
use crate::engine::hash::PrefixCachingHashAlgo;

/// Every field is given by the defaults; `None` stands for what vLLM finds out by itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineArgs {
    pub tensor_parallel_size: u32,
    pub decode_context_parallel_size: u32,
    pub gpu_memory_utilization: f64,
    pub num_gpu_blocks_override: Option<u32>,
    pub block_size: u32,
    pub max_model_len: Option<u32>,
    pub max_num_seqs: Option<u32>,
    pub max_num_batched_tokens: Option<u32>,
    pub max_num_scheduled_tokens: Option<u32>,
    pub enable_chunked_prefill: bool,
    pub long_prefill_token_threshold: u32,
    pub long_prefill_token_threshold_adaptive: bool,
    pub scheduler_reserve_full_isl: bool,
    pub watermark: f64,
    pub scheduling_policy: SchedulingPolicy,
    pub async_scheduling: bool,
    pub enable_prefix_caching: bool,
    pub prefix_caching_hash_algo: PrefixCachingHashAlgo,
    pub prefix_match_unit: Option<u32>,
    pub kv_cache_dtype: KvCacheDtype,
    pub quantization: Option<Quantization>,
    pub kv_cache_groups: Option<Vec<KvCacheGroupArgs>>,
    pub kv_events_config: KvEventsConfig,
    pub kv_cache_metrics: bool,
}

/// vLLM's names of KV cache formats, of those whose size and speed are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KvCacheDtype {
    /// The model's own 16-bit format.
    Auto,
    Bfloat16,
    Float16,
    Fp8,
    #[serde(rename = "fp8_e4m3")]
    Fp8E4m3,
    #[serde(rename = "fp8_e5m2")]
    Fp8E5m2,
}

/// vLLM's names of weight formats, of those whose size and speed are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Quantization {
    Fp8,
    /// 4 bits a weight.
    Awq,
    /// 4 bits a weight.
    Gptq,
    Mxfp4,
    ModeloptFp4,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KvEventsConfig {
    pub enable_kv_cache_events: bool,
}

/// What a step may hold, after vLLM's own choice where nothing was typed.
pub(super) struct BatchLimits {
    pub max_num_seqs: u32,
    pub max_num_batched_tokens: u32,
}

impl EngineArgs {
    /// The model with the formats that were asked for.
    pub fn with_formats(&self, mut model: Model) -> Model {
        if let Some(quantization) = self.quantization {
            model = model.with_weight_dtype(match quantization {
                Quantization::Fp8 => Dtype::Fp8,
                Quantization::Awq | Quantization::Gptq => Dtype::Int4,
                Quantization::Mxfp4 => Dtype::Mxfp4,
                Quantization::ModeloptFp4 => Dtype::Nvfp4,
            });
        }
        match self.kv_cache_dtype {
            KvCacheDtype::Auto => model,
            KvCacheDtype::Bfloat16 | KvCacheDtype::Float16 => model.with_kv_cache_dtype(Dtype::Bf16),
            KvCacheDtype::Fp8 | KvCacheDtype::Fp8E4m3 | KvCacheDtype::Fp8E5m2 => {
                model.with_kv_cache_dtype(Dtype::Fp8)
            }
        }
    }

    /// As `vllm serve` chooses (`get_batch_defaults` and
    /// `_set_default_max_num_seqs_and_batched_tokens_args` in `engine/arg_utils.py`).
    pub fn batch_limits(&self, gpu: &Gpu, max_model_len: u32) -> BatchLimits {
        const GIB: u64 = 1 << 30;
        let is_a100 = gpu.name.to_ascii_lowercase().contains("a100");
        let (default_tokens, default_seqs) = match gpu.memory_bytes / GIB {
            160.. => (16_384, 1024),
            // Larger steps were slower on the A100.
            70.. if !is_a100 => (8192, 1024),
            _ => (2048, 256),
        };
        let seqs = self.max_num_seqs.unwrap_or(default_seqs);
        let max_num_batched_tokens = self.max_num_batched_tokens.unwrap_or_else(|| {
            let tokens =
                if self.enable_chunked_prefill { default_tokens } else { default_tokens.max(max_model_len) };
            tokens.min(seqs.saturating_mul(max_model_len))
        });
        BatchLimits {
            max_num_seqs: self.max_num_seqs.unwrap_or_else(|| seqs.min(max_num_batched_tokens)),
            max_num_batched_tokens,
        }
    }
}
