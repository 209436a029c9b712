//! Cases changed at random: whatever a case file holds is run or refused with an error, never a
//! panic. Seeded, so that a failure comes again; and bounded, so that it is part of every test run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use kvsim::conformance::{Case, CaseError, run_case};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Number, Value, json};

const SEED: u64 = 20_261_022;
/// For a longer search set `KVSIM_FUZZ_SECONDS`, and `KVSIM_FUZZ_SEED` for another one.
const TIME_LIMIT: Duration = Duration::from_secs(4);
/// What is accepted is run only up to this size.
const MAX_RUN_TOKENS: u64 = 4000;
const MAX_RUN_BLOCKS: u32 = 1 << 14;

/// Cases that between them use every field.
fn seeds() -> Vec<Value> {
    let engine = json!({
        "mode": "sync", "block_size": 4, "num_gpu_blocks": 40, "max_num_seqs": 4,
        "max_num_batched_tokens": 24, "max_model_len": 128, "enable_chunked_prefill": true,
        "long_prefill_token_threshold": 0, "enable_prefix_caching": true,
        "prefix_caching_hash_algo": "sha256", "python_hash_seed": null, "policy": "fcfs",
        "enable_kv_cache_events": true, "use_int_block_hashes": true,
        "kv_cache_groups": [{"kind": "full", "block_size": 4}],
    });
    let with = |changes: Value| {
        let mut engine = engine.clone();
        for (key, value) in changes.as_object().unwrap() {
            engine[key] = value.clone();
        }
        engine
    };
    let chat = json!([
        {"id": "a", "arrival_step": 0, "prompt": [[0, 17]], "output": [[1000, 6]], "priority": 1},
        {"id": "b", "arrival_step": 0, "prompt": [[0, 12], [50, 9]], "output": [[2000, 9]],
         "max_tokens": 5, "stop_token_ids": [2003], "arrival_time": 1.5, "cache_salt": "s",
         "session_id": "x", "kv_cache_report_mode": "full"},
        {"id": "c", "arrival_step": 3, "prompt": [[0, 40]], "output": [[3000, 12]],
         "lora": {"name": "l", "id": 1, "path": "p"}, "skip_reading_prefix_cache": true,
         "mm": [{"identifier": "image", "offset": 3, "length": 7}], "draft_accepts": [1, 0, 2],
         "draft_lens": [2, 1]},
        {"id": "d", "arrival_step": 4, "prompt": [], "output": [[4000, 3]],
         "prompt_embeds": {"num_tokens": 10, "dim": 2, "start": -3}},
    ]);
    let loads = json!([
        {"id": "a", "arrival_step": 0, "prompt": [[0, 20]], "output": [[1000, 6]],
         "kv": {"external_tokens": 12, "async": true, "load_steps": 2, "send_steps": 3}},
        {"id": "b", "arrival_step": 1, "prompt": [[70, 20]], "output": [[2000, 6]],
         "kv": {"external_tokens": 16, "fail_blocks": [1], "defer_lookups": 2}},
        {"id": "c", "arrival_step": 2, "prompt": [[90, 20]], "output": [[3000, 6]],
         "kv": {"external_tokens": 20, "async": true, "fail_request": true}},
    ]);
    let actions = json!([
        {"step": 2, "kind": "reset_prefix_cache", "reset_running_requests": true},
        {"step": 5, "kind": "abort", "id": "b", "when": "before_update"},
    ]);
    let case = |engine: Value, requests: &Value| {
        json!({"name": "fuzz", "note": "", "engine": engine, "requests": requests,
               "actions": actions, "log": {"full_every": 3}})
    };
    vec![
        case(engine.clone(), &chat),
        case(
            with(json!({"mode": "async", "policy": "priority", "max_loras": 1, "watermark": 0.1,
            "num_gpu_blocks": 16, "scheduler_reserve_full_isl": false})),
            &chat,
        ),
        case(
            with(json!({"num_speculative_tokens": 2, "spec_method": "eagle",
            "lookahead_block_hashes": true, "prefix_caching_hash_algo": "xxhash_cbor"})),
            &chat,
        ),
        case(
            with(json!({"mode": "async", "num_speculative_tokens": 3, "spec_method": "ngram",
            "long_prefill_token_threshold": 8, "long_prefill_token_threshold_adaptive": true,
            "prefix_caching_hash_algo": "sha256_cbor"})),
            &chat,
        ),
        case(
            with(json!({"hash_block_size": 2, "kv_cache_groups": [{"kind": "full", "block_size": 4},
            {"kind": "sliding_window", "block_size": 2, "sliding_window": 7},
            {"kind": "mamba", "block_size": 8, "cache_mode": "align"}]})),
            &chat,
        ),
        case(
            with(json!({"hash_block_size": 2, "mode": "async", "kv_cache_groups": [
            {"kind": "full", "block_size": 4}, {"kind": "mamba", "block_size": 4, "cache_mode": "align"}]})),
            &chat,
        ),
        case(
            with(json!({"kv_cache_groups": [{"kind": "chunked_local", "chunk_size": 8}],
            "max_num_scheduled_tokens": 10, "prefix_caching_hash_algo": "xxhash"})),
            &chat,
        ),
        case(with(json!({"dcp_world_size": 2, "python_hash_seed": "7"})), &loads),
        case(with(json!({"kv_connector": {"role": "kv_both", "load_failure_policy": "recompute"}})), &loads),
        case(
            with(json!({"mode": "async",
            "kv_connector": {"role": "kv_both", "load_failure_policy": "fail"}})),
            &loads,
        ),
    ]
}

