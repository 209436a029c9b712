//! Traces of runs that are small enough to be worked out by hand, and the rules of the format.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::*;
use crate::engine::EngineConfig;
use crate::report::tests::{SHARING, config, info, simulation, simulation_of, simulation_with};
use crate::report::{FleetInfo, ReplicaInfo, RunInfo, RunReport};
use crate::simulation::RunEnding;
use crate::simulation::{Action, ActionKind, LifecycleConfig};

/// Runs with a trace of events and returns its text.
fn trace(config: EngineConfig, rows: &str, window: Range<SimTime>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut report = RunReport::create(&dir.path().join("run"), info(&config)).unwrap();
    report.trace_events(&TraceEventsOptions { path: None, window }, &[]).unwrap();
    simulation(config, rows).run(&mut report).unwrap();
    report.finish(RunEnding::default()).unwrap();
    read(&dir.path().join("run").join(TRACE_EVENTS))
}

fn read(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn whole() -> Range<SimTime> {
    SimTime::ZERO..SimTime::MAX
}

/// Thousandths of a microsecond.
fn ns(event: &Value, key: &str) -> u64 {
    let text = event[key].to_string();
    let (us, rest) = text.split_once('.').unwrap_or((&text, "0"));
    us.parse::<u64>().unwrap() * 1_000 + format!("{rest:0<3}").parse::<u64>().unwrap()
}

/// Reads the events back and holds them against the format's rules. Returns them without metadata.
fn check(text: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let mut last = 0;
    let mut track_ends: HashMap<(u64, u64), u64> = HashMap::new();
    let mut open: HashMap<String, Vec<String>> = HashMap::new();
    let id_of = |event: &Value| format!("{} {}", event["pid"], event["id2"]["local"]);
    let mut flows: HashMap<u64, u64> = HashMap::new();
    let mut timed = Vec::new();
    for event in events {
        let phase = event["ph"].as_str().unwrap();
        let name = event["name"].as_str().unwrap().to_owned();
        let pid = event["pid"].as_u64().unwrap();
        if phase == "M" {
            assert!(timed.is_empty(), "names come first");
            continue;
        }
        let at = ns(event, "ts");
        assert!(at >= last, "times go back: {event}");
        last = at;
        match phase {
            "X" => {
                let end = track_ends.entry((pid, event["tid"].as_u64().unwrap())).or_default();
                assert!(at >= *end, "slices overlap: {event}");
                *end = at + ns(event, "dur");
            }
            "b" => open.entry(id_of(event)).or_default().push(name),
            "n" => assert!(!open[&id_of(event)].is_empty(), "nothing is open: {event}"),
            "e" => {
                assert_eq!(open.get_mut(&id_of(event)).unwrap().pop(), Some(name), "{event}");
            }
            "s" => assert_eq!(flows.insert(event["id"].as_u64().unwrap(), at), None, "{event}"),
            "f" => assert!(flows.remove(&event["id"].as_u64().unwrap()).unwrap() <= at, "{event}"),
            "C" => assert!(event["args"]["value"].is_u64()),
            "i" => assert!(["t", "p"].contains(&event["s"].as_str().unwrap())),
            other => panic!("no such phase: {other}"),
        }
        timed.push(event.clone());
    }
    assert!(flows.is_empty(), "arrows without an end: {flows:?}");
    assert!(open.values().all(Vec::is_empty), "never closed: {open:?}");
    timed
}

/// As [`SHARING`]: a step takes 1 ms and 1 us per token. The first request computes 600 tokens and two
/// more, one a step; the second arrives at 10 ms, hits 512 and computes 88.
#[test]
fn times_and_figures_are_what_can_be_worked_out_by_hand() {
    let events = check(&trace(config(), SHARING, whole()));
    let seen: Vec<String> = events
        .iter()
        .map(|event| {
            let part = |key: &str| event.get(key).map(|value| format!(" {key}={value}")).unwrap_or_default();
            format!(
                "{} {} {}{}{}{}",
                event["ts"],
                event["ph"].as_str().unwrap(),
                event["name"].as_str().unwrap(),
                part("dur"),
                event.get("id2").map_or(part("id"), |id| format!(" id={}", id["local"].as_str().unwrap())),
                event
                    .get("args")
                    .filter(|args| **args != json!({}))
                    .map(|args| format!(" {args}"))
                    .unwrap_or_default(),
            )
        })
        .collect();
    let expected = r#"
0 b request id=0x0 {"request":0,"prompt_tokens":600}
0 b queued id=0x0
0 e queued id=0x0
0 b prefill id=0x0
0 X schedule dur=0 {"step":0,"tokens":600,"requests":1,"preempted":0}
0 s step id=0
0 X execute prefill dur=1600 {"step":0,"tokens":600,"requests":1,"prefill_tokens":600,"decode_tokens":0,"gpu_ns":1600000}
0 f step id=0
1600 n first token id=0x0
1600 e prefill id=0x0
1600 b decode id=0x0
1600 C running {"value":1}
1600 C waiting {"value":0}
1600 C KV blocks in use {"value":38}
1600 C prefix cache queries {"value":600}
1600 C prefix cache hits {"value":0}
1600 X schedule dur=0 {"step":1,"tokens":1,"requests":1,"preempted":0}
1600 s step id=1
1600 X execute decode dur=1001 {"step":1,"tokens":1,"requests":1,"prefill_tokens":0,"decode_tokens":1,"gpu_ns":1001000}
1600 f step id=1
2601 X schedule dur=0 {"step":2,"tokens":1,"requests":1,"preempted":0}
2601 s step id=2
2601 X execute decode dur=1001 {"step":2,"tokens":1,"requests":1,"prefill_tokens":0,"decode_tokens":1,"gpu_ns":1001000}
2601 f step id=2
3602 C running {"value":0}
3602 C KV blocks in use {"value":0}
3602 e decode id=0x0
3602 e request id=0x0 {"finished":"length","output_tokens":3,"local_cached_tokens":0,"external_cached_tokens":0,"preemptions":0,"turn":0}
10000 b request id=0x1 {"request":1,"prompt_tokens":600}
10000 b queued id=0x1
10000 e queued id=0x1
10000 b prefill id=0x1
10000 X schedule dur=0 {"step":4,"tokens":88,"requests":1,"preempted":0}
10000 s step id=4
10000 X execute prefill dur=1088 {"step":4,"tokens":88,"requests":1,"prefill_tokens":88,"decode_tokens":0,"gpu_ns":1088000}
10000 f step id=4
11088 n first token id=0x1
11088 C prefix cache queries {"value":1200}
11088 C prefix cache hits {"value":512}
11088 e prefill id=0x1
11088 e request id=0x1 {"finished":"length","output_tokens":1,"local_cached_tokens":512,"external_cached_tokens":0,"preemptions":0,"turn":0}
"#;
    assert_eq!(seen, expected.trim().lines().collect::<Vec<_>>());
}

/// Five long answers in a pool for three: requests are preempted and resume.
const CROWD: &str = r#"{"timestamp": 0, "input_length": 500, "output_length": 90, "hash_ids": [1]}
{"timestamp": 0, "input_length": 500, "output_length": 90, "hash_ids": [2]}
{"timestamp": 1, "input_length": 500, "output_length": 90, "hash_ids": [3]}
{"timestamp": 2, "input_length": 700, "output_length": 90, "hash_ids": [1, 4]}
{"timestamp": 30, "input_length": 500, "output_length": 90, "hash_ids": [5]}
"#;

fn names<'a>(events: &'a [Value], phase: &str, name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == phase && event["name"] == name).collect()
}

