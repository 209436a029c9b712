//! Whole reports of runs that are small enough to be worked out by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::collector::Collector;
use super::manifest::MANIFEST;
use super::*;
use crate::cost::{BlockHashing, ConstantCost, CostModel};
use crate::engine::hash::RequestBlockHasher;
use crate::engine::kv_cache::{KvCacheManager, KvCacheSpec};
use crate::engine::scheduler::Scheduler;
use crate::engine::{EngineConfig, FinishReason, SpecMethod, SpeculativeConfig};
use crate::simulation::router::RoundRobin;
use crate::simulation::{
    Action, DraftAcceptance, Replica, ReplicaConfig, RequestRecord, RunEnding, Simulation,
};
use crate::units::SimTime;
use crate::workload::trace::{Trace, TraceConfig, TraceFormat, TraceInput};

/// Two prompts that share 512 of 600 tokens.
pub(super) const SHARING: &str = r#"{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}
{"timestamp": 10, "input_length": 600, "output_length": 1, "hash_ids": [1, 3]}
"#;

pub(super) fn config() -> EngineConfig {
    EngineConfig {
        async_scheduling: false,
        num_gpu_blocks: 101,
        max_model_len: 1_024,
        kv_cache_metrics: true,
        ..EngineConfig::default()
    }
}

pub(super) fn info(config: &EngineConfig) -> RunInfo {
    RunInfo {
        name: "tiny".into(),
        seed: 7,
        scenario: r#"{"name": "tiny"}"#.into(),
        trace: None,
        model: "a model".into(),
        gpu: "a GPU".into(),
        tensor_parallel_size: 1,
        gpus_per_replica: 1,
        num_gpu_blocks: config.num_gpu_blocks,
        block_size_tokens: config.block_size,
        enable_prefix_caching: config.enable_prefix_caching,
        num_kv_cache_groups: config.kv_cache_groups.len(),
        shortest_hit: KvCacheManager::new(config).shortest_hit(),
        kv_events: false,
        blocks: true,
        tenants: Vec::new(),
        not_shared_because: None,
        caveats: Vec::new(),
        goodput: None,
        fleet: None,
    }
}

/// A step takes 1 ms and 1 us per token.
pub(super) fn simulation(config: EngineConfig, rows: &str) -> Simulation {
    simulation_of(1, config, rows)
}

/// Of so many replicas.
pub(super) fn simulation_of(num_replicas: usize, config: EngineConfig, rows: &str) -> Simulation {
    simulation_with(num_replicas, config, rows, Vec::new())
}

/// With what is done to them.
pub(super) fn simulation_with(
    num_replicas: usize,
    config: EngineConfig,
    rows: &str,
    actions: Vec<Action>,
) -> Simulation {
    let input = TraceInput::new(std::io::Cursor::new(rows.to_owned())).unwrap();
    let trace = TraceConfig { format: Some(TraceFormat::Mooncake), ..TraceConfig::new("tiny.jsonl") };
    let workload = Trace::new(input, &trace, None, 1).unwrap();
    let replica = || {
        let (_, hash_block_size) = config.resolve_kv_cache_block_sizes();
        let hasher = RequestBlockHasher::identity(hash_block_size, config.num_hash_lookahead_tokens());
        let drafts = config.speculative.map(|_| DraftAcceptance { acceptance_rate: 0.5, seed: 1 });
        let scheduler = Scheduler::new(config.clone(), Some(hasher), None).unwrap();
        let cost = CostModel::Constant(ConstantCost { step_ns: 1_000_000, per_token_ns: 1_000 });
        Replica::new(ReplicaConfig {
            scheduler,
            cost,
            transfers: None,
            puller: None,
            drafts,
            hashing: BlockHashing::FREE,
        })
    };
    let replicas = (0..num_replicas).map(|_| replica()).collect();
    Simulation::new(Box::new(workload), replicas, Box::new(RoundRobin::default()), actions)
}

fn report(target: &Path, config: EngineConfig, rows: &str) -> RunSummary {
    let mut report = RunReport::create(target, info(&config)).unwrap();
    simulation(config, rows).run(&mut report).unwrap();
    report.finish(RunEnding::default()).unwrap()
}

/// What is no text is escaped.
fn files(folder: &Path) -> BTreeMap<String, String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let text = String::from_utf8(fs::read(entry.path()).unwrap())
                .unwrap_or_else(|error| error.into_bytes().escape_ascii().to_string());
            (entry.file_name().into_string().unwrap(), text)
        })
        .collect()
}

