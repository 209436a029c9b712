//! Small random engines and workloads. The engine checks its invariants at each step (debug
//! builds); here the log is held against what must be conserved: requests, tokens, blocks, counts.

use std::collections::BTreeMap;

use kvsim::conformance::{Case, CaseError, run_case};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde_json::{Value, json};

/// For a longer search set `KVSIM_RANDOM_WORKLOADS`, for a single one `KVSIM_RANDOM_WORKLOAD`.
const NUM_WORKLOADS: u64 = 1500;
const BLOCK_SIZE: u32 = 4;
const MAX_MODEL_LEN: u32 = 96;

/// Groups, and most blocks that a request of `MAX_MODEL_LEN` tokens and drafts holds in them.
fn groups(rng: &mut ChaCha8Rng) -> (Value, u32, u32) {
    let full = json!({"kind": "full"});
    let window = json!({"kind": "sliding_window", "sliding_window": rng.random_range(3..20)});
    let chunked = json!({"kind": "chunked_local", "chunk_size": *[4, 8, 12].choose(rng).unwrap()});
    let mamba = |size: u32| json!({"kind": "mamba", "block_size": size, "cache_mode": "align"});
    let half_window = json!({"kind": "sliding_window", "block_size": 2, "sliding_window": 7});
    let groups = match rng.random_range(0..12) {
        0..5 => json!([full]),
        5 => json!([window]),
        6 => json!([full, window]),
        7 => json!([full, half_window, window]),
        8 => json!([full, chunked]),
        9 => json!([full, mamba(4)]),
        10 => json!([full, mamba(8)]),
        _ => json!([{"kind": "full", "block_size": 2}, window, mamba(8)]),
    };
    let size = |group: &Value| group["block_size"].as_u64().unwrap_or(BLOCK_SIZE.into()) as u32;
    let list = groups.as_array().unwrap();
    let blocks = list.iter().map(|group| (MAX_MODEL_LEN + 16).div_ceil(size(group)) + 2).sum();
    let largest = list.iter().map(size).max().unwrap();
    (groups, blocks, largest)
}

fn engine(rng: &mut ChaCha8Rng) -> Value {
    let (groups, blocks, largest_block) = groups(rng);
    let chunked_prefill = rng.random_ratio(4, 5);
    let budget = if chunked_prefill { rng.random_range(largest_block.max(6)..64) } else { MAX_MODEL_LEN };
    let mut engine = json!({
        "mode": *["sync", "async"].choose(rng).unwrap(),
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks": blocks + rng.random_range(1..2 * blocks),
        "max_num_seqs": rng.random_range(1..6),
        "max_num_batched_tokens": budget,
        "max_model_len": MAX_MODEL_LEN,
        "enable_chunked_prefill": chunked_prefill,
        "long_prefill_token_threshold": if rng.random_ratio(1, 5) { largest_block + 4 } else { 0 },
        "long_prefill_token_threshold_adaptive": rng.random_ratio(1, 3),
        "scheduler_reserve_full_isl": rng.random_ratio(2, 3),
        "watermark": if rng.random_ratio(1, 5) { 0.1 } else { 0.0 },
        "enable_prefix_caching": rng.random_ratio(9, 10),
        "prefix_caching_hash_algo": *["sha256_cbor", "xxhash"].choose(rng).unwrap(),
        "python_hash_seed": null,
        "policy": *["fcfs", "priority"].choose(rng).unwrap(),
        "enable_kv_cache_events": true,
        "use_int_block_hashes": false,
        "kv_cache_groups": groups,
    });
    if rng.random_ratio(1, 3) {
        engine["num_speculative_tokens"] = json!(rng.random_range(1..4));
        let has_chunks = engine["kv_cache_groups"].to_string().contains("chunked_local");
        let eagle = !has_chunks && rng.random_ratio(1, 2);
        engine["spec_method"] = json!(if eagle { "eagle" } else { "ngram" });
        engine["lookahead_block_hashes"] = json!(rng.random_ratio(1, 2));
    }
    if rng.random_ratio(1, 6) {
        engine["max_loras"] = json!(1);
    }
    if rng.random_ratio(1, 4) {
        let policy = *["recompute", "fail"].choose(rng).unwrap();
        engine["kv_connector"] = json!({"role": "kv_both", "load_failure_policy": policy});
    }
    engine
}

