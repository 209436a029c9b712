//! What an engine is told at start-up: vLLM's `SchedulerConfig`, `CacheConfig`, `SpeculativeConfig`
//! and `KVCacheConfig`, as far as they change a decision. Field names are vLLM's.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::hash::PrefixCachingHashAlgo;
use super::kv_cache::KvCacheSpec;

/// `SchedulerConfig.policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// By priority (smaller first), then arrival.
    Priority,
}

/// How drafts are made, as far as the scheduler cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpecMethod {
    /// A draft head that reads the target's hidden states: needs look-ahead slots, and hits in the
    /// prefix cache that leave the state before the next token to be recomputed.
    Eagle,
    /// Drafts copied from the prompt: no KV cache of its own.
    Ngram,
}

/// `SpeculativeConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeculativeConfig {
    pub method: SpecMethod,
    /// Drafts of a step, 1 or more.
    pub num_speculative_tokens: u32,
    /// EAGLE only: hash blocks without the token that follows, and drop the last matched block.
    #[serde(default)]
    pub disable_lookahead_block_hashes: bool,
}

/// `KVTransferConfig.kv_load_failure_policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvLoadFailurePolicy {
    /// Compute the lost tokens again.
    Recompute,
    /// Finish the request with an error.
    #[default]
    Fail,
}

/// All of the engine's settings. [`Default`] is `vllm serve`'s, except for what depends on the
/// model and the GPU (`num_gpu_blocks`, `max_model_len`), which must be given.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConfig {
    /// `AsyncScheduler` and a batch queue of two instead of `Scheduler` and one step at a time.
    pub async_scheduling: bool,
    /// Tokens in a block.
    pub block_size: u32,
    /// `prefix_match_unit`: granularity of block hashes in tokens, `None` for vLLM's own choice.
    pub prefix_match_unit: Option<u32>,
    /// Blocks in the pool, the null block included.
    pub num_gpu_blocks: u32,
    /// Most running requests.
    pub max_num_seqs: u32,
    /// Token budget of a step.
    pub max_num_batched_tokens: u32,
    /// A smaller token budget, if any.
    pub max_num_scheduled_tokens: Option<u32>,
    /// Prompt and output together, in tokens.
    pub max_model_len: u32,
    pub enable_chunked_prefill: bool,
    /// Largest prefill chunk of one request while others wait or run; 0 is off.
    pub long_prefill_token_threshold: u32,
    pub long_prefill_token_threshold_adaptive: bool,
    /// Admit a request only if blocks for its whole sequence are free.
    pub scheduler_reserve_full_isl: bool,
    /// Share of the pool (0 to 1) that an admission must leave free.
    pub watermark: f64,
    pub enable_prefix_caching: bool,
    pub prefix_caching_hash_algo: PrefixCachingHashAlgo,
    pub policy: SchedulingPolicy,
    pub enable_kv_cache_events: bool,
    /// One KV cache group per kind of layer; group ids are positions.
    pub kv_cache_groups: Vec<KvCacheSpec>,
    pub decode_context_parallel_size: u32,
    /// Stages that share out the layers.
    pub pipeline_parallel_size: u32,
    pub speculative: Option<SpeculativeConfig>,
    /// LoRA adapters in one step, `None` for no limit.
    pub max_loras: Option<u32>,
    /// Whether a KV connector takes part; it is handed to the scheduler beside this.
    pub kv_connector: Option<KvLoadFailurePolicy>,
    /// Record the residency of blocks (vLLM's `kv_cache_metrics`, of every block instead of a sample).
    pub kv_cache_metrics: bool,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            async_scheduling: true,
            block_size: 16,
            prefix_match_unit: None,
            num_gpu_blocks: 0,
            max_num_seqs: 256,
            max_num_batched_tokens: 8192,
            max_num_scheduled_tokens: None,
            max_model_len: 0,
            enable_chunked_prefill: true,
            long_prefill_token_threshold: 0,
            long_prefill_token_threshold_adaptive: false,
            scheduler_reserve_full_isl: true,
            watermark: 0.0,
            enable_prefix_caching: true,
            prefix_caching_hash_algo: PrefixCachingHashAlgo::Sha256,
            policy: SchedulingPolicy::Fcfs,
            enable_kv_cache_events: false,
            kv_cache_groups: vec![KvCacheSpec::full(16)],
            decode_context_parallel_size: 1,
            pipeline_parallel_size: 1,
            speculative: None,
            max_loras: None,
            kv_connector: None,
            kv_cache_metrics: false,
        }
    }
}