const REQUESTS_CSV: &str = "\
index,tenant,session,turn,arrival_s,first_scheduled_s,first_token_s,finished_s,queue_ms,ttft_ms,tpot_ms,\
e2e_ms,prompt_tokens,output_tokens,local_cached_tokens,external_cached_tokens,num_preemptions,finish_reason
0,,,0,0.0,0.0,0.0016,0.003602,0.0,1.6,1.001,3.602,600,3,0,0,0,length
1,,,0,0.01,0.01,0.011088,0.011088,0.0,1.088,,1.088,600,1,512,0,0,length
";
const TIMESERIES_CSV: &str = "\
begin_s,end_s,steps,prefill_tokens,decode_tokens,queries_tokens,hits_tokens,moving_queries_tokens,\
moving_hits_tokens,finished_requests,unfinished_requests,preemptions,evictions,running,waiting,used_blocks,peak_used_blocks
0.0,1.0,4,688,2,1200,512,1200,512,2,0,0,0,0,0,0,38
";
const TABLE: &str = " model            a model on 1 x a GPU
 requests         2 finished in 0.0 s (180.38/s), 0 preemptions
 tokens           1200 prompt (108225/s), 4 output (361/s)
 hit rate         42.67 % (512 of 1200 tokens)
   in vLLM's log  42.67 % (512 of 1200 tokens)
 queue ms         mean 0.0, p50 0.0, p90 0.0, p99 0.0
 TTFT ms          mean 1.3, p50 1.1, p90 1.6, p99 1.6
 TPOT ms          mean 1.0, p50 1.0, p90 1.0, p99 1.0
 ITL ms           mean 1.0, p50 1.0, p90 1.0, p99 1.0
 E2E ms           mean 2.3, p50 1.1, p90 3.6, p99 3.6
 KV cache         101 blocks of 16 tokens, in use 16.1 % (peak 38.0 %)
 evictions        0
 steps            4 of 172.5 tokens and 1.17 ms on average, GPU busy 42.3 %";

#[test]
fn figures_are_what_can_be_worked_out_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let summary = report(&dir.path().join("tiny"), config(), SHARING);
    assert_eq!((summary.requests.finished, summary.requests.finished_length), (2, 2));
    let tokens = summary.tokens;
    assert_eq!((tokens.prompt_tokens, tokens.output_tokens), (1_200, 4));
    // The second prompt computes what the first one does not have: 600 - 512.
    assert_eq!((tokens.prefill_computed_tokens, tokens.decode_computed_tokens), (688, 2));
    let cache = &summary.prefix_cache;
    assert_eq!((cache.total.queries_tokens, cache.total.hits_tokens), (1_200, 512));
    assert_eq!(cache.total.hit_rate, 512.0 / 1_200.0);
    assert_eq!((cache.by_turn.len(), cache.by_turn[0].rate), (1, cache.total));
    assert_eq!(cache.zero_hits_because, None);
    // 600 tokens: 1.6 ms; a decode: 1.001 ms; 88 tokens: 1.088 ms.
    let latency = summary.latency;
    assert_eq!((latency.ttft.p50_ms, latency.ttft.max_ms), (1.088, 1.6));
    assert_eq!((latency.tpot.count, latency.tpot.mean_ms), (1, 1.001));
    assert_eq!((latency.itl.count, latency.itl.mean_ms, latency.itl.max_ms), (2, 1.001, 1.001));
    assert_eq!((latency.e2e.p50_ms, latency.e2e.max_ms), (1.088, 3.602));
    assert_eq!((latency.queue.count, latency.queue.max_ms), (2, 0.0));
    assert_eq!(summary.duration_s, 0.011_088);
    assert_eq!(summary.throughput.total_tokens_per_s, 1_204.0 / 0.011_088);
    assert_eq!(summary.steps.count, 4);
    // 602 tokens lie in 38 of 100 blocks for 3.602 ms, 600 in as many for 1.088 ms.
    assert_eq!(summary.kv_cache.usage_peak, 0.38);
    assert_eq!(summary.kv_cache.usage_mean, 38.0 * (3_602_000.0 + 1_088_000.0) / 11_088_000.0 / 100.0);
    assert_eq!((summary.kv_cache.evictions, summary.kv_cache.reuse_gap.count), (0, 0));
}

