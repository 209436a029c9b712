//! Every scenario runs, and the same scenario and seed give the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kvsim::report::RunFigures;
use kvsim::scenario::{Scenario, Source};
use kvsim::study::plan::{Overrides, Planner};

fn run(scenario: &Path, out: &Path, more: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_kvsim"))
        .args(["run", "--quiet", "--out"])
        .arg(out)
        .arg(scenario)
        .args(more)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", scenario.display());
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into(), fs::read(entry.path()).unwrap())).collect()
}

fn summary(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(folder.join("summary.json")).unwrap()).unwrap()
}

/// What a scenario says that it shows.
fn check_effect(name: &str, summary: &serde_json::Value, out: &Path) {
    let cache = &summary["prefix_cache"];
    let hits = cache["hits_tokens"].as_u64().unwrap();
    let zero_because = cache["zero_hits_because"].as_str().unwrap_or_default();
    match name {
        "identical_prompt" => assert_eq!((hits, cache["queries_tokens"].as_u64().unwrap()), (4_080, 8_192)),
        "prompt_logprobs" => assert!(hits == 0 && zero_because.starts_with("not read"), "{zero_because}"),
        "no_prefix_caching" => assert!(hits == 0 && zero_because.contains("is off"), "{zero_because}"),
        "logged_hit_rate" => {
            let logged = cache["moving_last_1000_requests"]["hit_rate"].as_f64().unwrap();
            assert!((logged - cache["hit_rate"].as_f64().unwrap()).abs() > 0.01);
        }
        "reset_under_load" => {
            assert_eq!(summary["resets"]["done"], 1);
            assert_eq!(summary["resets"]["refused"], 1);
            assert!(summary["resets"]["preempted_requests"].as_u64().unwrap() > 0);
        }
        "impatient_users" => {
            let aborted = summary["requests"]["aborted_before_first_token"].as_u64().unwrap();
            assert!(aborted > 0 && summary["requests"]["aborted"] == aborted);
            let rows = fs::read_to_string(out.join("requests.csv")).unwrap();
            assert_eq!(rows.lines().filter(|row| row.ends_with(",abort")).count() as u64, aborted);
            // Nobody waits for the first token much longer than users have patience.
            assert!(summary["latency"]["ttft"]["max_ms"].as_f64().unwrap() < 12_000.0);
        }
        "priority" => assert!(summary["requests"]["preemptions"].as_u64().unwrap() > 0),
        "speculative_decoding" => {
            assert!(summary["speculative_decoding"]["accepted_tokens"].as_u64().unwrap() > 0);
        }
        "kv_offload_tiers" => assert!(summary["external_cache"]["hits_tokens"].as_u64().unwrap() > 0),
        "shared_store" => {
            let store = &summary["external_cache"]["tiers"][0];
            assert_eq!(store["stores"], 1);
            let tokens = |name: &str| store[name].as_u64().unwrap();
            // Three of four prompts come to another replica than the one that stored their beginning.
            assert!(2 * tokens("hit_tokens_of_others") > tokens("hit_tokens"));
            let by_others = store["replicas"].as_array().unwrap().iter();
            let given: u64 = by_others.map(|of| of["hit_tokens_by_others"].as_u64().unwrap()).sum();
            assert_eq!(given, tokens("hit_tokens_of_others"));
            assert!(store["read"]["busy"].as_f64().unwrap() > 0.0);
        }
        "kv_events" => {
            let lines = fs::read_to_string(out.join("kv_events.jsonl")).unwrap().lines().count() as u64;
            assert!(lines > 0 && summary["kv_events"] == lines);
        }
        // 199 hits of 256 tokens; 190 of 512.
        "random" => assert_eq!(hits, 199 * 256),
        "prefix_repetition" => {
            assert_eq!((hits, cache["queries_tokens"].as_u64().unwrap()), (190 * 512, 200 * 640));
        }
        "shared_prefix" => {
            // 4 of 32 first questions compute their group's system prompt.
            let first = &cache["by_turn"][0];
            assert_eq!(first["hits_tokens"], 28 * 2048);
            assert_eq!(summary["requests"]["finished"], 32 * 3);
        }
        "agents" => {
            let tenants: Vec<_> = cache["by_tenant"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
            assert_eq!(tenants, ["agents", "sub-agents"]);
            assert!(cache["hit_rate"].as_f64().unwrap() > 0.9);
        }
        "mix" => {
            let tenants: Vec<_> = cache["by_tenant"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
            assert_eq!(tenants, ["chat/shop", "chat/support", "summaries"]);
            assert_eq!(cache["by_tenant"][2]["requests"], 80);
        }
        "replay" => {
            assert!(hits == 0 && zero_because.starts_with("nothing shared"), "{zero_because}");
            assert_eq!(summary["requests"]["finished"], 200);
            assert_eq!(summary["workload"]["trace_format"], "mooncake");
        }
        "routers" => {
            assert_eq!(summary["fleet"]["imbalance"]["requests"]["max_over_mean"], 1.0);
            assert!(cache["hit_rate"].as_f64().unwrap() < 0.7);
        }
        "router_mismatch" => {
            let index = &summary["fleet"]["prefix_index"];
            assert!(index["matched_blocks"] == 0 && index["events"] == index["foreign_events"]);
            let reason = index["no_match_because"].as_str().unwrap();
            assert!(
                reason.starts_with("the router hashes with sha256_cbor, the engines with sha256"),
                "{reason}"
            );
        }
        "pools" => {
            let replicas = summary["fleet"]["replicas"].as_array().unwrap();
            let pools: Vec<_> = replicas.iter().map(|replica| &replica["pool"]).collect();
            assert_eq!(pools, ["large", "small", "small"]);
            let busy = |at: usize| replicas[at]["gpu_busy"].as_f64().unwrap();
            assert!(busy(1) > 1.5 * busy(0));
        }
        "failures" => {
            let lifecycle = &summary["fleet"]["lifecycle"];
            assert_eq!((&lifecycle["failures"], &lifecycle["drains"]), (&1.into(), &1.into()));
            assert!(lifecycle["lost_requests"].as_u64().unwrap() > 0);
            assert_eq!(summary["requests"]["failed"], 0);
        }
        "disaggregated" => {
            // Each prompt of 6,000 tokens is read whole: 375 blocks.
            let reads = &summary["fleet"]["kv_reads"];
            let finished = summary["requests"]["finished"].as_u64().unwrap();
            assert_eq!(reads["blocks"], 375 * finished);
            // Each request passes a replica of either role.
            let by_role = |role: &str| {
                let replicas = summary["fleet"]["replicas"].as_array().unwrap().iter();
                let of_role = replicas.filter(|replica| replica["role"] == role);
                of_role.map(|replica| replica["finished_requests"].as_u64().unwrap()).sum::<u64>()
            };
            assert_eq!((by_role("prefill"), by_role("decode")), (finished, finished));
        }
        "data_parallel" => {
            let ranks = summary["fleet"]["replicas"].as_array().unwrap();
            let numbers: Vec<_> =
                ranks.iter().map(|rank| (&rank["replica"], &rank["data_parallel_rank"])).collect();
            let expected: Vec<serde_json::Value> = (0..4).map(Into::into).collect();
            assert!(numbers.iter().map(|numbers| numbers.1).eq(&expected));
            assert_eq!((&summary["num_gpus"], &summary["fleet"]["num_replicas"]), (&4.into(), &1.into()));
            let finished: u64 = ranks.iter().map(|rank| rank["finished_requests"].as_u64().unwrap()).sum();
            assert_eq!(summary["requests"]["finished"], finished);
        }
        "data_parallel_experts" => {
            let lockstep = &summary["fleet"]["lockstep"];
            assert!(lockstep["waves"].as_u64().unwrap() > 0);
            assert!(lockstep["padding_share"].as_f64().unwrap() > 0.0);
            assert!(lockstep["waiting_share"].as_f64().unwrap() > 0.0);
            assert_eq!(summary["requests"]["finished"], 120);
        }
        "disaggregated_failures" => {
            let fleet = &summary["fleet"];
            assert!(fleet["kv_reads"]["failed_reads"].as_u64().unwrap() > 0);
            assert_eq!(
                (&fleet["lifecycle"]["failures"], &summary["requests"]["failed"]),
                (&2.into(), &0.into())
            );
            // Two that prefill and one that decodes at first; those that decode become more.
            assert_eq!(fleet["lifecycle"]["most_ready_replicas"], 5);
        }
        "autoscaling" => {
            let lifecycle = &summary["fleet"]["lifecycle"];
            assert_eq!(lifecycle["most_ready_replicas"], 4);
            let paid_s = lifecycle["paid_replica_s"].as_f64().unwrap();
            let duration_s = summary["duration_s"].as_f64().unwrap();
            assert!(paid_s > duration_s && paid_s < 3.0 * duration_s, "{paid_s} of {duration_s}");
        }
        "batch" => assert_eq!(summary["requests"]["finished"], 160),
        "context_parallel" => assert_eq!(hits % 32, 0),
        _ => {}
    }
}

#[test]
fn every_scenario_runs() {
    let dir = tempfile::tempdir().unwrap();
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut count = 0;
    for entry in fs::read_dir(scenarios).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let out = dir.path().join(path.file_stem().unwrap());
        // The longest one takes a minute with the checks of a debug build on.
        let is_long = path.file_stem().is_some_and(|stem| stem == "chat");
        let shorter = ["--set", "workload.chat.duration_s=60"];
        run(&path, &out, if is_long { &shorter } else { &[] });
        let summary = summary(&out);
        assert!(summary["requests"]["finished"].as_u64().unwrap() > 0, "{}", path.display());
        check_effect(path.file_stem().unwrap().to_str().unwrap(), &summary, &out);
        count += 1;
    }
    assert!(count >= 2);
}

/// Running them takes minutes; what is typed in them is checked here.
#[test]
fn every_plan_can_start() {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/plans");
    for entry in fs::read_dir(plans).unwrap() {
        let path = entry.unwrap().path();
        let planner = Planner::load(&path, &Overrides::default());
        let planner = planner.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(planner.num_candidates() > 1, "{}", path.display());
    }
}

/// Hit and queried tokens of a scenario with changes.
fn hits_and_queries(scenario: &str, overrides: &[&str]) -> (u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let more: Vec<&str> = overrides.iter().flat_map(|text| ["--set", text]).collect();
    run(&Path::new("scenarios").join(scenario), &out, &more);
    let cache = &summary(&out)["prefix_cache"];
    (cache["hits_tokens"].as_u64().unwrap(), cache["queries_tokens"].as_u64().unwrap())
}

/// The turns of a conversation meet the caches of different ranks, unless a router names the rank.
#[test]
fn data_parallel_ranks_split_the_prefix_cache() {
    let hit_rate = |overrides: &[&str]| {
        let (hits, queries) = hits_and_queries("data_parallel.yaml", overrides);
        hits as f64 / queries as f64
    };
    let balanced = hit_rate(&[]);
    let pinned = hit_rate(&["cluster={router: {endpoints: ranks, policy: session_affinity}}"]);
    let replicas = hit_rate(&[
        "engine.data_parallel_size=1",
        "cluster={replicas: 4, router: {policy: session_affinity}}",
    ]);
    assert!(balanced < pinned - 0.15, "{balanced} against {pinned}");
    // Ranks of a dense model are replicas by another name.
    assert_eq!(pinned, replicas);
    // A router that knows what a replica holds does not know which of its ranks does.
    let replicas_of_two = [
        "engine.data_parallel_size=2",
        "cluster={replicas: 2, router: {policy: kv_aware, balance_abs_threshold: 1000}}",
    ];
    let by_replica = hit_rate(&replicas_of_two);
    let by_rank = hit_rate(&[&replicas_of_two[..], &["cluster.router.endpoints=ranks"]].concat());
    assert!(by_replica < by_rank - 0.05, "{by_replica} against {by_rank}");
}

#[test]
fn tiers_hold_the_blocks_of_every_group_and_rank() {
    let external_hits = |overrides: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let shorter = [
            "--set",
            "workload.chat.duration_s=10",
            "--set",
            "workload.chat.max_context_tokens=8192",
            "--set",
            "engine.max_model_len=8192",
        ];
        let more: Vec<&str> =
            shorter.into_iter().chain(overrides.iter().flat_map(|text| ["--set", text])).collect();
        run(Path::new("scenarios/kv_offload_tiers.yaml"), &out, &more);
        summary(&out)["external_cache"]["hits_tokens"].as_u64().unwrap()
    };
    let groups = "engine.kv_cache_groups=[{kind: full}, {kind: sliding_window, sliding_window: 512}]";
    let hits = external_hits(&[groups, "engine.num_gpu_blocks_override=1100"]);
    assert!(hits > 0 && hits % 16 == 0, "{hits}");
    let tp = "engine.tensor_parallel_size=16";
    let hits =
        external_hits(&[tp, "engine.decode_context_parallel_size=2", "engine.num_gpu_blocks_override=300"]);
    assert!(hits > 0 && hits % 32 == 0, "{hits}");
}

