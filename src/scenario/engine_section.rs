//! The engine's settings, under vLLM's names and with the defaults of `vllm serve`.

use serde::{Deserialize, Serialize};

use super::kv_cache_groups::groups_of;
use crate::catalog::{Dtype, Gpu, MemoryConfig, Model};
use crate::cost::{All2AllBackend, CudagraphMode, Drafts, Parallelism, RouterKernels};
use crate::engine::config::{KvLoadFailurePolicy, SpecMethod, SpeculativeConfig};
use crate::engine::connector::{EvictionOrder, SharedBy, TierKind};
use crate::engine::hash::PrefixCachingHashAlgo;
use crate::engine::kv_cache::KvCacheSpec;
use crate::engine::{EngineConfig, SchedulingPolicy};

/// `vllm serve`'s options, as far as they change what is simulated.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSection {
    pub tensor_parallel_size: u32,
    pub pipeline_parallel_size: u32,
    /// Engine cores of a replica, each with its own scheduler and KV cache, behind vLLM's own load balancer.
    pub data_parallel_size: u32,
    /// API servers of a replica, each with its own view of the engine cores; as many as those if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_server_count: Option<u32>,
    /// Ranks hold whole experts instead of a slice of every one.
    pub enable_expert_parallel: bool,
    /// How tokens travel between data-parallel ranks and experts.
    pub all2all_backend: All2AllBackend,
    /// Steps of a mixture-of-experts model after which its data-parallel ranks agree whether to go on.
    pub dp_sync_interval: u32,
    pub gpu_memory_utilization: f64,
    /// Tokens in a block.
    pub block_size: u32,
    /// The number of blocks, instead of what fits in memory.
    pub num_gpu_blocks_override: Option<u32>,
    /// The model's own limit if left out.
    pub max_model_len: Option<u32>,
    /// vLLM's default for the GPU if left out: 1,024 from 70 GiB on, except A100; else 256.
    pub max_num_seqs: Option<u32>,
    /// vLLM's default for the GPU if left out: 16,384 from 160 GiB on; 8,192 from 70 GiB on, except
    /// A100; else 2,048.
    pub max_num_batched_tokens: Option<u32>,
    pub max_num_scheduled_tokens: Option<u32>,
    pub enable_chunked_prefill: bool,
    pub long_prefill_token_threshold: u32,
    pub long_prefill_token_threshold_adaptive: bool,
    pub scheduler_reserve_full_isl: bool,
    pub watermark: f64,
    pub enable_prefix_caching: bool,
    pub prefix_caching_hash_algo: PrefixCachingHashAlgo,
    /// `PYTHONHASHSEED` of the server.
    pub python_hash_seed: Option<String>,
    /// Granularity of block hashes in tokens.
    pub prefix_match_unit: Option<u32>,
    pub scheduling_policy: SchedulingPolicy,
    pub async_scheduling: bool,
    pub enforce_eager: bool,
    /// What is captured in CUDA graphs.
    pub cudagraph_mode: CudagraphMode,
    /// Steps of more tokens have no graph; left out, vLLM's default: twice `max_num_seqs`, 512 at most and
    /// 1,024 on B200 and B300.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cudagraph_capture_size: Option<u32>,
    /// Small all-reduces over NVLink and the norms behind them are one kernel.
    pub fuse_allreduce_rms: bool,
    /// No option of the file, but of the published servers that `validate` simulates.
    #[serde(skip)]
    pub router_kernels: RouterKernels,
    /// Number format of the weights, instead of the checkpoint's.
    pub quantization: Option<Dtype>,
    /// Number format of the KV cache, instead of the model's.
    pub kv_cache_dtype: Option<Dtype>,
    pub decode_context_parallel_size: u32,
    pub max_loras: Option<u32>,
    /// Take prompts of embeddings; without it vLLM refuses them.
    pub enable_prompt_embeds: bool,
    /// KV cache groups, instead of those of the model's layers.
    pub kv_cache_groups: Option<Vec<GroupSection>>,
    pub speculative_config: Option<SpeculativeSection>,
    pub kv_transfer_config: Option<TransferSection>,
    pub kv_events_config: EventsSection,
}