#[test]
fn preemptions_are_told_with_the_phases_that_they_end() {
    for async_scheduling in [false, true] {
        let config = EngineConfig { async_scheduling, ..config() };
        let events = check(&trace(config, CROWD, whole()));
        let preempted = names(&events, "i", "preempt");
        assert!(!preempted.is_empty());
        for event in &preempted {
            let id = &event["args"]["request"];
            let local = format!("0x{:x}", id.as_u64().unwrap());
            let begins = names(&events, "b", "preempted");
            assert!(begins.iter().any(|begin| begin["id2"]["local"] == *local && begin["ts"] == event["ts"]));
        }
        assert_eq!(names(&events, "b", "request").len(), 5);
        assert_eq!(names(&events, "n", "first token").len(), 5);
        let told: u64 = names(&events, "e", "request")
            .iter()
            .map(|end| end["args"]["preemptions"].as_u64().unwrap())
            .sum();
        assert_eq!(told, preempted.len() as u64);
        // Every computed token is in a slice of the GPU: prompts and answers less hits and the last
        // token of each, and what was computed again.
        let tokens = |name: &str| -> u64 {
            let tokens = |event: &&Value| event["args"]["tokens"].as_u64().unwrap();
            names(&events, "X", name).iter().map(tokens).sum()
        };
        let on_gpu =
            tokens("execute prefill") + tokens("execute decode") + tokens("execute prefill and decode");
        assert_eq!(on_gpu, tokens("schedule"));
    }
}