#[test]
fn a_store_is_shared_by_those_whose_hashes_agree() {
    let external = |overrides: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let more: Vec<&str> = overrides.iter().flat_map(|text| ["--set", text]).collect();
        run(Path::new("scenarios/shared_store.yaml"), &out, &more);
        summary(&out)["external_cache"].clone()
    };
    let of_others = |external: &serde_json::Value| external["tiers"][0]["hit_tokens_of_others"].as_u64();
    let xxhash = "engine.prefix_caching_hash_algo=xxhash";
    let drawn = external(&[xxhash]);
    assert_eq!(of_others(&drawn), Some(0));
    let reason = drawn["not_shared_because"].as_str().unwrap();
    assert!(reason.starts_with("with xxhash each process draws a seed of its own"), "{reason}");
    let seeded = external(&[xxhash, "engine.python_hash_seed='0'"]);
    assert!(of_others(&seeded) > Some(0) && seeded["not_shared_because"].is_null());
    // Two machines, whose halves of the replicas share the memory of each.
    let node = "engine.kv_transfer_config.tiers.0.shared=node";
    let nodes = external(&[node, "cluster.replicas_per_node=2"]);
    let stores: Vec<_> =
        nodes["tiers"][0]["replicas"].as_array().unwrap().iter().map(|of| of["store"].clone()).collect();
    assert_eq!(stores, [0, 0, 1, 1]);
    // Kinds of replicas that hash differently.
    let kinds = external(&["cluster={pools: [{name: a, replicas: 2}, {name: b, replicas: 2, engine: \
         {prefix_caching_hash_algo: sha256_cbor}}], router: {policy: round_robin}}"]);
    let reason = kinds["not_shared_because"].as_str().unwrap();
    assert!(reason.starts_with("pools `a` and `b`: they hash with different algorithms"), "{reason}");
    assert!(of_others(&kinds) > Some(0), "those of one kind share");
}