fn number(rng: &mut ChaCha8Rng) -> Value {
    const EDGES: [u64; 14] = [
        0,
        1,
        2,
        3,
        7,
        8,
        100,
        1 << 16,
        (1 << 31) - 1,
        1 << 31,
        u32::MAX as u64 - 1,
        u32::MAX as u64,
        i64::MAX as u64,
        u64::MAX,
    ];
    match rng.random_range(0..10) {
        0..4 => rng.random_range(0..40_u64).into(),
        4..8 => (*EDGES.choose(rng).unwrap()).into(),
        8 => (-(rng.random_range(0..5_i64))).into(),
        _ => Number::from_f64(*[0.5, -1.0, 1e300, -0.0].choose(rng).unwrap()).unwrap().into(),
    }
}

fn any_value(rng: &mut ChaCha8Rng) -> Value {
    match rng.random_range(0..8) {
        0..3 => number(rng),
        3 => Value::Null,
        4 => rng.random::<bool>().into(),
        5 => (*["", "a", "b", "é", "async", "full", "mamba", "\u{1}"].choose(rng).unwrap()).into(),
        6 => Value::Array((0..rng.random_range(0..4)).map(|_| number(rng)).collect()),
        _ => Value::Object(Map::new()),
    }
}

/// Changes one place in the value.
fn mutate(value: &mut Value, rng: &mut ChaCha8Rng) {
    match value {
        Value::Object(fields) if !fields.is_empty() && rng.random_ratio(19, 20) => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let key = keys.choose(rng).unwrap();
            match rng.random_range(0..30) {
                0 => drop(fields.remove(key)),
                1 => {
                    let other = keys.choose(rng).unwrap();
                    let copy = fields[other].clone();
                    fields[key] = copy;
                }
                2 => drop(fields.insert("unknown".to_owned(), any_value(rng))),
                _ => mutate(&mut fields[key], rng),
            }
        }
        Value::Array(items) if !items.is_empty() && rng.random_ratio(19, 20) => {
            let at = rng.random_range(0..items.len());
            match rng.random_range(0..12) {
                0 => drop(items.remove(at)),
                1 => items.push(items[at].clone()),
                2 => items.swap(0, at),
                _ => mutate(&mut items[at], rng),
            }
        }
        Value::Number(_) if rng.random_ratio(9, 10) => *value = number(rng),
        Value::Bool(flag) => *flag = !*flag,
        _ => *value = any_value(rng),
    }
}