fn request(rng: &mut ChaCha8Rng, index: u64, arrival_step: u64, has_connector: bool) -> Value {
    // Few prefixes, so that hits are common. A prompt of one token that a store holds is loaded
    // again and again, as its only token must be computed.
    let shared: u64 = rng.random_range(0..3);
    let prompt = json!([
        [1000 * shared, if rng.random() { rng.random_range(2..40) } else { 17 }],
        [100 * rng.random_range(0..3_u64), if rng.random() { rng.random_range(0..20) } else { 0 }]
    ]);
    let output_len = rng.random_range(1..30_u64);
    let output_start = 100_000 * (index + 1);
    let mut request = json!({
        "id": format!("r{index}"), "arrival_step": arrival_step, "prompt": prompt,
        "output": [[output_start, output_len]],
        "priority": rng.random_range(0..3),
        "draft_accepts": [rng.random_range(0..4), rng.random_range(0..4)],
    });
    if rng.random_ratio(1, 4) {
        request["stop_token_ids"] = json!([output_start + rng.random_range(0..output_len + 3)]);
    }
    if rng.random_ratio(1, 8) {
        let id = rng.random_range(1..3);
        request["lora"] = json!({"name": format!("l{id}"), "id": id, "path": "p"});
    }
    if rng.random_ratio(1, 8) {
        request["draft_lens"] = json!([rng.random_range(0..4), 1]);
    }
    if rng.random_ratio(1, 10) {
        request["skip_reading_prefix_cache"] = json!(true);
    }
    if rng.random_ratio(1, 10) {
        request["kv_cache_report_mode"] = json!("full");
    }
    if has_connector && rng.random_ratio(2, 3) {
        let load_async = rng.random::<bool>();
        request["kv"] = json!({
            "external_tokens": rng.random_range(0..40), "async": load_async,
            "load_steps": rng.random_range(1..4),
            "fail_blocks": if rng.random_ratio(1, 4) { vec![rng.random_range(0..6)] } else { Vec::new() },
            "fail_request": load_async && rng.random_ratio(1, 6),
            "defer_lookups": rng.random_range(0..3),
        });
        if rng.random_ratio(1, 3) {
            request["kv"]["send_steps"] = json!(rng.random_range(0..4));
        }
    }
    request
}

fn case(seed: u64) -> Value {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rng = &mut rng;
    let engine = engine(rng);
    let num_requests = rng.random_range(1..12);
    let mut arrival_step = 0;
    let requests: Vec<Value> = (0..num_requests)
        .map(|index| {
            arrival_step += rng.random_range(0..4);
            request(rng, index, arrival_step, !engine["kv_connector"].is_null())
        })
        .collect();
    let num_actions = if rng.random_ratio(1, 3) { rng.random_range(1..5) } else { 0 };
    let actions: Vec<Value> = (0..num_actions)
        .map(|_| {
            let step = rng.random_range(0..30);
            let when = *["before_step", "before_update"].choose(rng).unwrap();
            if rng.random::<bool>() {
                let id = format!("r{}", rng.random_range(0..num_requests));
                json!({"step": step, "kind": "abort", "id": id, "when": when})
            } else {
                let all = rng.random::<bool>();
                json!({"step": step, "kind": "reset_prefix_cache", "reset_running_requests": all, "when": when})
            }
        })
        .collect();
    json!({"name": format!("seed {seed}"), "engine": engine, "requests": requests, "actions": actions})
}

/// What the log says of a request.
#[derive(Default)]
struct Seen {
    tokens: Vec<u64>,
    finish: Option<String>,
    num_ends: u32,
    status: String,
}