#[test]
fn popular_images_are_hit_and_those_of_one_session_are_not() {
    // One turn and no session shares a whole block of text: hits are images alone.
    let hits = |pool: &str| {
        let images = format!("workload.chat.tenants.0.images.pool={pool}");
        let sizes = "workload.chat.tenants.0.images.tokens={fixed: 160}";
        let overrides = ["workload.chat.tenants.0.system_prompt_tokens=0", "workload.chat.turns={fixed: 1}"];
        hits_and_queries("images.yaml", &[&images, sizes, overrides[0], overrides[1]])
    };
    assert_eq!(hits("null").0, 0);
    let (one, _) = hits("{size: 1}");
    // The image stands first, so each but the first one hits its ten blocks.
    assert!(one > 0 && one % 160 == 0, "{one}");
    let (many, _) = hits("{size: 20}");
    let (popular, _) = hits("{size: 20, zipf_exponent: 1.5}");
    assert!(0 < many && many < popular && popular < one, "{many} {popular} {one}");
}

#[test]
fn a_turn_of_embeddings_hits_the_prompt_before_it_and_not_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    run(Path::new("scenarios/prompt_embeds.yaml"), &out, &[]);
    let mut before: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut turns = BTreeMap::new();
    for row in csv::Reader::from_path(out.join("requests.csv")).unwrap().deserialize() {
        let row: BTreeMap<String, String> = row.unwrap();
        let number = |name: &str| row[name].parse::<u32>().unwrap();
        let (prompt, answer) = (number("prompt_tokens"), number("output_tokens"));
        if let Some((prompt, answer)) = before.insert(row["session"].clone(), (prompt, answer)) {
            // The last token of an answer is never computed.
            let known = if row["tenant"] == "text" { prompt + answer - 1 } else { prompt };
            assert_eq!(number("local_cached_tokens"), known / 16 * 16, "{row:?}");
            *turns.entry(row["tenant"].clone()).or_insert(0) += 1;
        }
    }
    assert!(turns.len() == 2 && turns.values().all(|&turns| turns > 20), "{turns:?}");
}

