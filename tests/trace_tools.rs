//! `kvsim trace` on whole traces: against counts of a small Python script that keeps an LRU stack as
//! a list (or under a Fenwick tree of its own, for the recorded traces), and against the simulation.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::read::MultiGzDecoder;
use kvsim::trace_tools::info::{BlockReuse, TraceInfo, trace_info};
use kvsim::workload::trace::{ReadOptions, TraceInput, open};
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The recorded traces, where they lie beside the repository.
fn recorded(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("KVSIM_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let path = shared.join("data/traces").join(name);
    if !path.exists() {
        eprintln!("skipped: there is no {}", path.display());
        return None;
    }
    Some(path)
}

fn info(trace: impl Read + Send + 'static, block_sizes: &[u32]) -> TraceInfo {
    let (format, mut reader) = open(TraceInput::new(trace).unwrap(), &ReadOptions::default()).unwrap();
    trace_info(format, reader.as_mut(), block_sizes).unwrap()
}

/// Queries and hits in tokens, distinct blocks, and distances in blocks: p10, p50, p90, p99, max.
fn figures(reuse: &BlockReuse) -> (u64, u64, u64, [u64; 5]) {
    let distances = reuse.reuse_distance_tokens.unwrap();
    let blocks = |tokens: u64| tokens / u64::from(reuse.block_size_tokens);
    (
        reuse.queries_tokens,
        reuse.hits_tokens,
        reuse.unique_blocks,
        [distances.p10, distances.p50, distances.p90, distances.p99, distances.max].map(blocks),
    )
}

/// Within the 0.1 % of the histogram, which the mean and the ends do not have.
fn assert_times(reuse: &BlockReuse, p50_s: f64, p90_s: f64, p99_s: f64, max_s: f64) {
    let times = reuse.reuse_time_s.unwrap();
    for (found, exact) in [(times.p50, p50_s), (times.p90, p90_s), (times.p99, p99_s)] {
        assert!((found / exact - 1.0).abs() < 1e-3, "{found}, not {exact}");
    }
    assert_eq!(times.max, max_s);
}

#[test]
fn our_sample_is_counted_as_by_lists() {
    let sample = File::open(root().join("traces/mooncake_sample.jsonl")).unwrap();
    let info = info(sample, &[16, 64, 256]);
    let counted: Vec<_> = info.infinite_cache.iter().map(figures).collect();
    assert_eq!(
        counted,
        [
            (692_207, 505_344, 15_405, [28, 296, 2_942, 3_912, 4_149]),
            (692_207, 505_344, 3_788, [7, 73, 727, 971, 1_029]),
            (692_207, 505_344, 875, [1, 17, 174, 233, 247]),
        ]
    );
}

#[test]
fn the_recorded_traces_are_counted_as_by_a_script() {
    if let Some(path) = recorded("mooncake_fast25_conversation_trace.jsonl.gz") {
        let whole = &info(File::open(&path).unwrap(), &[256]).infinite_cache[0];
        let expected = (144_793_823, 54_082_048, 364_372, [1, 16_551, 62_688, 169_828, 315_521]);
        assert_eq!(figures(whole), expected);
        assert_eq!(whole.touched_blocks, 575_630);
        assert_times(whole, 113.999, 519.0, 1_578.0, 3_030.0);

        let mut text = String::new();
        MultiGzDecoder::new(File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        let first: String = text.lines().take(1_500).map(|line| format!("{line}\n")).collect();
        let first = &info(Cursor::new(first), &[16]).infinite_cache[0];
        let expected = (20_981_721, 5_663_872, 989_573, [23, 182_962, 558_023, 808_392, 922_809]);
        assert_eq!(figures(first), expected);
        assert_eq!(first.touched_blocks, 1_343_565);
        assert_times(first, 77.999, 252.0, 386.999, 468.0);
    }
    if let Some(path) = recorded("mooncake_fast25_synthetic_trace.jsonl.gz") {
        let reuse = &info(File::open(path).unwrap(), &[128]).infinite_cache[0];
        let expected = (61_194_628, 39_839_104, 169_480, [2_687, 24_413, 79_744, 132_124, 160_118]);
        assert_eq!(figures(reuse), expected);
        assert_times(reuse, 59.355, 281.764, 582.892, 792.834);
    }
}

fn kvsim(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvsim")).current_dir(folder).args(arguments).output().unwrap()
}

fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = kvsim(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_mooncake_trace_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let sample = root().join("traces/mooncake_sample.jsonl");
    for (name, end) in [("kvsim", "jsonl.gz"), ("qwen_bailian", "jsonl.zst"), ("prefix_blocks", "csv")] {
        let there = format!("there.{end}");
        run(folder.path(), &["trace", "convert", sample.to_str().unwrap(), &there, "--to", name]);
        run(folder.path(), &["trace", "convert", &there, "back.jsonl", "--to", "mooncake"]);
        assert_eq!(
            fs::read_to_string(folder.path().join("back.jsonl")).unwrap(),
            fs::read_to_string(&sample).unwrap(),
            "by {name}"
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

/// Dynamo's times are those of a clock, in milliseconds, so the trace comes back from its first request on.
#[test]
fn sessions_times_and_blocks_come_back_from_dynamo() {
    let folder = tempfile::tempdir().unwrap();
    let convert = |from: &str, to: &str, format: &str| {
        run(folder.path(), &["trace", "convert", from, to, "--to", format]);
    };
    let sample = root().join("traces/qwen_bailian_sample.jsonl");
    convert(sample.to_str().unwrap(), "dynamo.jsonl", "dynamo");
    convert("dynamo.jsonl", "back.jsonl", "qwen_bailian");
    let rows = |path: PathBuf| -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|row| serde_json::from_str(row).unwrap()).collect()
    };
    let (before, after) = (rows(sample), rows(folder.path().join("back.jsonl")));
    assert_eq!(before.len(), after.len());
    let ms = |row: &Value| (row["timestamp"].as_f64().unwrap() * 1e3).round() as i64;
    let chats = |rows: &[Value]| -> HashMap<String, usize> {
        rows.iter().enumerate().map(|(at, row)| (row["chat_id"].to_string(), at)).collect()
    };
    let (chats_before, chats_after) = (chats(&before), chats(&after));
    let mut same_ids: HashMap<&Value, &Value> = HashMap::new();
    for (one, other) in before.iter().zip(&after) {
        assert!((ms(one) - ms(&before[0]) - ms(other)).abs() <= 1, "{one} {other}");
        for field in ["input_length", "output_length", "turn"] {
            assert_eq!(one[field], other[field]);
        }
        let parent = |row: &Value, chats: &HashMap<String, usize>| {
            chats.get(&row["parent_chat_id"].to_string()).copied()
        };
        assert_eq!(parent(one, &chats_before), parent(other, &chats_after));
        // Full blocks: an id for each, whatever its name.
        let full = one["input_length"].as_u64().unwrap() as usize / 16;
        for block in 0..full {
            let (id, other_id) = (&one["hash_ids"][block], &other["hash_ids"][block]);
            assert_eq!(*same_ids.entry(id).or_insert(other_id), other_id);
        }
    }
}

#[test]
fn whoever_replays_a_closed_loop_decides_as_with_its_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(root().join("scenarios/chat.yaml")).unwrap();
    let scenario = text.replace("duration_s: 600", "duration_s: 20");
    assert_ne!(text, scenario);
    fs::write(folder.path().join("chat.yaml"), &scenario).unwrap();
    run(folder.path(), &["trace", "generate", "chat.yaml", "chat.jsonl", "--closed-loop"]);
    let (head, _) = scenario.split_once("workload:").unwrap();
    let replay = format!("{head}workload:\n  trace: {{path: chat.jsonl}}\n");
    fs::write(folder.path().join("replay.yaml"), replay).unwrap();
    run(folder.path(), &["run", "chat.yaml", "--out", "generated"]);
    run(folder.path(), &["run", "replay.yaml", "--out", "replayed"]);
    for file in ["blocks.csv", "timeseries.csv"] {
        let read = |report: &str| fs::read_to_string(folder.path().join(report).join(file)).unwrap();
        assert!(read("generated") == read("replayed"), "{file} differs");
    }
}

#[test]
fn a_failure_leaves_nothing_and_keeps_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let trace = "{\"timestamp\": 0, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [1]}\nno row\n";
    fs::write(folder.path().join("in.jsonl"), trace).unwrap();
    fs::write(folder.path().join("out.jsonl"), "older").unwrap();
    for command in [
        ["convert", "in.jsonl", "out.jsonl", "-q"].as_slice(),
        &["sample", "in.jsonl", "out.jsonl", "--fraction", "1"],
        &["scale", "in.jsonl", "out.jsonl", "--rate", "2"],
        &["scale", "in.jsonl", "out.jsonl", "--population", "2"],
    ] {
        let output = kvsim(folder.path(), &[&["trace"], command].concat());
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.starts_with("error: in.jsonl: line 2: found "), "{message}");
        assert_eq!(fs::read_to_string(folder.path().join("out.jsonl")).unwrap(), "older");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
    // The same file may be read and written.
    run(folder.path(), &["trace", "convert", "in.jsonl", "in.jsonl", "--skip-bad-rows"]);
    assert!(fs::read_to_string(folder.path().join("in.jsonl")).unwrap().starts_with("{\"kvsim_trace\": 1"));
}

#[test]
fn a_scaled_population_keeps_its_hit_rate() {
    let folder = tempfile::tempdir().unwrap();
    let sample = root().join("traces/mooncake_sample.jsonl");
    run(folder.path(), &["trace", "scale", sample.to_str().unwrap(), "x4.jsonl", "--population", "4"]);
    let reuse = |path: &Path| info(File::open(path).unwrap(), &[512]).infinite_cache.remove(0);
    let (once, four_times) = (reuse(&sample), reuse(&folder.path().join("x4.jsonl")));
    assert_eq!(four_times.queries_tokens, 4 * once.queries_tokens);
    // What was found is found again in each copy; beside it the copies find the blocks that are shared
    // once more, where once they had to be computed: the whole blocks of two system prompts of 2,300
    // and 900 tokens.
    let first_computed = 3 * (4 + 1) * 512;
    assert_eq!(four_times.hits_tokens, 4 * once.hits_tokens + first_computed);
}
