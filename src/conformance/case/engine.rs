//! The engine of a case.

use serde::Deserialize;

use crate::engine::config::{KvLoadFailurePolicy, SpeculativeConfig};
use crate::engine::hash::PrefixCachingHashAlgo;
use crate::engine::kv_cache::KvCacheSpec;
use crate::engine::{EngineConfig, SchedulingPolicy, SpecMethod};

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Sync,
    Async,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum GroupCase {
    Full {
        block_size: Option<u32>,
    },
    SlidingWindow {
        block_size: Option<u32>,
        sliding_window: u32,
    },
    ChunkedLocal {
        block_size: Option<u32>,
        chunk_size: u32,
    },
    Mamba {
        block_size: Option<u32>,
        /// Always "align": the only mode that caches prefixes.
        #[serde(rename = "cache_mode")]
        _cache_mode: MambaCacheMode,
    },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MambaCacheMode {
    Align,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum ConnectorRole {
    #[serde(rename = "kv_both")]
    Both,
}

/// Whose decisions the connector makes.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ConnectorKind {
    /// Those of the requests' `kv` fields.
    #[default]
    Case,
    /// Those of vLLM's `NixlPullConnectorScheduler`, for the requests' `pull` fields.
    Pull,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KvConnectorCase {
    #[serde(rename = "role")]
    _role: ConnectorRole,
    #[serde(default)]
    kind: ConnectorKind,
    load_failure_policy: KvLoadFailurePolicy,
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EngineCase {
    mode: Mode,
    block_size: u32,
    hash_block_size: Option<u32>,
    num_gpu_blocks: u32,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    max_num_scheduled_tokens: Option<u32>,
    max_model_len: u32,
    enable_chunked_prefill: bool,
    long_prefill_token_threshold: u32,
    #[serde(default)]
    long_prefill_token_threshold_adaptive: bool,
    #[serde(default = "yes")]
    scheduler_reserve_full_isl: bool,
    #[serde(default)]
    watermark: f64,
    enable_prefix_caching: bool,
    prefix_caching_hash_algo: PrefixCachingHashAlgo,
    pub python_hash_seed: Option<String>,
    policy: SchedulingPolicy,
    enable_kv_cache_events: bool,
    pub use_int_block_hashes: bool,
    kv_cache_groups: Vec<GroupCase>,
    #[serde(default = "one")]
    dcp_world_size: u32,
    num_speculative_tokens: Option<u32>,
    spec_method: Option<SpecMethod>,
    #[serde(default = "yes")]
    lookahead_block_hashes: bool,
    kv_connector: Option<KvConnectorCase>,
    max_loras: Option<u32>,
}

impl EngineCase {
    pub fn is_pull(&self) -> bool {
        self.kv_connector.as_ref().is_some_and(|connector| connector.kind == ConnectorKind::Pull)
    }

    pub fn to_config(&self) -> EngineConfig {
        let spec = |group: &GroupCase| {
            let size = |block_size: &Option<u32>| block_size.unwrap_or(self.block_size);
            match group {
                GroupCase::Full { block_size } => KvCacheSpec::full(size(block_size)),
                GroupCase::SlidingWindow { block_size, sliding_window } => KvCacheSpec::SlidingWindow {
                    block_size: size(block_size),
                    sliding_window: *sliding_window,
                },
                GroupCase::ChunkedLocal { block_size, chunk_size } => KvCacheSpec::ChunkedLocalAttention {
                    block_size: size(block_size),
                    attention_chunk_size: *chunk_size,
                },
                GroupCase::Mamba { block_size, .. } => KvCacheSpec::Mamba { block_size: size(block_size) },
            }
        };
        EngineConfig {
            async_scheduling: self.mode == Mode::Async,
            block_size: self.block_size,
            prefix_match_unit: self.hash_block_size,
            num_gpu_blocks: self.num_gpu_blocks,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            max_num_scheduled_tokens: self.max_num_scheduled_tokens,
            max_model_len: self.max_model_len,
            enable_chunked_prefill: self.enable_chunked_prefill,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive: self.long_prefill_token_threshold_adaptive,
            scheduler_reserve_full_isl: self.scheduler_reserve_full_isl,
            watermark: self.watermark,
            enable_prefix_caching: self.enable_prefix_caching,
            prefix_caching_hash_algo: self.prefix_caching_hash_algo,
            policy: self.policy,
            enable_kv_cache_events: self.enable_kv_cache_events,
            kv_cache_groups: self.kv_cache_groups.iter().map(spec).collect(),
            pipeline_parallel_size: 1,
            decode_context_parallel_size: self.dcp_world_size,
            speculative: self.num_speculative_tokens.map(|num_speculative_tokens| SpeculativeConfig {
                method: self.spec_method.unwrap_or(SpecMethod::Eagle),
                num_speculative_tokens,
                disable_lookahead_block_hashes: !self.lookahead_block_hashes,
            }),
            max_loras: self.max_loras,
            kv_connector: self.kv_connector.as_ref().map(|connector| connector.load_failure_policy),
            kv_cache_metrics: false,
        }
    }
}