struct Log<'a> {
    case: &'a Value,
    lines: Vec<Value>,
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn int(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// With async scheduling, the step in flight goes on from a load that has failed, and the token of
/// the failed step is lost: the recorded case P3_failed_load_recompute_async shows it of vLLM. Its
/// placeholder stays, so a request whose last token is lost waits for it for ever.
fn may_lose_tokens(case: &Value) -> bool {
    let engine = &case["engine"];
    let fails = |request: &Value| !list(&request["kv"]["fail_blocks"]).is_empty();
    engine["mode"] == "async"
        && engine["kv_connector"]["load_failure_policy"] == "recompute"
        && list(&case["requests"]).iter().any(fails)
}

impl Log<'_> {
    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["kind"] == kind)
    }

    fn requests_seen(&self) -> BTreeMap<&str, Seen> {
        let mut seen: BTreeMap<&str, Seen> = BTreeMap::new();
        for line in &self.lines {
            for output in list(&line["outputs"]) {
                let request = seen.entry(output["id"].as_str().unwrap()).or_default();
                assert!(request.finish.is_none(), "{output} after the end");
                request.tokens.extend(list(&output["tokens"]).iter().map(int));
                request.finish = output["finish"].as_str().map(str::to_owned);
            }
            for finished in list(&line["finished"]) {
                let id = finished["id"].as_str().unwrap();
                let request = seen.entry(id).or_default();
                request.num_ends += 1;
                request.status = finished["status"].as_str().unwrap().to_owned();
                let num_output_tokens = int(&finished["num_output_tokens"]);
                assert_eq!(num_output_tokens, request.tokens.len() as u64, "tokens of {id} that came out");
            }
        }
        seen
    }

    /// Every request ends once, with the tokens that were asked for.
    fn check_requests(&self) {
        let seen = self.requests_seen();
        for request in list(&self.case["requests"]) {
            let id = request["id"].as_str().unwrap();
            let seen = seen.get(id).unwrap_or_else(|| panic!("{id} was never seen"));
            assert_eq!(seen.num_ends, 1, "ends of {id}");
            let prompt: u64 = list(&request["prompt"]).iter().map(|run| int(&run[1])).sum();
            let (start, len) = (int(&request["output"][0][0]), int(&request["output"][0][1]));
            let stop = list(&request["stop_token_ids"]).first().map_or(u64::MAX, int);
            let asked: Vec<u64> = (start..start + len.min(u64::from(MAX_MODEL_LEN) - prompt)).collect();
            let stops_at = asked.iter().position(|&token| token == stop);
            if may_lose_tokens(self.case) {
                continue;
            }
            let expected = &asked[..stops_at.map_or(asked.len(), |at| at + 1)];
            match seen.status.as_str() {
                "FINISHED_ABORTED" | "FINISHED_ERROR" => {
                    assert!(expected.starts_with(&seen.tokens), "{id}: {:?}", seen.tokens);
                }
                status => {
                    assert_eq!(seen.tokens, expected, "tokens of {id}");
                    let stopped = stops_at.is_some();
                    assert_eq!(seen.finish.as_deref(), Some(if stopped { "stop" } else { "length" }), "{id}");
                    assert_eq!(status == "FINISHED_STOPPED", stopped, "{id}: {status}");
                }
            }
        }
    }

    /// Nothing runs, waits or is held at the end.
    fn check_end(&self) {
        let state = self.lines.iter().rfind(|line| line["free"].is_u64()).expect("some step was logged");
        assert_eq!(int(&state["free"]) + 1, int(&self.case["engine"]["num_gpu_blocks"]), "blocks at the end");
        for queue in ["running", "waiting", "holding"] {
            assert_eq!(state[queue], json!([]), "{queue} at the end");
        }
        let end = self.of_kind("end").next().expect("the log has an end");
        assert_eq!(end["unfinished"], 0);
    }

    /// Totals are the sums of the steps, and counts of tokens agree.
    fn check_sums(&self) {
        let end = self.of_kind("end").next().unwrap();
        let sum = |kind, of: &dyn Fn(&Value) -> u64| self.of_kind(kind).map(of).sum::<u64>();
        let scheduled = |line: &Value| list(&line["scheduled"]).iter().map(|e| int(&e["num_tokens"])).sum();
        assert_eq!(sum("schedule", &scheduled), int(&end["scheduled_tokens"]));
        assert_eq!(sum("schedule", &|line| int(&line["total_tokens"])), int(&end["scheduled_tokens"]));
        let preempted = |line: &Value| list(&line["preempted"]).len() as u64;
        let preemptions = sum("schedule", &preempted) + sum("action", &preempted);
        assert_eq!(preemptions, int(&end["preemptions"]));
        let stat = |at: usize| sum("update", &|line| int(&line["stats"][at]));
        let totals: Vec<u64> = list(&end["totals"]).iter().map(int).collect();
        assert_eq!(totals, (1..7).map(stat).collect::<Vec<_>>());
        assert!(totals[2] <= totals[1] && totals[5] <= totals[4], "more hits than queries: {totals:?}");
        let engine = &self.case["engine"];
        let budget = int(&engine["max_num_batched_tokens"]);
        assert!(self.of_kind("schedule").all(|line| int(&line["total_tokens"]) <= budget), "token budget");

        let requests = list(&self.case["requests"]);
        let is_plain = preemptions == 0
            && list(&self.case["actions"]).is_empty()
            && engine["kv_connector"].is_null()
            && engine["num_speculative_tokens"].is_null()
            && requests.iter().all(|request| request["stop_token_ids"].is_null());
        if is_plain {
            // Each token but the last is computed once or hit.
            let tokens: u64 = self
                .of_kind("update")
                .flat_map(|line| list(&line["finished"]))
                .map(|f| int(&f["num_tokens"]))
                .sum();
            assert_eq!(int(&end["scheduled_tokens"]) + totals[2], tokens - requests.len() as u64);
        }
    }

    /// Somebody who follows the events knows how many blocks are cached after each update.
    fn check_events(&self) {
        if self.case.to_string().contains("kv_cache_report_mode") {
            // Events of hit blocks are not told from those of new ones.
            return;
        }
        let mut num_cached = 0;
        for line in self.of_kind("update") {
            for event in list(&line["events"]) {
                let num_hashes = list(&event["block_hashes"]).len() as u64;
                match event["type"].as_str() {
                    Some("BlockStored") => num_cached += num_hashes,
                    Some("BlockRemoved") => num_cached -= num_hashes,
                    _ => num_cached = 0,
                }
            }
            assert_eq!(
                num_cached,
                int(&line["cached"]),
                "cached blocks by the events, step {}",
                line["step"]
            );
        }
    }
}