fn mutate_bytes(text: &str, rng: &mut ChaCha8Rng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..4) {
            0 => bytes[at] = rng.random_range(0..128),
            1 => bytes.truncate(at.max(1)),
            2 => drop(bytes.remove(at)),
            _ => bytes.insert(at, *b"0123456789-.[]{},:\"".choose(rng).unwrap()),
        }
        if bytes.is_empty() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether the case was accepted, and whether it was run to its end.
fn parse_and_run(text: &str) -> (bool, bool) {
    let Ok(case) = Case::parse(text) else { return (false, false) };
    let tokens = |request: &kvsim::conformance::CaseRequest| {
        u64::from(request.prompt.len())
            + u64::from(request.output.len().max(request.max_tokens.min(case.config.max_model_len)))
    };
    let total: u64 = case.requests.iter().map(tokens).sum();
    let is_small = total <= MAX_RUN_TOKENS && case.config.num_gpu_blocks <= MAX_RUN_BLOCKS;
    (true, is_small && run_case(&case).is_ok())
}

#[test]
fn no_case_makes_it_panic() {
    let setting = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = setting("KVSIM_FUZZ_SEED").unwrap_or(SEED);
    let time_limit = setting("KVSIM_FUZZ_SECONDS").map_or(TIME_LIMIT, Duration::from_secs);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let seeds = seeds();
    for case in &seeds {
        assert_eq!(parse_and_run(&case.to_string()), (true, true), "{case}");
    }
    let start = Instant::now();
    let (mut tried, mut accepted, mut run) = (0, 0, 0);
    while start.elapsed() < time_limit {
        let mut case = seeds.choose(&mut rng).unwrap().clone();
        for _ in 0..rng.random_range(1..4) {
            mutate(&mut case, &mut rng);
        }
        let mut text = case.to_string();
        if rng.random_ratio(1, 10) {
            text = mutate_bytes(&text, &mut rng);
        }
        let Ok((was_accepted, was_run)) = catch_unwind(AssertUnwindSafe(|| parse_and_run(&text))) else {
            panic!("try {tried} of seed {seed} panics: {text}");
        };
        tried += 1;
        accepted += u32::from(was_accepted);
        run += u32::from(was_run);
    }
    eprintln!("{tried} cases tried, {accepted} accepted, {run} run");
    assert!(run > 20, "hardly anything was run: {run} of {tried}");
}

#[test]
fn what_cannot_end_or_fit_is_an_error() {
    let with = |path: &str, value: Value| {
        let mut case = seeds()[0].clone();
        *case.pointer_mut(path).unwrap() = value;
        case.to_string()
    };
    let refused = |path, value| Case::parse(&with(path, value)).unwrap_err().to_string();
    assert!(refused("/engine/num_gpu_blocks", u32::MAX.into()).starts_with("engine.num_gpu_blocks"));
    assert!(refused("/requests/0/prompt/0/1", u32::MAX.into()).contains("tokens together"));
    assert!(refused("/requests/3/prompt_embeds/dim", u32::MAX.into()).contains("elements"));
    // 40 blocks of 4 tokens never hold a prompt of 200.
    let mut case: Value = serde_json::from_str(&with("/engine/max_model_len", 300.into())).unwrap();
    case["requests"][0]["prompt"][0][1] = 200.into();
    let error = run_case(&Case::parse(&case.to_string()).unwrap()).unwrap_err();
    let CaseError::Stuck { unfinished, .. } = error else { panic!("{error}") };
    assert_eq!(unfinished[0], "a");
    // A far arrival costs nothing.
    let parsed = Case::parse(&with("/requests/3/arrival_step", (1_u64 << 50).into())).unwrap();
    assert!(
        run_case(&parsed).unwrap().contains(&format!("{{\"step\":{},\"kind\":\"schedule\"", 1_u64 << 50))
    );
}