/// A setting that no engine can start with.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field}: {problem}; {hint}")]
pub struct EngineConfigError {
    /// The field of [`EngineConfig`] to change.
    pub field: &'static str,
    pub problem: String,
    pub hint: String,
}

/// Above what a GPU, a model or a file could ask for, and so small that no count of tokens or blocks
/// overflows and no pool outgrows a machine's memory.
const MAX_BLOCKS: u32 = 1 << 24;
const MAX_TOKENS: u32 = 1 << 30;
const MAX_BLOCK_TOKENS: u32 = 1 << 20;
const MAX_RANKS: u32 = 1 << 10;
const MAX_DRAFT_TOKENS: u32 = 1 << 16;
const MAX_GROUPS: usize = 64;

impl EngineConfig {
    /// vLLM: `VllmConfig.num_speculative_tokens`.
    pub fn num_speculative_tokens(&self) -> u32 {
        self.speculative.map_or(0, |spec| spec.num_speculative_tokens)
    }

    fn eagle(&self) -> Option<SpeculativeConfig> {
        self.speculative.filter(|spec| spec.method == SpecMethod::Eagle)
    }

    /// KV slots to reserve past the scheduled tokens, which the drafter writes
    /// (`VllmConfig.num_lookahead_tokens`).
    pub fn num_lookahead_tokens(&self) -> u32 {
        self.eagle().map_or(0, |spec| spec.num_speculative_tokens)
    }

    /// Tokens after a block that its hash covers (`VllmConfig.num_hash_lookahead_tokens`).
    pub fn num_hash_lookahead_tokens(&self) -> u32 {
        let plain = self.eagle().is_none_or(|spec| spec.disable_lookahead_block_hashes)
            || !self.enable_prefix_caching
            || self.kv_connector.is_some();
        u32::from(!plain)
    }

    /// Whether a lookup drops the last matched block: EAGLE without look-ahead hashes.
    pub fn use_eagle_block_drop(&self) -> bool {
        self.eagle().is_some() && self.num_hash_lookahead_tokens() == 0
    }

    /// Steps that may be in flight at once (`VllmConfig.max_concurrent_batches`): one for each stage,
    /// and one more that the host plans meanwhile.
    pub fn max_concurrent_batches(&self) -> u32 {
        self.pipeline_parallel_size + u32::from(self.async_scheduling)
    }

    /// Tokens scheduled but not yet processed, at most (`VllmConfig.max_in_flight_tokens`).
    pub fn max_in_flight_tokens(&self) -> u32 {
        self.max_concurrent_batches().saturating_mul(self.max_num_batched_tokens)
    }

    /// Tokens that a block of the group spans over all decode-context-parallel ranks.
    pub fn group_block_size(&self, spec: &KvCacheSpec) -> u32 {
        let ranks = if spec.is_mamba() { 1 } else { self.decode_context_parallel_size };
        spec.block_size() * ranks
    }

    /// `(scheduler_block_size, hash_block_size)`, as `resolve_kv_cache_block_sizes` in
    /// `v1/core/kv_cache_utils.py` finds them.
    pub fn resolve_kv_cache_block_sizes(&self) -> (u32, u32) {
        let sizes: Vec<u32> = self.kv_cache_groups.iter().map(|spec| self.group_block_size(spec)).collect();
        let scheduler_block_size = sizes.iter().copied().fold(1, lcm);
        let hashes_used = self.enable_prefix_caching || self.kv_connector.is_some();
        if sizes.len() <= 1 || !hashes_used {
            return (scheduler_block_size, scheduler_block_size);
        }
        let hash_block_size = self.prefix_match_unit.unwrap_or_else(|| sizes.iter().copied().fold(0, gcd));
        (scheduler_block_size, hash_block_size)
    }