#[test]
fn a_window_holds_what_overlaps_it() {
    let all = check(&trace(config(), CROWD, whole()));
    let window = SimTime(60_500_000)..SimTime(80_000_000);
    let some = check(&trace(config(), CROWD, window.clone()));
    let slices = |events: &[Value]| -> Vec<Value> {
        events.iter().filter(|event| event["ph"] == "X").cloned().collect()
    };
    // A step's planning is told with its execution.
    let overlaps = |event: &&Value| {
        let is_over = ns(event, "ts") + ns(event, "dur") < window.start.as_ns();
        event["name"] != "schedule" && !is_over && ns(event, "ts") < window.end.as_ns()
    };
    let all = slices(&all);
    let steps: Vec<&Value> = all.iter().filter(overlaps).map(|event| &event["args"]["step"]).collect();
    let expected: Vec<Value> =
        all.iter().filter(|event| steps.contains(&&event["args"]["step"])).cloned().collect();
    assert!(expected.len() > 10 && expected.len() < all.len());
    assert!(slices(&some) == expected);
    // Who is in the engine then, from its arrival on.
    assert!(names(&some, "b", "request").iter().any(|begin| ns(begin, "ts") < window.start.as_ns()));
}

#[test]
fn each_replica_is_a_process() {
    let dir = tempfile::tempdir().unwrap();
    let replica = |replica| ReplicaInfo { replica, num_gpu_blocks: 101, ..ReplicaInfo::default() };
    let fleet = FleetInfo {
        router: "round_robin".to_owned(),
        replicas: (0..2).map(replica).collect(),
        ..FleetInfo::default()
    };
    let info = RunInfo { fleet: Some(fleet), ..info(&config()) };
    let mut report = RunReport::create(&dir.path().join("run"), info).unwrap();
    report.trace_events(&TraceEventsOptions { path: None, window: whole() }, &[]).unwrap();
    simulation_of(2, config(), CROWD).run(&mut report).unwrap();
    report.finish(RunEnding::default()).unwrap();
    let text = read(&dir.path().join("run").join(TRACE_EVENTS));
    assert!(text.contains("\"replica 0\"") && text.contains("\"replica 1\""));
    let events = check(&text);
    // One after the other.
    let of = |pid: u64| names(&events, "b", "request").iter().filter(|begin| begin["pid"] == pid).count();
    assert_eq!((of(1), of(2)), (3, 2));
    assert!(names(&events, "X", "schedule").iter().any(|slice| slice["pid"] == 2));
}

/// The first replica fails at 5 ms and begins anew at 5.5 ms: its step ends there, and its requests go to
/// the other.
#[test]
fn what_a_failure_cuts_short_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let replica = |replica| ReplicaInfo { replica, num_gpu_blocks: 101, ..ReplicaInfo::default() };
    let fleet = FleetInfo {
        router: "round_robin".to_owned(),
        replicas: (0..2).map(replica).collect(),
        ..FleetInfo::default()
    };
    let info = RunInfo { fleet: Some(fleet), ..info(&config()) };
    let mut report = RunReport::create(&dir.path().join("run"), info).unwrap();
    report.trace_events(&TraceEventsOptions { path: None, window: whole() }, &[]).unwrap();
    let actions = vec![Action {
        at: SimTime(5_000_000),
        kind: ActionKind::Restart { replica: 0, start_up: SimTime(500_000) },
    }];
    simulation_with(2, config(), CROWD, actions)
        .with_lifecycle(LifecycleConfig::default())
        .run(&mut report)
        .unwrap();
    report.finish(RunEnding::default()).unwrap();
    let events = check(&read(&dir.path().join("run").join(TRACE_EVENTS)));
    let at = |name: &str| ns(names(&events, "i", name)[0], "ts");
    assert_eq!((at("off"), at("ready")), (5_000_000, 5_500_000));
    let is_cut = |slice: &&Value| slice["pid"] == 1 && ns(slice, "ts") + ns(slice, "dur") == 5_000_000;
    assert!(events.iter().filter(|event| event["ph"] == "X").any(|slice| is_cut(&slice)));
    let lost = names(&events, "e", "request").iter().filter(|end| end["args"]["finished"] == "lost").count();
    assert_eq!(names(&events, "b", "request").len(), 5 + lost);
    assert!(lost > 0);
}

#[test]
fn an_older_file_stays_until_the_new_one_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.json");
    std::fs::write(&path, "old").unwrap();
    let options = TraceEventsOptions { path: Some(path.clone()), window: whole() };
    let begin = || {
        let mut report = RunReport::create(&dir.path().join("run"), info(&config())).unwrap();
        report.trace_events(&options, &[TierKind::Host]).unwrap();
        simulation(config(), SHARING).run(&mut report).unwrap();
        report
    };
    drop(begin());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    begin().finish(RunEnding::default()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"host memory: load\"") && text.contains("\"seed\":\"7\""));
    assert_eq!(check(&text).len(), 41);
    // The report, the trace, and nothing else.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}
