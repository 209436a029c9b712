//! What is counted for each replica, and how they all stand together.

use std::fmt;

use serde::Serialize;

use super::inter_token::InterTokenLatencies;
use super::lifecycle::ReplicaTimes;
use super::summary::HitRate;
use crate::engine::prefix_cache_stats::{CachingMetrics, PrefixCacheStats};
use crate::simulation::{RequestRecord, Role, StepRecord};

/// One of several replicas, or of the data-parallel ranks of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// Counted from 0.
    pub replica: u32,
    /// If some replica has several ranks.
    pub data_parallel_rank: Option<u32>,
    /// The kind it is of, if the scenario names kinds.
    pub pool: Option<String>,
    /// If prompts and answers are computed on different replicas.
    pub role: Option<Role>,
    pub gpu: String,
    pub tensor_parallel_size: u32,
    /// Of this rank.
    pub num_gpus: u32,
    pub num_gpu_blocks: u32,
    pub block_size_tokens: u32,
}

/// Such as `2`, or `2.3` of its fourth rank.
impl fmt::Display for ReplicaInfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data_parallel_rank {
            Some(rank) => write!(out, "{}.{rank}", self.replica),
            None => write!(out, "{}", self.replica),
        }
    }
}

/// A row of `replicas.csv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplicaSummary {
    pub replica: u32,
    /// If some replica has several ranks; then this is one of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_parallel_rank: Option<u32>,
    pub pool: Option<String>,
    /// If prompts and answers are computed on different replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    pub gpu: String,
    pub tensor_parallel_size: u32,
    pub num_gpus: u32,
    /// With a whole answer; of a replica that prefills, those whose prompts it has computed.
    pub finished_requests: u64,
    /// Aborted or failed.
    pub unfinished_requests: u64,
    /// Of the requests that finished.
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    /// Computed in chunks of more than one token.
    pub prefill_computed_tokens: u64,
    pub decode_computed_tokens: u64,
    pub queries_tokens: u64,
    pub hits_tokens: u64,
    pub hit_rate: f64,
    pub num_gpu_blocks: u32,
    pub block_size_tokens: u32,
    /// As [`KvCache`](super::summary::KvCache) has them of the whole run.
    pub kv_usage_mean: f64,
    pub kv_usage_peak: f64,
    pub preemptions: u64,
    pub evictions: u64,
    pub steps: u64,
    /// Share of the run in which its GPU computed.
    pub gpu_busy: f64,
    /// If replicas come and go: seconds in which it had its GPUs, and in which it took requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paid_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_s: Option<f64>,
}

#[derive(Default)]
pub(super) struct ReplicaTally {
    pub inter_token: InterTokenLatencies,
    moving: CachingMetrics,
    finished_requests: u64,
    unfinished_requests: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    prefill_computed_tokens: u64,
    decode_computed_tokens: u64,
    prefix_cache: PrefixCacheStats,
    pub preemptions: u64,
    pub evictions: u64,
    steps: u64,
    gpu_ns: u64,
    used_block_ns: u128,
    peak_used_blocks: u32,
    /// After its last step.
    num_running: u32,
    num_waiting: u32,
    used_blocks: u32,
}

/// All replicas together: each as it stood after its last step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Standing {
    pub num_running: u32,
    pub num_waiting: u32,
    pub used_blocks: u32,
    /// The most blocks since the step before: the others' as they stood, and the most of the one
    /// whose step this is.
    pub peak_used_blocks: u32,
    pub moving_queries_tokens: u64,
    pub moving_hits_tokens: u64,
    /// If replicas come and go.
    pub num_ready_replicas: Option<u32>,
}