    /// Whether events can tell of hit blocks (`kv_cache_report_mode` "full"): vLLM looks for a hash
    /// at each rank's part of a block, and ends with an error where there is none.
    pub fn can_report_cached_blocks(&self) -> bool {
        let (_, hash_block_size) = self.resolve_kv_cache_block_sizes();
        !self.enable_prefix_caching
            || !self.enable_kv_cache_events
            || self.kv_cache_groups.iter().all(|spec| spec.block_size().is_multiple_of(hash_block_size))
    }

    /// Checks what vLLM would refuse at start-up, or what could never run a request.
    ///
    /// # Errors
    /// The first setting that cannot work, with what to write instead.
    pub fn validate(&self) -> Result<(), EngineConfigError> {
        let error = |field, problem: String, hint: &str| {
            Err(EngineConfigError { field, problem, hint: hint.to_owned() })
        };
        if self.kv_cache_groups.is_empty() {
            return error("kv_cache_groups", "there is no group".into(), "give one, such as {kind: full}");
        }
        for (field, value) in [
            ("block_size", self.block_size),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("max_model_len", self.max_model_len),
            ("decode_context_parallel_size", self.decode_context_parallel_size),
            ("pipeline_parallel_size", self.pipeline_parallel_size),
        ] {
            if value == 0 {
                return error(field, "it is 0".into(), "give a number of 1 or more");
            }
        }
        let num_groups = self.kv_cache_groups.len();
        if num_groups > MAX_GROUPS {
            return error("kv_cache_groups", format!("there are {num_groups}"), "give at most 64");
        }
        let block_tokens = self.kv_cache_groups.iter().map(KvCacheSpec::block_size).max().unwrap_or(0);
        for (field, value, most) in [
            ("num_gpu_blocks", self.num_gpu_blocks, MAX_BLOCKS),
            ("max_model_len", self.max_model_len, MAX_TOKENS),
            ("max_num_batched_tokens", self.max_num_batched_tokens, MAX_TOKENS),
            ("block_size", self.block_size.max(block_tokens), MAX_BLOCK_TOKENS),
            ("decode_context_parallel_size", self.decode_context_parallel_size, MAX_RANKS),
            ("pipeline_parallel_size", self.pipeline_parallel_size, MAX_RANKS),
            ("num_speculative_tokens", self.num_speculative_tokens(), MAX_DRAFT_TOKENS),
        ] {
            if value > most {
                return error(field, format!("it is {value}"), &format!("give at most {most}"));
            }
        }
        for spec in &self.kv_cache_groups {
            if let Some(problem) = spec.problem() {
                return error("kv_cache_groups", problem.into(), "give a number of 1 or more");
            }
            if self.decode_context_parallel_size > 1 && !spec.is_full() && !spec.is_mamba() {
                return error(
                    "decode_context_parallel_size",
                    format!("it is {} with a windowed group", self.decode_context_parallel_size),
                    "context parallelism works with full attention and Mamba groups only; set it to 1",
                );
            }
        }
        if self.num_gpu_blocks < 2 {
            return error(
                "num_gpu_blocks",
                format!("{} blocks leave none beside the null block", self.num_gpu_blocks),
                "give at least 2",
            );
        }
        if !(0.0..=1.0).contains(&self.watermark) {
            return error("watermark", format!("it is {}", self.watermark), "give a share from 0 to 1");
        }
        if self.max_num_batched_tokens < self.max_num_seqs {
            return error(
                "max_num_batched_tokens",
                format!("{} is less than max_num_seqs ({})", self.max_num_batched_tokens, self.max_num_seqs),
                "raise it, or lower max_num_seqs: every running request needs a token of the step",
            );
        }
        if !self.enable_chunked_prefill && self.max_num_batched_tokens < self.max_model_len {
            return error(
                "max_num_batched_tokens",
                format!(
                    "{} is less than max_model_len ({}) while enable_chunked_prefill is false",
                    self.max_num_batched_tokens, self.max_model_len
                ),
                "raise it, lower max_model_len, or set enable_chunked_prefill to true",
            );
        }
        if self.max_num_scheduled_tokens == Some(0) {
            return error("max_num_scheduled_tokens", "it is 0".into(), "give 1 or more, or leave it out");
        }
        if let Some(spec) = self.speculative {
            if spec.num_speculative_tokens == 0 {
                return error("num_speculative_tokens", "it is 0".into(), "give 1 or more, or leave it out");
            }
            let windowed = |spec: &KvCacheSpec| matches!(spec, KvCacheSpec::ChunkedLocalAttention { .. });
            if self.use_eagle_block_drop() && self.kv_cache_groups.iter().any(windowed) {
                return error(
                    "speculative",
                    "EAGLE that drops a block does not work with chunked local attention".into(),
                    "use ngram, or leave the chunked_local group out",
                );
            }
        }
        self.validate_block_sizes()
    }

