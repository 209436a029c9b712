//! A recording that is worked out by hand, and recordings that tell all that the engine does.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use serde_json::{Value, json};

use super::*;
use crate::cost::{BlockHashing, ConstantCost, CostModel};
use crate::engine::EngineConfig;
use crate::engine::hash::{
    PrefixCachingHashAlgo, RequestBlockHasher, init_none_hash, resolve_none_hash_seed,
};
use crate::engine::scheduler::Scheduler;
use crate::report::RunReport;
use crate::report::tests::info;
use crate::simulation::RunEnding;
use crate::simulation::router::RoundRobin;
use crate::simulation::{Replica, ReplicaConfig, Simulation};
use crate::workload::trace::{Trace, TraceConfig, TraceFormat, TraceInput};

/// What `scenarios/explore.yaml` replays.
const CHATS: &str = include_str!("../../../traces/explore.jsonl");

fn config() -> EngineConfig {
    EngineConfig {
        async_scheduling: false,
        block_size: 4,
        kv_cache_groups: vec![crate::engine::kv_cache::KvCacheSpec::full(4)],
        num_gpu_blocks: 13,
        max_model_len: 48,
        max_num_batched_tokens: 24,
        max_num_seqs: 4,
        prefix_caching_hash_algo: PrefixCachingHashAlgo::Sha256Cbor,
        ..EngineConfig::default()
    }
}

/// The page of a run of these requests.
fn page(config: EngineConfig, rows: &str, steps: Range<u64>) -> String {
    let input = TraceInput::new(std::io::Cursor::new(rows.to_owned())).unwrap();
    let trace = TraceConfig { format: Some(TraceFormat::Kvsim), ..TraceConfig::new("chats.jsonl") };
    let workload = Trace::new(input, &trace, None, 1).unwrap();
    let algo = config.prefix_caching_hash_algo;
    let none_hash = init_none_hash(algo, &resolve_none_hash_seed(algo, None, &[0; 32]));
    let hasher = RequestBlockHasher::digests(algo, none_hash, config.block_size, 0);
    let cost = CostModel::Constant(ConstantCost { step_ns: 8_000_000, per_token_ns: 100_000 });
    let scheduler = Scheduler::new(config.clone(), Some(hasher), None).unwrap();
    let replica = Replica::new(ReplicaConfig {
        scheduler,
        cost,
        transfers: None,
        drafts: None,
        hashing: BlockHashing::FREE,
    });
    let mut simulation =
        Simulation::new(Box::new(workload), vec![replica], Box::new(RoundRobin::default()), Vec::new());
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("run");
    let mut report = RunReport::create(&target, info(&config)).unwrap();
    report.explore(ExploreOptions { steps, replica: 0 }, &mut simulation);
    simulation.run(&mut report).unwrap();
    report.finish(RunEnding::default()).unwrap();
    std::fs::read_to_string(target.join("explorer.html")).unwrap()
}

fn recording(config: EngineConfig, rows: &str, steps: Range<u64>) -> Value {
    let page = page(config, rows, steps);
    let (_, json) = page.split_once("id=\"explorer-data\">").unwrap();
    serde_json::from_str(json.split_once("</script>").unwrap().0).unwrap()
}

/// The first chat has 14 tokens: 3 full blocks and 2 tokens. The second shares 8 of its 12: it may check 2
/// hashes, hits both, and shares the blocks.
#[test]
fn the_first_steps_are_what_the_rules_say() {
    let data = recording(config(), CHATS, 0..400);
    let begin = &data["begin"];
    assert_eq!((&begin["free"], &begin["refs"]), (&json!([[1, 12]]), &json!([])));
    let frames = data["frames"].as_array().unwrap();
    let seen: Vec<Value> =
        frames[..5].iter().map(|frame| json!([frame["at"], frame["k"], frame["e"]])).collect();
    let expected = [
        json!([0, "add", [["H", 0, [0, 1, 2]]]]),
        json!([
            0,
            "schedule",
            [
                ["L", 0, 3, 0, []],
                ["A", 0],
                ["P", 1],
                ["P", 2],
                ["P", 3],
                ["P", 4],
                ["C", 0, 0, 0, 3],
                ["I", 1, 0, 0],
                ["I", 2, 1, 0],
                ["I", 3, 2, 0]
            ]
        ]),
        json!([5_000_000, "add", [["H", 1, [0, 1, 3]]]]),
        // A step takes 8 ms and 0.1 ms for each of its 14 tokens.
        json!([9_400_000, "update", []]),
        json!([
            9_400_000,
            "schedule",
            [
                ["L", 1, 2, 8, [1, 2]],
                ["A", 1],
                ["T", 1],
                ["T", 2],
                ["P", 5],
                ["C", 1, 0, 2, 3],
                ["I", 5, 3, 0]
            ]
        ]),
    ];
    assert_eq!(seen, expected);
    // The second request's row of step 1: new, 4 tokens after 8.
    assert_eq!(frames[4]["s"], json!([[0, 2, 1, 14], [1, 0, 4, 8]]));
    assert_eq!(frames[4]["t"], json!([[1, 0, 0, [1, 2, 5]]]));
    assert_eq!(frames[4]["x"], json!([7, 4, 4, [6, 7, 8, 9, 10, 11, 12]]));
    // The hash of tokens 200 to 203 after the shared 8, and its parent.
    assert_eq!(
        data["hashes"][3].as_array().unwrap()[1..],
        [json!(1), json!(8), json!([["200", 4]]), json!(null)]
    );
    assert_eq!(data["hashes"][0][1], json!(null));
}