impl Default for EngineSection {
    fn default() -> Self {
        let engine = EngineConfig::default();
        Self {
            tensor_parallel_size: 1,
            pipeline_parallel_size: engine.pipeline_parallel_size,
            data_parallel_size: 1,
            api_server_count: None,
            enable_expert_parallel: false,
            all2all_backend: All2AllBackend::default(),
            dp_sync_interval: 16,
            gpu_memory_utilization: 0.92,
            block_size: engine.block_size,
            num_gpu_blocks_override: None,
            max_model_len: None,
            max_num_seqs: None,
            max_num_batched_tokens: None,
            max_num_scheduled_tokens: engine.max_num_scheduled_tokens,
            enable_chunked_prefill: engine.enable_chunked_prefill,
            long_prefill_token_threshold: engine.long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive: engine.long_prefill_token_threshold_adaptive,
            scheduler_reserve_full_isl: engine.scheduler_reserve_full_isl,
            watermark: engine.watermark,
            enable_prefix_caching: engine.enable_prefix_caching,
            prefix_caching_hash_algo: engine.prefix_caching_hash_algo,
            python_hash_seed: None,
            prefix_match_unit: engine.prefix_match_unit,
            scheduling_policy: engine.policy,
            async_scheduling: engine.async_scheduling,
            enforce_eager: false,
            cudagraph_mode: CudagraphMode::default(),
            max_cudagraph_capture_size: None,
            fuse_allreduce_rms: true,
            router_kernels: RouterKernels::default(),
            quantization: None,
            kv_cache_dtype: None,
            decode_context_parallel_size: engine.decode_context_parallel_size,
            max_loras: engine.max_loras,
            enable_prompt_embeds: false,
            kv_cache_groups: None,
            speculative_config: None,
            kv_transfer_config: None,
            kv_events_config: EventsSection::default(),
        }
    }
}

/// A KV cache group. Sizes in tokens; the engine's block size if none is given.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GroupSection {
    Full { block_size: Option<u32> },
    SlidingWindow { block_size: Option<u32>, sliding_window: u32 },
    ChunkedLocal { block_size: Option<u32>, chunk_size: u32 },
    Mamba { block_size: Option<u32> },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeSection {
    pub method: SpecMethod,
    pub num_speculative_tokens: u32,
    #[serde(default)]
    pub disable_lookahead_block_hashes: bool,
    /// The chance of each draft to be accepted when those before it were: a property of the traffic
    /// and the drafter, which vLLM does not know before it runs.
    pub acceptance_rate: f64,
}

/// KV blocks outside of the GPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferSection {
    #[serde(default)]
    pub kv_load_failure_policy: KvLoadFailurePolicy,
    /// In the order in which blocks go down them.
    pub tiers: Vec<TierSection>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierSection {
    pub kind: TierKind,
    /// Capacity, over all ranks of the replica.
    pub size_gib: f64,
    #[serde(default)]
    pub eviction: EvictionOrder,
    /// Of one rank's link, in 10^9 bytes per second.
    pub read_gb_per_s: f64,
    pub write_gb_per_s: f64,
    #[serde(default)]
    pub latency_us: f64,
    /// Replicas have it in common; left out, each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedBy>,
    /// Of a shared tier: what all replicas and ranks together can have of it, in 10^9 bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_read_gb_per_s: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_write_gb_per_s: Option<f64>,
    /// What comes into the first tier is copied here at once, not when the tier before evicts it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write_through: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsSection {
    pub enable_kv_cache_events: bool,
}

impl EngineSection {
    /// Most running requests and tokens of a step, as `vllm serve` chooses them where they are left
    /// out (`get_batch_defaults` and `_set_default_max_num_seqs_and_batched_tokens_args` in
    /// `engine/arg_utils.py`).
    fn batch_limits(&self, gpu: &Gpu, max_model_len: u32) -> (u32, u32) {
        const GIB: u64 = 1 << 30;
        let is_a100 = gpu.name.to_lowercase().contains("a100");
        let (default_tokens, default_seqs) = match gpu.memory_bytes {
            bytes if bytes >= 160 * GIB => (16_384, 1_024),
            // Larger steps were slower on the A100.
            bytes if bytes >= 70 * GIB && !is_a100 => (8_192, 1_024),
            _ => (2_048, 256),
        };
        let seqs = self.max_num_seqs.unwrap_or(default_seqs);
        let tokens = self.max_num_batched_tokens.unwrap_or_else(|| {
            // Without chunks a step must take the longest prompt.
            let least = if self.enable_chunked_prefill { 0 } else { max_model_len };
            least.max(default_tokens).min(seqs.saturating_mul(max_model_len)).max(1)
        });
        // What follows from a 0 is not 0, so that the one which was typed is blamed.
        (self.max_num_seqs.unwrap_or(seqs.min(tokens).max(1)), tokens)
    }

    /// How the ranks of a replica share the model.
    pub(crate) fn parallelism(&self) -> Parallelism {
        Parallelism {
            pipeline_parallel_size: self.pipeline_parallel_size.max(1),
            data_parallel_size: self.data_parallel_size.max(1),
            decode_context_parallel_size: self.decode_context_parallel_size.max(1),
            enable_expert_parallel: self.enable_expert_parallel,
            all2all_backend: self.all2all_backend,
            fuse_allreduce_rms: self.fuse_allreduce_rms,
            router: self.router_kernels,
            ..Parallelism::tensor(self.tensor_parallel_size.max(1))
        }
    }