impl ReplicaTally {
    /// Counts a step, and brings `standing` up to date with it.
    pub fn on_step(&mut self, step: &StepRecord, usable_blocks: u32, standing: &mut Standing) {
        let replace = |sum: &mut u32, old: &mut u32, new: u32| {
            *sum = *sum - *old + new;
            *old = new;
        };
        let used_by_others = standing.used_blocks - self.used_blocks;
        // The null block is neither free nor used.
        let used_blocks = usable_blocks - step.num_free_blocks;
        standing.peak_used_blocks = used_by_others + step.peak_used_blocks;
        replace(&mut standing.used_blocks, &mut self.used_blocks, used_blocks);
        replace(&mut standing.num_running, &mut self.num_running, step.num_running);
        replace(&mut standing.num_waiting, &mut self.num_waiting, step.num_waiting);
        standing.moving_queries_tokens -= self.moving.aggregated_query_total;
        standing.moving_hits_tokens -= self.moving.aggregated_query_hit;
        self.moving.observe(&step.prefix_cache);
        standing.moving_queries_tokens += self.moving.aggregated_query_total;
        standing.moving_hits_tokens += self.moving.aggregated_query_hit;
        self.prefix_cache.queries += step.prefix_cache.queries;
        self.prefix_cache.hits += step.prefix_cache.hits;
        self.preemptions += u64::from(step.num_preempted);
        self.prefill_computed_tokens += u64::from(step.num_prefill_tokens);
        self.decode_computed_tokens += u64::from(step.num_decode_tokens);
        self.used_block_ns += u128::from(step.used_block_ns);
        self.peak_used_blocks = self.peak_used_blocks.max(step.peak_used_blocks);
        // A step can compute nothing and only say who has ended.
        if step.num_scheduled_requests > 0 {
            self.inter_token.on_step(step.finished_at);
            self.steps += 1;
            self.gpu_ns += step.gpu_ns;
        }
    }

    pub fn on_request(&mut self, request: &RequestRecord) {
        if request.is_whole() {
            self.finished_requests += 1;
            self.prompt_tokens += u64::from(request.num_prompt_tokens);
            self.output_tokens += u64::from(request.num_output_tokens);
        } else {
            self.unfinished_requests += 1;
        }
    }

    /// A prompt has been computed for another replica.
    pub fn on_prefill(&mut self, num_prompt_tokens: u32) {
        self.finished_requests += 1;
        self.prompt_tokens += u64::from(num_prompt_tokens);
    }

    /// `times` if replicas come and go.
    pub fn summary(
        &self,
        info: &ReplicaInfo,
        duration_s: f64,
        times: Option<&ReplicaTimes>,
    ) -> ReplicaSummary {
        let blocks = f64::from(info.num_gpu_blocks - 1);
        let of_run = |ns: f64| if duration_s > 0.0 { ns / (duration_s * 1e9) } else { 0.0 };
        let rate = HitRate::of(self.prefix_cache.queries, self.prefix_cache.hits);
        ReplicaSummary {
            replica: info.replica,
            data_parallel_rank: info.data_parallel_rank,
            pool: info.pool.clone(),
            role: info.role,
            gpu: info.gpu.clone(),
            tensor_parallel_size: info.tensor_parallel_size,
            num_gpus: info.num_gpus,
            finished_requests: self.finished_requests,
            unfinished_requests: self.unfinished_requests,
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            prefill_computed_tokens: self.prefill_computed_tokens,
            decode_computed_tokens: self.decode_computed_tokens,
            queries_tokens: rate.queries_tokens,
            hits_tokens: rate.hits_tokens,
            hit_rate: rate.hit_rate,
            num_gpu_blocks: info.num_gpu_blocks,
            block_size_tokens: info.block_size_tokens,
            kv_usage_mean: of_run(self.used_block_ns as f64) / blocks,
            kv_usage_peak: f64::from(self.peak_used_blocks) / blocks,
            preemptions: self.preemptions,
            evictions: self.evictions,
            steps: self.steps,
            gpu_busy: of_run(self.gpu_ns as f64),
            paid_s: times.map(|times| times.paid_s),
            ready_s: times.map(|times| times.ready_s),
        }
    }
}