/// Each of the seven rules can be seen in the scenario that is made for it.
#[test]
fn the_scenario_shows_hits_duplicates_evictions_and_preemptions() {
    let data = recording(config(), CHATS, 0..400);
    let events: Vec<&Value> =
        data["frames"].as_array().unwrap().iter().flat_map(|frame| frame["e"].as_array().unwrap()).collect();
    let count = |code: &str| events.iter().filter(|event| event[0] == code).count();
    assert!(count("E") > 0 && count("R") > 0 && count("f") > 0 && count("b") > 0);
    assert_eq!(count("X"), 2);
    // A hash on two blocks at a time.
    let frames = data["frames"].as_array().unwrap();
    assert!(frames.iter().any(|frame| frame["x"][2].as_u64() > frame["x"][1].as_u64()));
    // A preempted request hits its own blocks when it resumes.
    let resumed =
        frames.iter().filter_map(|frame| frame["s"].as_array()).flatten().find(|entry| entry[1] == 1);
    assert!(resumed.unwrap()[3].as_u64().unwrap() > 0);
}

/// Knows of the pool what the recording says.
struct Follower {
    free: VecDeque<u64>,
    pairs: Vec<(u64, u64)>,
    refs: BTreeMap<u64, u64>,
}

impl Follower {
    fn new(begin: &Value) -> Self {
        let list = |value: &Value| value.as_array().unwrap().clone();
        let number = |value: &Value| value.as_u64().unwrap();
        Self {
            free: list(&begin["free"])
                .iter()
                .flat_map(|run| number(&run[0])..number(&run[0]) + number(&run[1]))
                .collect(),
            pairs: list(&begin["hashes"]).iter().map(|pair| (number(&pair[1]), number(&pair[0]))).collect(),
            refs: list(&begin["refs"]).iter().map(|pair| (number(&pair[0]), number(&pair[1]))).collect(),
        }
    }

    fn follow(&mut self, event: &Value) {
        let block = event[1].as_u64().unwrap_or_default();
        match event[0].as_str().unwrap() {
            "P" => {
                assert_eq!(self.free.pop_front(), Some(block));
                assert_eq!(self.refs.insert(block, 1).unwrap_or(0), 0);
            }
            "-" => self.free.retain(|&other| other != block),
            "T" => *self.refs.entry(block).or_default() += 1,
            "r" => *self.refs.get_mut(&block).unwrap() -= 1,
            "f" => self.free.push_front(block),
            "b" => self.free.push_back(block),
            "I" => self.pairs.push((event[2].as_u64().unwrap(), block)),
            "E" => self.pairs.retain(|&pair| pair != (event[2].as_u64().unwrap(), block)),
            "0" => self.pairs.clear(),
            _ => {}
        }
    }

    fn check(&self, frame: &Value) {
        let mut hashes: Vec<u64> = self.pairs.iter().map(|pair| pair.0).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let head: Vec<u64> = self.free.iter().take(8).copied().collect();
        let found = json!([self.free.len(), hashes.len(), self.pairs.len(), head]);
        assert_eq!(found, frame["x"], "{frame}");
        // What nobody holds is free.
        assert!(self.refs.iter().all(|(block, count)| (*count == 0) == self.free.contains(block)));
    }
}

#[test]
fn who_follows_the_recording_knows_the_pool() {
    let many: String = std::iter::once("{\"kvsim_trace\": 1}\n".to_owned())
        .chain((0..60_u32).map(|i| {
            let (shared, own) = (4 + 4 * (i % 5), 3 + i * 7 % 12);
            let at = f64::from(i) * 0.013;
            format!(
                "{{\"at_s\": {at}, \"prompt\": [[0, {shared}], [{}, {own}]], \"output\": [[{}, {}]]}}\n",
                1_000 + 100 * (i % 7),
                100_000 + 100 * i,
                1 + i % 17
            )
        }))
        .collect();
    for rows in [CHATS, &many] {
        for async_scheduling in [false, true] {
            let config = EngineConfig { async_scheduling, ..config() };
            let data = recording(config.clone(), rows, 0..100_000);
            let mut follower = Follower::new(&data["begin"]);
            let frames = data["frames"].as_array().unwrap();
            for frame in frames {
                frame["e"].as_array().unwrap().iter().for_each(|event| follower.follow(event));
                follower.check(frame);
            }
            // A window in the middle begins with the state that it has then.
            let part = recording(config, rows, 7..20);
            let mut follower = Follower::new(&part["begin"]);
            let steps = part["frames"].as_array().unwrap();
            let of = |frame: &Value| json!([frame["at"], frame["k"], frame["n"], frame["x"]]);
            let from = frames.iter().position(|frame| of(frame) == of(&steps[0])).unwrap();
            for (frame, same) in steps.iter().zip(&frames[from..]) {
                frame["e"].as_array().unwrap().iter().for_each(|event| follower.follow(event));
                follower.check(frame);
                assert_eq!(of(frame), of(same));
            }
        }
    }
}

#[test]
fn following_changes_no_decision_and_what_is_said_is_no_markup() {
    let page_of = || page(config(), CHATS, 0..400);
    assert_eq!(page_of(), page_of());
    assert!(page(config(), CHATS, 1_000..1_001).contains("The run ends before its step 1,000."));
    let page = page_of();
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("http://") && !page.contains("https://"));
}
