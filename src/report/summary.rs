//! What a run came to: `summary.json`.

use serde::Serialize;

use super::fleet::FleetSummary;
use super::goodput::Goodput;
use super::log_histogram::DurationS;
use super::percentiles::LatencyMs;
use super::tenants::Fairness;
use super::tiers::ExternalCache;
use crate::workload::WorkloadNotes;

/// A whole run. Every number has its unit in its name; a rate stands beside what it is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunSummary {
    pub name: String,
    pub seed: u64,
    pub model: String,
    pub gpu: String,
    pub tensor_parallel_size: u32,
    /// Of all ranks of all replicas.
    pub num_gpus: u32,
    /// Where the requests come from.
    pub workload: WorkloadNotes,
    /// Simulated time from the start to the last output.
    pub duration_s: f64,
    /// Said where the queue grew as long as requests came, so that latencies are those of a server with too much
    /// to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload: Option<String>,
    pub requests: Requests,
    pub tokens: Tokens,
    pub throughput: Throughput,
    pub latency: Latency,
    /// Where the scenario says what users are promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Goodput>,
    pub prefix_cache: PrefixCache,
    /// The store behind the GPU's cache, if there is one.
    pub external_cache: Option<ExternalCache>,
    pub kv_cache: KvCache,
    pub steps: Steps,
    /// What the times and the number of blocks rest on where nothing was measured, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caveats: Vec<String>,
    /// With speculative decoding.
    pub speculative_decoding: Option<SpeculativeDecoding>,
    pub kv_events: Option<u64>,
    pub resets: Resets,
    /// With several tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Fairness>,
    /// With several replicas; the rest is of all of them together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetSummary>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Requests {
    /// With a whole answer.
    pub finished: u64,
    pub finished_length: u64,
    pub finished_stop: u64,
    /// Their clients went away before the answer, or its beginning, was there.
    pub aborted: u64,
    /// Of these, those that saw no token.
    pub aborted_before_first_token: u64,
    /// By the engine.
    pub failed: u64,
    /// How often a running request was put back.
    pub preemptions: u64,
    /// Those that came before the last one and still waited when it came, for their first token to be scheduled.
    pub waiting_at_last_arrival: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tokens {
    /// Of the requests that finished.
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    /// Sampled for requests that were aborted or failed.
    pub unfinished_output_tokens: u64,
    /// Computed in chunks of more than one token, again after preemptions too.
    pub prefill_computed_tokens: u64,
    pub decode_computed_tokens: u64,
}

/// Of the requests that finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    pub requests_per_s: f64,
    pub prompt_tokens_per_s: f64,
    pub output_tokens_per_s: f64,
    /// Prompt and output together.
    pub total_tokens_per_s: f64,
}

/// Of the requests that finished, as `vllm bench serve` takes them: an abort is no short answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// From arrival to the first scheduled token.
    pub queue: LatencyMs,
    /// From arrival to the first output token.
    pub ttft: LatencyMs,
    /// Per output token after the first, one value for each request.
    pub tpot: LatencyMs,
    /// Between one output of a request and the next, a value for each; outputs of several tokens,
    /// as accepted drafts make them, are one.
    pub itl: LatencyMs,
    /// From arrival to the last output token.
    pub e2e: LatencyMs,
}

/// Tokens looked up and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct HitRate {
    pub queries_tokens: u64,
    pub hits_tokens: u64,
    /// Hits over queries; 0 without queries.
    pub hit_rate: f64,
}

impl HitRate {
    pub(super) fn of(queries_tokens: u64, hits_tokens: u64) -> Self {
        let hit_rate = if queries_tokens == 0 { 0.0 } else { hits_tokens as f64 / queries_tokens as f64 };
        Self { queries_tokens, hits_tokens, hit_rate }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NamedHitRate {
    pub name: String,
    pub requests: u64,
    #[serde(flatten)]
    pub rate: HitRate,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PrefixCache {
    /// Of first admissions, as `vllm:prefix_cache_queries` and `_hits` count.
    #[serde(flatten)]
    pub total: HitRate,
    /// Of admissions after a preemption, which vLLM exports nowhere.
    pub preempted: HitRate,
    /// Over about the last 1,000 requests: the "Prefix cache hit rate" of vLLM's log; of several
    /// replicas, the last 1,000 of each.
    pub moving_last_1000_requests: HitRate,
    /// Why nothing was hit, when nothing was.
    pub zero_hits_because: Option<String>,
    /// First admissions by turn of the conversation, from 0.
    pub by_turn: Vec<NamedHitRate>,
    pub by_tenant: Vec<NamedHitRate>,
    /// By place in the prompt, in tokens from 0: each token counts where it stands, each prompt where it
    /// has tokens.
    pub by_depth: Vec<NamedHitRate>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KvCache {
    /// Of all replicas.
    pub num_gpu_blocks: u32,
    /// Of the scenario; a kind of replica can have another.
    pub block_size_tokens: u32,
    /// Share of the blocks, the null block left out, that requests hold, averaged over the time from
    /// the start to the last output. A request holds its blocks from the planning of the step that
    /// needs them until it ends or is preempted; cached blocks that nobody holds count as free. (The
    /// gauge `vllm:kv_cache_usage_perc` is read after a step's requests have ended, so it misses those
    /// of one step.)
    pub usage_mean: f64,
    /// The largest such share at any time.
    pub usage_peak: f64,
    /// Blocks that lost their hash to make room.
    pub evictions: u64,
    /// Blocks handed out again, with a hash or without: what vLLM samples residency from.
    pub blocks_handed_out_again: u64,
    pub block_lifetime: DurationS,
    /// Since the last hit.
    pub idle_before_eviction: DurationS,
    /// Between two hits on one block.
    pub reuse_gap: DurationS,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Steps {
    pub count: u64,
    pub mean_tokens: f64,
    pub mean_requests: f64,
    pub mean_gpu_ms: f64,
    pub mean_host_ms: f64,
    /// Share of the run in which the GPU computed; of several replicas the mean.
    pub gpu_busy: f64,
    /// Share of the GPU's time in steps with more tokens or longer contexts than were measured for the cost
    /// profile.
    pub extrapolated: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpeculativeDecoding {
    pub drafts: u64,
    pub draft_tokens: u64,
    pub accepted_tokens: u64,
    pub acceptance_rate: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Resets {
    pub done: u64,
    pub refused: u64,
    pub preempted_requests: u64,
}
