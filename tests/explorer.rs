//! The block explorer: as the real vLLM decided, and as a reader sees it in headless Chromium. Where no
//! Chromium is installed the test says so.

mod chromium;

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use chromium::Chromium;
use flate2::read::GzDecoder;
use kvsim::conformance::Case;
use kvsim::cost::{BlockHashing, ConstantCost, CostModel};
use kvsim::engine::hash::{RequestBlockHasher, init_none_hash, resolve_none_hash_seed};
use kvsim::engine::kv_cache::KvCacheManager;
use kvsim::engine::scheduler::Scheduler;
use kvsim::prompt::PromptExtras;
use kvsim::report::{ExploreOptions, RunInfo, RunReport};
use kvsim::simulation::router::RoundRobin;
use kvsim::simulation::{Replica, ReplicaConfig, Simulation};
use kvsim::units::SimTime;
use kvsim::workload::{Arrival, RequestSpec, Workload, WorkloadError};
use serde_json::{Value, json};

fn recording(page: &Path) -> Value {
    let page = fs::read_to_string(page).unwrap();
    let (_, json) = page.split_once("id=\"explorer-data\">").unwrap();
    serde_json::from_str(json.split_once("</script>").unwrap().0).unwrap()
}

struct Listed(VecDeque<Arrival>);

impl Workload for Listed {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        Ok(self.0.front().map(|arrival| arrival.at))
    }
    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        Ok(self.0.pop_front())
    }
    fn finished(&mut self, _index: u64, _at: SimTime) {}
    fn tenants(&self) -> &[String] {
        &[]
    }
}

/// A case recorded from vLLM 0.33.0 in which all requests come at once and one is preempted: after each
/// step the recording has vLLM's free queue, hashes, cached blocks and queues.
#[test]
fn the_recording_is_what_vllm_decided() {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name);
        let mut text = String::new();
        GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        text
    };
    let case = Case::parse(&read("L_skip_and_preempt.case.json.gz")).unwrap();
    let config = case.config.clone();
    let arrivals = case.requests.iter().map(|request| Arrival {
        at: SimTime::ZERO,
        request: RequestSpec {
            index: request.rank,
            prompt: request.prompt.clone(),
            output: request.output.clone(),
            extras: PromptExtras::default(),
            priority: 0,
            skip_reading_prefix_cache: request.skip_reading_prefix_cache,
            patience: None,
            tenant: 0,
            session: None,
            turn: 0,
            trace_line: None,
        },
    });
    let algo = config.prefix_caching_hash_algo;
    let seed = resolve_none_hash_seed(algo, case.python_hash_seed.as_deref(), &[0; 32]);
    let hasher = RequestBlockHasher::digests(algo, init_none_hash(algo, &seed), config.block_size, 0);
    let scheduler = Scheduler::new(config.clone(), Some(hasher), None).unwrap();
    let cost = CostModel::Constant(ConstantCost { step_ns: 1_000, per_token_ns: 0 });
    let replica = Replica::new(ReplicaConfig {
        scheduler,
        cost,
        transfers: None,
        puller: None,
        drafts: None,
        hashing: BlockHashing::FREE,
    });
    let workload = Box::new(Listed(arrivals.collect()));
    let mut simulation =
        Simulation::new(workload, vec![replica], Box::new(RoundRobin::default()), Vec::new());
    let info = RunInfo {
        name: case.name.clone(),
        seed: 1,
        scenario: "{}".to_owned(),
        trace: None,
        model: String::new(),
        gpu: String::new(),
        tensor_parallel_size: 1,
        gpus_per_replica: 1,
        num_gpu_blocks: config.num_gpu_blocks,
        block_size_tokens: config.block_size,
        enable_prefix_caching: true,
        num_kv_cache_groups: 1,
        shortest_hit: KvCacheManager::new(&config).shortest_hit(),
        kv_events: false,
        blocks: true,
        tenants: Vec::new(),
        not_shared_because: None,
        caveats: Vec::new(),
        goodput: None,
        fleet: None,
    };
    let dir = tempfile::tempdir().unwrap();
    let mut report = RunReport::create(&dir.path().join("run"), info).unwrap();
    report.explore(ExploreOptions { steps: 0..1_000, replica: 0 }, &mut simulation);
    simulation.run(&mut report).unwrap();
    report.finish(simulation.ending()).unwrap();
    let data = recording(&dir.path().join("run/explorer.html"));

    let ids = |names: &Value| -> Vec<u64> {
        let rank = |name: &Value| case.names.iter().position(|other| other == name.as_str().unwrap());
        names.as_array().unwrap().iter().map(|name| rank(name).unwrap() as u64).collect()
    };
    let log = read("L_skip_and_preempt.expected.jsonl.gz");
    let vllm: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| match line["kind"].as_str() {
            Some("schedule") => line["total_tokens"] != 0,
            Some("update") => line["outputs"] != json!([]) || line["finished"] != json!([]),
            _ => false,
        })
        .map(|line| {
            let scheduled: Vec<Value> = line["scheduled"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|entry| {
                    let kind = ["new", "resumed", "running"].iter().position(|kind| entry["kind"] == *kind);
                    let id = ids(&json!([entry["id"]]))[0];
                    json!([id, kind.unwrap(), entry["num_tokens"], entry["num_computed"]])
                })
                .collect();
            json!({
                "kind": line["kind"], "scheduled": scheduled,
                "x": [line["free"], line["hashes"], line["cached"], line["free_head"]],
                "queues": [ids(&line["running"]), ids(&line["waiting"])],
            })
        })
        .collect();
    let mut queues = json!([[], []]);
    let mut ours = Vec::new();
    for frame in data["frames"].as_array().unwrap() {
        if frame["q"].is_array() {
            queues = frame["q"].clone();
        }
        let is_told = match frame["k"].as_str() {
            Some("schedule") => frame["s"] != json!([]),
            Some("update") => frame["o"] != json!([]),
            _ => false,
        };
        if is_told {
            let scheduled = frame["s"].as_array().cloned().unwrap_or_default();
            ours.push(json!({
                "kind": frame["k"], "scheduled": scheduled, "x": frame["x"], "queues": queues.clone(),
            }));
        }
    }
    assert!(ours.len() > 20 && ours.iter().any(|line| line["scheduled"].to_string().contains(",1,")));
    for (at, (ours, vllm)) in ours.iter().zip(&vllm).enumerate() {
        assert_eq!(ours, vllm, "line {at}");
    }
    assert_eq!(ours.len(), vllm.len());
}