    /// GPUs of a replica, over all its ranks.
    pub fn num_gpus(&self) -> u32 {
        self.parallelism().num_gpus()
    }

    /// What makes drafts, if anything does.
    pub(super) fn drafts(&self) -> Option<Drafts> {
        self.speculative_config.map(|spec| match spec.method {
            SpecMethod::Eagle => Drafts::Head { num_tokens: spec.num_speculative_tokens },
            SpecMethod::Ngram => Drafts::Ngram,
        })
    }

    /// Drafts come from a layer with KV cache of its own.
    pub(super) fn has_draft_head(&self) -> bool {
        matches!(self.drafts(), Some(Drafts::Head { .. }))
    }

    /// What decides how much memory is left for KV cache; `engine` is what was made of this.
    pub(super) fn memory_config(&self, engine: &EngineConfig) -> MemoryConfig {
        MemoryConfig {
            gpu_memory_utilization: self.gpu_memory_utilization,
            tensor_parallel_size: self.tensor_parallel_size,
            data_parallel_size: self.data_parallel_size,
            pipeline_parallel_size: self.pipeline_parallel_size,
            block_size: engine.block_size,
            max_num_batched_tokens: engine.max_num_batched_tokens,
            max_num_seqs: engine.max_num_seqs,
            estimate_cudagraphs: !self.enforce_eager,
            has_draft_head: self.has_draft_head(),
        }
    }

    /// The model as it is served.
    pub(super) fn served(&self, mut model: Model) -> Model {
        if let Some(dtype) = self.quantization {
            model = model.with_weight_dtype(dtype);
        }
        if let Some(dtype) = self.kv_cache_dtype {
            model = model.with_kv_cache_dtype(dtype);
        }
        model
    }

    /// The engine's configuration, without the number of blocks.
    pub(super) fn to_config(&self, model: &Model, gpu: &Gpu) -> EngineConfig {
        let max_model_len = self.max_model_len.unwrap_or(model.max_position_embeddings);
        let (max_num_seqs, max_num_batched_tokens) = self.batch_limits(gpu, max_model_len);
        EngineConfig {
            async_scheduling: self.async_scheduling,
            block_size: self.block_size,
            prefix_match_unit: self.prefix_match_unit,
            num_gpu_blocks: self.num_gpu_blocks_override.unwrap_or(0),
            max_num_seqs,
            max_num_batched_tokens,
            max_num_scheduled_tokens: self.max_num_scheduled_tokens,
            max_model_len,
            enable_chunked_prefill: self.enable_chunked_prefill,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive: self.long_prefill_token_threshold_adaptive,
            scheduler_reserve_full_isl: self.scheduler_reserve_full_isl,
            watermark: self.watermark,
            enable_prefix_caching: self.enable_prefix_caching,
            prefix_caching_hash_algo: self.prefix_caching_hash_algo,
            policy: self.scheduling_policy,
            enable_kv_cache_events: self.kv_events_config.enable_kv_cache_events,
            kv_cache_groups: self.groups(model),
            decode_context_parallel_size: self.decode_context_parallel_size,
            pipeline_parallel_size: self.pipeline_parallel_size,
            speculative: self.speculative_config.map(|spec| SpeculativeConfig {
                method: spec.method,
                num_speculative_tokens: spec.num_speculative_tokens,
                disable_lookahead_block_hashes: spec.disable_lookahead_block_hashes,
            }),
            max_loras: self.max_loras,
            kv_connector: self.kv_transfer_config.as_ref().map(|transfer| transfer.kv_load_failure_policy),
            kv_cache_metrics: true,
        }
    }

    fn groups(&self, model: &Model) -> Vec<KvCacheSpec> {
        let size = |block_size: Option<u32>| block_size.unwrap_or(self.block_size);
        let Some(groups) = &self.kv_cache_groups else {
            return match self.has_draft_head() {
                true => groups_of(&model.with_draft_layer(), self.block_size),
                false => groups_of(model, self.block_size),
            };
        };
        groups
            .iter()
            .map(|group| match *group {
                GroupSection::Full { block_size } => KvCacheSpec::full(size(block_size)),
                GroupSection::SlidingWindow { block_size, sliding_window } => {
                    KvCacheSpec::SlidingWindow { block_size: size(block_size), sliding_window }
                }
                GroupSection::ChunkedLocal { block_size, chunk_size } => KvCacheSpec::ChunkedLocalAttention {
                    block_size: size(block_size),
                    attention_chunk_size: chunk_size,
                },
                GroupSection::Mamba { block_size } => KvCacheSpec::Mamba { block_size: size(block_size) },
            })
            .collect()
    }
}