#[test]
fn files_hold_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tiny");
    let summary = report(&target, config(), SHARING);
    let files = files(&target);
    let is_text = |name: &&str| !name.ends_with(".parquet");
    let names: Vec<_> = files.keys().map(String::as_str).filter(is_text).collect();
    assert_eq!(
        names,
        [
            "blocks.csv",
            "hit_rate.svg",
            "kv_usage.svg",
            MANIFEST,
            "report.html",
            "requests.csv",
            "summary.json",
            "timeseries.csv"
        ]
    );
    assert_eq!(files["requests.csv"], REQUESTS_CSV);
    assert_eq!(files["timeseries.csv"], TIMESERIES_CSV);
    assert_eq!(terminal_table(&summary), TABLE);
    let json: serde_json::Value = serde_json::from_str(&files["summary.json"]).unwrap();
    assert_eq!(json, serde_json::to_value(&summary).unwrap());
    for (name, title) in [
        ("hit_rate.svg", "tiny: prefix cache hit rate"),
        ("kv_usage.svg", "tiny: KV cache in use, of 101 blocks"),
    ] {
        assert!(files[name].starts_with("<svg xmlns="), "{name}");
        assert!(files[name].contains("role=\"img\""), "{name}");
        assert!(files[name].contains(&format!("<title>{title}</title>")), "{name}");
    }
}

#[test]
fn two_runs_write_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    report(&one, config(), SHARING);
    report(&other, config(), SHARING);
    assert_eq!(files(&one), files(&other));
}

#[test]
fn evictions_reach_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tiny");
    let mut rows = String::new();
    for (at, id) in [(0, 1), (100, 2)] {
        rows +=
            &format!("{{\"timestamp\":{at},\"input_length\":512,\"output_length\":1,\"hash_ids\":[{id}]}}\n");
    }
    // 59 blocks: the second prompt's 32 are 27 that nobody had, and 5 of the first one's 32.
    let summary = report(&target, EngineConfig { num_gpu_blocks: 60, ..config() }, &rows);
    assert_eq!((summary.kv_cache.evictions, summary.kv_cache.blocks_handed_out_again), (5, 5));
    let files = files(&target);
    // Handed out at 0 and at 100 ms, and never hit.
    assert_eq!(
        files["blocks.csv"],
        format!("evicted_at_us,lifetime_us,idle_us,num_hits\n{}", "100000,100000,100000,0\n".repeat(5))
    );
    assert!(files["timeseries.csv"].lines().next().unwrap().contains("evictions"));
    // They are counted as well where nobody wants the rows.
    let config = EngineConfig { num_gpu_blocks: 60, ..config() };
    let mut report = RunReport::create(&target, RunInfo { blocks: false, ..info(&config) }).unwrap();
    simulation(config, &rows).run(&mut report).unwrap();
    assert_eq!(report.finish(RunEnding::default()).unwrap(), summary);
    assert!(!self::files(&target).keys().any(|name| name.starts_with("blocks")));
    assert!(!self::files(&target)["report.html"].contains("blocks.csv"));
}