fn kvsim(arguments: &[&str], out: &Path) {
    let output = Command::new(env!("CARGO_BIN_EXE_kvsim"))
        .args(["run", "--quiet", "--out"])
        .arg(out)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Steps through the page, and writes what is wrong into the body.
const LOOK: &str = r##"<script>
{
  const wrong = [], {replay, show, check} = blockExplorer, root = document.getElementById("explorer-root");
  const last = replay.beats.length - 1, is = (what, found, expected) => {
    if (JSON.stringify(found) !== JSON.stringify(expected)) wrong.push(`${what}: ${JSON.stringify(found)} for ${JSON.stringify(expected)}`);
  };
  const press = (key, shiftKey = false) => document.dispatchEvent(new KeyboardEvent("keydown", {key, shiftKey, bubbles: true}));
  const at = () => Number(root.dataset.at), chips = selector => [...root.querySelectorAll(selector)].map(chip => Number(chip.dataset.block));
  wrong.push(...check());
  for (const i of [...Array(last + 1).keys()].concat([...Array(last + 1).keys()].reverse())) {
    show(i);
    const {state} = replay;
    is(`queue at ${i}`, chips("#queue [data-block]"), state.queue);
    is(`tiles in use at ${i}`, chips(".tile.held").length, Object.values(state.refs).filter(count => count > 0).length);
    for (const id of state.running) is(`table of ${id} at ${i}`, chips(`.request[data-request="${id}"] .chip[data-block]`), state.requests[id].tables[0]);
    if (!root.querySelector(".story .title").textContent) wrong.push(`nothing is told at ${i}`);
    if (root.textContent.includes("undefined") || root.textContent.includes("NaN")) wrong.push(`undefined at ${i}`);
  }
  press("Home"); is("Home", at(), 0);
  press("ArrowRight"); is("right", at(), 1);
  press("ArrowLeft"); is("left", at(), 0);
  press("ArrowRight", true); const call = at(); is("a whole call", replay.beats[call].last, true);
  press("End"); is("End", at(), last);
  document.getElementById("back").click(); is("back", at(), last - 1);
  const slider = document.getElementById("position"); slider.value = 5; slider.dispatchEvent(new Event("input")); is("slider", at(), 5);
  for (let rule = 1; rule <= 7; rule++) {
    const button = root.querySelector(`[data-rule="${rule}"]`);
    if (button.disabled) wrong.push(`rule ${rule} is never seen`);
    button.click();
    is(`rule ${rule}`, root.querySelector(`.rule.now`)?.dataset.rule, String(rule));
  }
  show(30);
  root.querySelector(".tile[data-block='1']").click();
  is("chosen", [...new Set(chips(".chosen[data-block]"))], [1]);
  if (!root.querySelector(".node.chosen") || !root.querySelector(".request.chosen")) wrong.push("a block's hash and holders are not shown");
  press("Escape"); is("none chosen", root.querySelectorAll(".chosen").length, 0);
  document.getElementById("play").click();
  if (!document.getElementById("play").textContent.includes("Pause")) wrong.push("it does not play");
  document.getElementById("play").click();
  document.body.replaceChildren("LOOKED " + (wrong.slice(0, 5).join("; ") || `${last} events and all is well`) + " END");
}
</script></body>"##;

#[test]
fn the_page_plays_what_the_engine_did() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, explored) = (dir.path().join("plain"), dir.path().join("explored"));
    kvsim(&["scenarios/explore.yaml"], &plain);
    kvsim(&["scenarios/explore.yaml", "--explore", "--trace-events"], &explored);
    // To follow the engine changes nothing. The page names its files.
    for entry in fs::read_dir(&plain).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(
            name == "report.html"
                || fs::read(plain.join(&name)).unwrap() == fs::read(explored.join(&name)).unwrap(),
            "{name:?}"
        );
    }
    let page = fs::read_to_string(explored.join("explorer.html")).unwrap();
    assert!(!page.contains("http://") && !page.contains("https://"));
    // A prompt of 4,096 tokens in the cache of a whole GPU.
    let large = dir.path().join("large");
    kvsim(&["scenarios/identical_prompt.yaml", "--explore"], &large);
    assert!(fs::metadata(large.join("explorer.html")).unwrap().len() < 1_000_000);

    let Some(chromium) = Chromium::find() else { return };
    let look = dir.path().join("look.html");
    fs::write(&look, page.replacen("</body>", LOOK, 1)).unwrap();
    let found = chromium.looked(&look, &[]);
    assert!(found.as_ref().is_some_and(|found| found.ends_with("and all is well")), "{found:?}");
    let dom = chromium.open(&large.join("explorer.html"), &["--dump-dom"]);
    assert!(dom.contains("more that nothing happens to"), "blocks without a part are not counted");
}
