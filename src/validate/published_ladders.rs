//! Ladders of rates behind routers whose reports state what the tables leave out.
//!
//! llm-d's reports on shared prefixes use one workload of inference-perf: a warm-up of 15 requests a
//! second for 50 s, then the stages below; 150 groups of 5 prompts, 6,000 + 1,200 tokens each, answers of
//! 1,000 tokens (`benchmarking/73-capacity/README.md` of llm-d's KV cache manager; the numbers of requests
//! in the guide `optimized-baseline` are those of the same stages). The README also states the plugins of
//! its four schedulers, which are the routers below.
//!
//! Prompts are random token ids, which inference-perf decodes and sends as text; what Qwen's tokenizer makes
//! of that text is 5 % longer ([`SENT`]). Its workers hold 100 requests each and there is one for each core, so
//! that every request is sent when it is due: the reports give rates of sending as high as were asked for.
//!
//! Not stated, and assumed here:
//! - The gateway of the first report is an Envoy with its default limit: 1,024 requests to a cluster at a time;
//!   one more is refused, and is in no figure of latency. From 40 requests a second on every stage has
//!   some 1,500 requests; with a router that knows the caches none waits in spite of it, times between
//!   tokens stay at 58 ms, and with one that does not, nobody waits longer than the answers of the third
//!   part before him take. The guide's output of 14,000 tokens a second needs more requests than that, so
//!   there, a year later, none is refused.
//! - The guide's `llm-d prefix affinity` is taken for the endpoint picker with llm-d's default weights (prefix
//!   3, KV usage 2, queue 2) and, as its approximate index tunes itself to the engine, blocks of the
//!   engine's size and as many as it has. `k8s round robin` is taken at its word.
//! - Between the choice of a replica and its engine lie 130 ms. With the router that knows the caches nearly
//!   every prompt is in one, and is computed in some 10 ms; its first token came after 290 ms at 3 requests a
//!   second as well as at 60. All routers are given the same.
//! - Metrics are read every 50 ms, the endpoint picker's default. Events take no time, and none is lost.
//! - 64 characters, of which the approximate index makes a block, are 16 tokens.

use super::ladder::{Ladder, Stage};
use crate::simulation::router::{PrefixSource, RouterConfig, RouterPolicy, ScoreWeights};

/// (requests a second, seconds).
const STAGES: [(f64, f64); 17] = [
    (15.0, 50.0),
    (3.0, 20.0),
    (10.0, 20.0),
    (15.0, 20.0),
    (20.0, 38.0),
    (22.0, 34.0),
    (25.0, 30.0),
    (30.0, 25.0),
    (35.0, 21.0),
    (40.0, 38.0),
    (43.0, 36.0),
    (46.0, 33.0),
    (49.0, 30.0),
    (52.0, 29.0),
    (55.0, 27.0),
    (57.0, 26.0),
    (60.0, 25.0),
];
const SHAPE: [u32; 5] = [6_000, 1_200, 1_000, 150, 5];
/// Envoy's default `max_requests` of a cluster's circuit breaker.
const MAX_REQUESTS: u32 = 1_024;
/// Shared part and question as the server counts them: the mean of 200 texts of as many random token ids
/// of Qwen's vocabulary as were asked for (7,577 tokens in all, standard deviation 27).
const SENT: [u32; 2] = [6_312, 1_265];
const METRICS_INTERVAL_MS: f64 = 50.0;
const LATENCY_MS: f64 = 130.0;

/// What a row says of its load.
pub(super) struct LadderRow<'a> {
    pub routing: &'a str,
    pub num_replicas: u32,
    pub rate_per_s: f64,
    /// Prompt, shared part of it, answer; groups, prompts in each.
    pub input_tokens: u32,
    pub shared_tokens: u32,
    pub output_tokens: u32,
    pub num_groups: u32,
    pub prompts_per_group: u32,
    /// Of the engine, in tokens; and how many it has.
    pub block_size: u32,
    pub num_gpu_blocks: Option<u32>,
}

/// The ladder that a row is a stage of, and which; `None` if it is none of these.
pub(super) fn find(row: &LadderRow<'_>) -> Option<(Ladder, usize)> {
    let [_, _, output_tokens, num_groups, prompts_per_group] = SHAPE;
    let shape = [
        row.shared_tokens,
        row.input_tokens.checked_sub(row.shared_tokens)?,
        row.output_tokens,
        row.num_groups,
        row.prompts_per_group,
    ];
    if shape != SHAPE {
        return None;
    }
    // The warm-up is reported by nobody.
    let stage = 1 + STAGES[1..].iter().position(|&(rate, _)| rate == row.rate_per_s)?;
    let ladder = Ladder {
        num_replicas: row.num_replicas,
        router: router(row)?,
        stages: STAGES
            .map(|(rate_per_s, duration_s)| Stage { rate_per_s, duration_s, sent_per_s: None })
            .to_vec(),
        num_groups,
        prompts_per_group,
        system_prompt_tokens: SENT[0],
        question_tokens: SENT[1],
        output_tokens,
        max_requests: row.routing.ends_with("-scheduling").then_some(MAX_REQUESTS),
    };
    Some((ladder, stage))
}

fn router(row: &LadderRow<'_>) -> Option<RouterConfig> {
    let base = RouterConfig {
        metrics_interval_ms: METRICS_INTERVAL_MS,
        latency_ms: LATENCY_MS,
        ..RouterConfig::default()
    };
    let weighted = |prefix, kv_usage, queue| RouterConfig {
        policy: RouterPolicy::Weighted,
        weights: ScoreWeights { prefix, kv_usage, queue, running: 0.0 },
        ..base.clone()
    };
    Some(match row.routing {
        "random-scheduling" => RouterConfig { policy: RouterPolicy::Random, ..base },
        "load-scheduling" => weighted(0.0, 1.0, 1.0),
        "estimated-scheduling" => weighted(1.0, 1.0, 1.0),
        "precise-scheduling" => RouterConfig {
            prefix_source: PrefixSource::KvEvents,
            block_size: row.block_size,
            ..weighted(3.0, 2.0, 2.0)
        },
        "k8s round robin" => RouterConfig { policy: RouterPolicy::RoundRobin, ..base },
        "llm-d prefix affinity" | "llm-d optimized" => RouterConfig {
            block_size: row.block_size,
            max_prefix_blocks: Some(row.input_tokens),
            capacity_blocks: row.num_gpu_blocks.unwrap_or(base.capacity_blocks),
            ..weighted(3.0, 2.0, 2.0)
        },
        _ => return None,
    })
}