#[test]
fn the_same_scenario_and_seed_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    let scenario = Path::new("scenarios/chat.yaml");
    let short = ["--set", "workload.chat.duration_s=30"];
    run(scenario, &out("a"), &short);
    run(scenario, &out("b"), &short);
    run(scenario, &out("c"), &[&short[..], &["--seed", "2"]].concat());
    assert!(files(&out("a")) == files(&out("b")));
    assert!(files(&out("a")) != files(&out("c")));
    let mix = Path::new("scenarios/mix.yaml");
    run(mix, &out("d"), &[]);
    run(mix, &out("e"), &[]);
    assert!(files(&out("d")) == files(&out("e")));
}

#[test]
fn a_router_that_knows_the_caches_finds_more_in_them() {
    let hit_rate = |policy: &str| {
        let (hits, queries) = hits_and_queries("routers.yaml", &[&format!("cluster.router.policy={policy}")]);
        hits as f64 / queries as f64
    };
    let (round_robin, kv_aware) = (hit_rate("round_robin"), hit_rate("kv_aware"));
    // 24 of 960 prompts are the first of their group: no policy finds more than 4,000 of 4,200 tokens in
    // the others.
    assert!(round_robin < 0.7 && kv_aware > 0.9 && kv_aware <= 936.0 / 960.0 * 4_000.0 / 4_200.0);
    assert!(hit_rate("prefix_aware") > 0.9);
}

/// Sweeps follow their runs without writing reports.
#[test]
fn figures_without_a_report_are_those_of_the_report() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let out = tempfile::tempdir().unwrap();
    for name in ["kv_events", "speculative_decoding", "reset_under_load", "failures", "disaggregated"] {
        let path = root.join(name).with_extension("yaml");
        let report = out.path().join(name);
        run(&path, &report, &[]);
        let text = fs::read_to_string(&path).unwrap();
        let scenario = Scenario::load(Source {
            path,
            text,
            overrides: Vec::new(),
            seed: None,
            trace: None,
            skip_bad_rows: false,
        })
        .unwrap();
        let mut simulation = scenario.build().unwrap();
        let mut figures = RunFigures::new(scenario.run_info(&simulation, None));
        simulation.run(&mut figures).unwrap();
        let figures = figures.finish(simulation.ending());
        assert_eq!(serde_json::to_value(figures).unwrap(), summary(&report), "{name}");
    }
}