    fn validate_block_sizes(&self) -> Result<(), EngineConfigError> {
        let bad = |field, problem, hint: String| Err(EngineConfigError { field, problem, hint });
        let mut common = 1;
        for spec in &self.kv_cache_groups {
            common = lcm(common, self.group_block_size(spec));
            if common > MAX_TOKENS {
                return bad(
                    "kv_cache_groups",
                    "the least common multiple of the block sizes is too large".into(),
                    "give block sizes that divide each other".into(),
                );
            }
        }
        let (scheduler_block_size, hash_block_size) = self.resolve_kv_cache_block_sizes();
        if hash_block_size == 0 {
            return bad("prefix_match_unit", "it is 0".into(), "give a divisor of every block size".into());
        }
        for spec in &self.kv_cache_groups {
            let block_size = self.group_block_size(spec);
            let is_hashed = self.enable_prefix_caching || self.kv_connector.is_some();
            if is_hashed && !block_size.is_multiple_of(hash_block_size) {
                return bad(
                    "prefix_match_unit",
                    format!("{hash_block_size} does not divide the block size {block_size}"),
                    "give a divisor of every group's block size, or leave it out".into(),
                );
            }
            let chunked = matches!(spec, KvCacheSpec::ChunkedLocalAttention { .. });
            if chunked && self.enable_prefix_caching && block_size != scheduler_block_size {
                return bad(
                    "kv_cache_groups",
                    "chunked local attention needs the same block size in every group".into(),
                    format!("give it block_size {scheduler_block_size}"),
                );
            }
        }
        Ok(())
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn lcm(a: u32, b: u32) -> u32 {
    if a == 0 || b == 0 { 0 } else { (a / gcd(a, b)).saturating_mul(b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_follow_the_groups() {
        let mut config = EngineConfig { num_gpu_blocks: 10, max_model_len: 100, ..Default::default() };
        assert_eq!(config.resolve_kv_cache_block_sizes(), (16, 16));
        config.decode_context_parallel_size = 2;
        assert_eq!(config.resolve_kv_cache_block_sizes(), (32, 32));
        config.decode_context_parallel_size = 1;
        config.kv_cache_groups =
            vec![KvCacheSpec::full(4), KvCacheSpec::SlidingWindow { block_size: 6, sliding_window: 9 }];
        assert_eq!(config.resolve_kv_cache_block_sizes(), (12, 2));
        config.enable_prefix_caching = false;
        assert_eq!(config.resolve_kv_cache_block_sizes(), (12, 12));
    }

    #[test]
    fn a_setting_that_cannot_work_is_named() {
        let good = EngineConfig { num_gpu_blocks: 10, max_model_len: 100, ..Default::default() };
        assert_eq!(good.validate(), Ok(()));
        let field = |config: EngineConfig| config.validate().unwrap_err().field;
        assert_eq!(field(EngineConfig { num_gpu_blocks: 1, ..good.clone() }), "num_gpu_blocks");
        assert_eq!(field(EngineConfig { max_num_seqs: 0, ..good.clone() }), "max_num_seqs");
        assert_eq!(field(EngineConfig { watermark: 1.5, ..good.clone() }), "watermark");
        assert_eq!(field(EngineConfig { num_gpu_blocks: u32::MAX, ..good.clone() }), "num_gpu_blocks");
        let odd = vec![KvCacheSpec::full(1 << 20), KvCacheSpec::full((1 << 20) - 1)];
        assert_eq!(field(EngineConfig { kv_cache_groups: odd, ..good.clone() }), "kv_cache_groups");
        let hybrid = vec![KvCacheSpec::full(16), KvCacheSpec::Mamba { block_size: 32 }];
        assert_eq!(
            field(EngineConfig { kv_cache_groups: hybrid, prefix_match_unit: Some(5), ..good }),
            "prefix_match_unit"
        );
    }
}