fn check(seed: u64) {
    let case = case(seed);
    let parsed = Case::parse(&case.to_string()).unwrap_or_else(|error| panic!("{error}: {case}"));
    let text = match run_case(&parsed) {
        Ok(text) => text,
        Err(CaseError::Stuck { .. }) if may_lose_tokens(&case) => return,
        Err(error) => panic!("{error}: {case}"),
    };
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let log = Log { case: &case, lines };
    log.check_requests();
    log.check_end();
    log.check_sums();
    log.check_events();
}

#[test]
fn requests_tokens_blocks_and_counts_are_conserved() {
    if let Ok(seed) = std::env::var("KVSIM_RANDOM_WORKLOAD") {
        return check(seed.parse().expect("KVSIM_RANDOM_WORKLOAD is the seed of one workload"));
    }
    let number = std::env::var("KVSIM_RANDOM_WORKLOADS").ok().and_then(|number| number.parse().ok());
    let failed: Vec<u64> = (0..number.unwrap_or(NUM_WORKLOADS))
        .into_par_iter()
        .filter(|&seed| std::panic::catch_unwind(|| check(seed)).is_err())
        .collect();
    assert!(failed.is_empty(), "set KVSIM_RANDOM_WORKLOAD to one of those that fail: {failed:?}");
}