#[test]
fn a_run_that_fails_leaves_the_older_report() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tiny");
    report(&target, config(), SHARING);
    let before = files(&target);
    let mut failed = RunReport::create(&target, info(&config())).unwrap();
    let rows = format!("{SHARING}{{\"timestamp\": 20, \"input_le");
    simulation(config(), &rows).run(&mut failed).unwrap_err();
    drop(failed);
    assert_eq!(files(&target), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

fn starts(reason: Option<String>, start: &str) {
    assert!(reason.as_ref().is_some_and(|reason| reason.starts_with(start)), "{reason:?} is not {start:?}");
}

/// Prompts of these lengths and first hash ids, a second apart.
fn zero_hits_because(config: EngineConfig, prompts: &[(u32, u32)]) -> Option<String> {
    let mut rows = String::new();
    for (index, (tokens, id)) in prompts.iter().enumerate() {
        let at = 1_000 * index;
        rows += &format!(
            "{{\"timestamp\":{at},\"input_length\":{tokens},\"output_length\":1,\"hash_ids\":[{id}]}}\n"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    report(&dir.path().join("tiny"), config, &rows).prefix_cache.zero_hits_because
}

#[test]
fn a_hit_rate_of_zero_says_why() {
    starts(zero_hits_because(config(), &[]), "no request was admitted");
    let off = EngineConfig { enable_prefix_caching: false, ..config() };
    starts(zero_hits_because(off, &[(40, 1), (40, 1)]), "prefix caching is off");
    starts(zero_hits_because(config(), &[(16, 1), (16, 1)]), "too short");
    starts(zero_hits_because(config(), &[(40, 1), (40, 2)]), "nothing shared");
    // The second has the block of the first, but has to compute its last token.
    starts(zero_hits_because(config(), &[(17, 1), (16, 1)]), "nothing shared");
    // Three blocks: the second prompt takes both of the first.
    let small = EngineConfig { num_gpu_blocks: 3, max_model_len: 32, ..config() };
    starts(zero_hits_because(small, &[(17, 1), (17, 2), (17, 1)]), "shared blocks were not there");
    assert_eq!(zero_hits_because(config(), &[(17, 1), (17, 1)]), None);
}

/// A request of 40 prompt tokens that was answered with one token after 5 ns.
fn record() -> RequestRecord {
    RequestRecord {
        index: 0,
        replica: 0,
        tenant: 0,
        session: None,
        turn: 0,
        arrival: SimTime::ZERO,
        first_scheduled: Some(SimTime::ZERO),
        first_token: Some(SimTime(5)),
        finished: SimTime(5),
        num_prompt_tokens: 40,
        num_output_tokens: 1,
        was_admitted: true,
        num_local_cached_tokens: 0,
        num_external_cached_tokens: 0,
        num_preemptions: 0,
        finish_reason: FinishReason::Length,
        skip_reading_prefix_cache: false,
        is_long_enough_to_hit: true,
        shares_shortest_hit: true,
    }
}

#[test]
fn who_goes_away_counts_apart_and_in_no_latency() {
    let mut collector = Collector::new(&info(&config()));
    collector.on_request(&record());
    let aborted = RequestRecord { finished: SimTime(900), finish_reason: FinishReason::Abort, ..record() };
    collector.on_request(&RequestRecord { num_output_tokens: 7, num_local_cached_tokens: 16, ..aborted });
    collector.on_request(&RequestRecord {
        first_scheduled: None,
        first_token: None,
        num_output_tokens: 0,
        was_admitted: false,
        ..aborted
    });
    let summary = collector.summary(&info(&config()), &Default::default(), None, RunEnding::default());
    let requests = summary.requests;
    assert_eq!((requests.finished, requests.finished_length, requests.failed), (1, 1, 0));
    assert_eq!((requests.aborted, requests.aborted_before_first_token), (2, 1));
    let tokens = summary.tokens;
    assert_eq!((tokens.prompt_tokens, tokens.output_tokens, tokens.unfinished_output_tokens), (40, 1, 7));
    let latency = summary.latency;
    assert_eq!((latency.ttft.count, latency.e2e.count, latency.e2e.max_ms), (1, 1, 0.000_005));
    // The second was looked up, the third was not.
    let turn = &summary.prefix_cache.by_turn[0];
    assert_eq!((turn.requests, turn.rate.queries_tokens, turn.rate.hits_tokens), (2, 80, 16));
    let table = terminal_table(&summary);
    assert!(table.contains("aborted          2 (1 before the first token), 7 tokens in vain\n"));
}

/// With two equal prompts of one token less than the shortest that hits, and of just that.
fn check_shortest_hit(config: EngineConfig, matching_tokens: u32, prompt_tokens: u32) {
    let too_short = zero_hits_because(config.clone(), &[(prompt_tokens - 1, 1), (prompt_tokens - 1, 1)]);
    let text = format!(
        "too short: no prompt has the {prompt_tokens} tokens that the shortest hit takes \
         ({matching_tokens} must match)"
    );
    assert_eq!(too_short, Some(text));
    let different = zero_hits_because(config.clone(), &[(prompt_tokens, 1), (prompt_tokens, 2)]);
    starts(different, "nothing shared");
    let hit = zero_hits_because(config, &[(prompt_tokens, 1), (prompt_tokens, 1)]);
    assert_eq!(hit, None, "{prompt_tokens} tokens hit");
}

#[test]
fn the_shortest_hit_is_that_of_the_engine() {
    check_shortest_hit(config(), 16, 17);
    // Blocks span the ranks.
    check_shortest_hit(EngineConfig { decode_context_parallel_size: 4, ..config() }, 64, 65);
    let window = |block_size| KvCacheSpec::SlidingWindow { block_size, sliding_window: 64 };
    let hybrid = |groups| EngineConfig { kv_cache_groups: groups, ..config() };
    check_shortest_hit(hybrid(vec![KvCacheSpec::full(16), window(16)]), 16, 17);
    // Groups agree at a multiple of both block sizes.
    check_shortest_hit(hybrid(vec![KvCacheSpec::full(32), window(16)]), 32, 33);
    // EAGLE drops the last block that matches, or lets a hash cover the next token.
    let eagle = |config, disable_lookahead_block_hashes| EngineConfig {
        speculative: Some(SpeculativeConfig {
            method: SpecMethod::Eagle,
            num_speculative_tokens: 2,
            disable_lookahead_block_hashes,
        }),
        ..config
    };
    check_shortest_hit(eagle(config(), true), 32, 33);
    check_shortest_hit(eagle(config(), false), 16, 17);
    let two = || hybrid(vec![KvCacheSpec::full(16), window(16)]);
    // With several groups the block to be dropped may hold the last token.
    check_shortest_hit(eagle(two(), true), 32, 32);
    check_shortest_hit(eagle(two(), false), 16, 17);
}

#[test]
fn a_hit_rate_of_zero_says_that_nobody_looked() {
    let mut collector = Collector::new(&info(&config()));
    collector.on_request(&RequestRecord { skip_reading_prefix_cache: true, ..record() });
    let summary = collector.summary(&info(&config()), &Default::default(), None, RunEnding::default());
    assert!(summary.prefix_cache.zero_hits_because.is_some_and(|reason| reason.starts_with("not read")));
    assert!(summary.prefix_cache.by_turn.is_empty());
}

#[test]
fn an_observer_that_cannot_write_says_so_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tiny");
    let mut report = RunReport::create(&target, info(&config())).unwrap();
    simulation(config(), SHARING).run(&mut report).unwrap();
    fs::remove_dir_all(dir.path().join(".tiny.partial")).unwrap();
    assert!(matches!(report.finish(RunEnding::default()), Err(ReportError::Write { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_fleet_is_reported_as_a_whole_and_by_replica() {
    // The prompts go to different replicas, so nothing is found.
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tiny");
    let replica = ReplicaInfo {
        pool: Some("small".into()),
        gpu: "a GPU".into(),
        tensor_parallel_size: 2,
        num_gpus: 2,
        num_gpu_blocks: 101,
        block_size_tokens: 16,
        ..ReplicaInfo::default()
    };
    let replicas = vec![replica.clone(), ReplicaInfo { replica: 1, pool: None, ..replica }];
    let fleet = Some(FleetInfo { router: "round_robin".into(), is_there: None, replicas });
    let mut report = RunReport::create(&target, RunInfo { fleet, ..info(&config()) }).unwrap();
    simulation_of(2, config(), SHARING).run(&mut report).unwrap();
    let summary = report.finish(RunEnding::default()).unwrap();
    // The second prompt of 600 tokens, 1.6 ms after 10 ms.
    assert_eq!(summary.duration_s, 0.011_6);
    assert_eq!(
        (summary.prefix_cache.total.queries_tokens, summary.prefix_cache.total.hits_tokens),
        (1_200, 0)
    );
    let reason = summary.prefix_cache.zero_hits_because.as_deref().unwrap();
    assert!(reason.ends_with("as one before it at the same replica"), "{reason}");
    assert_eq!((summary.latency.itl.count, summary.latency.itl.max_ms), (2, 1.001));
    // 38 blocks of 200 for 3.602 and 1.6 ms.
    assert_eq!((summary.kv_cache.num_gpu_blocks, summary.kv_cache.usage_peak), (202, 0.19));
    assert_eq!(summary.kv_cache.usage_mean, 38.0 * (3_602_000.0 + 1_600_000.0) / 11_600_000.0 / 200.0);
    assert_eq!(summary.steps.gpu_busy, (3.602 + 1.6) / 11.6 / 2.0);
    let fleet = summary.fleet.as_ref().unwrap();
    assert_eq!((fleet.num_replicas, fleet.imbalance.requests.max_over_mean), (2, 1.0));
    // Three tokens are decoded by nobody but the first: two after the prefill's.
    assert_eq!((fleet.imbalance.decode_computed_tokens.max_over_mean), 2.0);
    let files = files(&target);
    let rows: Vec<_> =
        files["requests.csv"].lines().map(|row| row.split(',').take(2).collect::<Vec<_>>()).collect();
    assert_eq!(rows, [["index", "replica"], ["0", "0"], ["1", "1"]]);
    assert!(
        files["replicas.csv"]
            .lines()
            .nth(1)
            .unwrap()
            .starts_with("0,small,a GPU,2,2,1,0,600,3,600,2,600,0,0.0,")
    );
    let table = terminal_table(&summary);
    let kinds = " fleet            1 x (2 x a GPU) (small) + 1 x (2 x a GPU) behind round_robin\n";
    assert!(table.contains(kinds), "{table}");
    assert!(
        table.contains("   replica 1      1 requests, hits 0.0 %, KV cache 5.2 %, GPU 13.8 %"),
        "{table}"
    );
}
