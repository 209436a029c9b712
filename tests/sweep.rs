//! Sweeps: what they come to does not depend on how they were run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Everything that a finished sweep writes, save for the journal, whose rows are in the order in
/// which they finished.
const RESULTS: [&str; 6] =
    ["results.csv", "points.csv", "results.json", "report.html", "sweep.svg", "pareto.svg"];

/// Where kvsim is built with them.
const PARQUET: [&str; 2] = ["results.parquet", "points.parquet"];

const SCENARIO: &str = "
name: small
model: Llama-3.1-8B
gpu: H100
engine: {max_model_len: 4096, num_gpu_blocks_override: 300}
workload:
  chat:
    sessions_per_s: 2
    duration_s: 10
    tenants: [{name: a, system_prompt_tokens: 200}]
    turns: {geometric: {mean: 3, max: 10}}
    message_tokens: {lognormal: {median: 60, sigma: 1.0, max: 1000}}
    answer_tokens: {lognormal: {median: 50, sigma: 0.7, max: 500}}
    think_time_s: {exponential: {mean: 2}}
    max_context_tokens: 4096
";

const SWEEP: &str = "
name: small
scenario: scenario.yaml
grid:
  engine.block_size: [16, 32]
  # 40 blocks of 16 tokens hold no request of 4,096.
  engine.num_gpu_blocks_override: {linear: {from: 40, to: 400, step: 40}}
replications: 2
baseline: {engine.block_size: 16, engine.num_gpu_blocks_override: 400}
pareto: {minimise: [latency.ttft.p99_ms], maximise: [prefix_cache.hit_rate]}
";

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        bench.write("scenario.yaml", SCENARIO);
        bench.write("sweep.yaml", SWEEP);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvsim"));
        command.args(arguments).current_dir(self.dir.path());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The message of a command that must not work.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    }

    fn results(&self, folder: &str) -> Vec<Vec<u8>> {
        RESULTS
            .iter()
            .chain(PARQUET.iter().filter(|_| cfg!(feature = "parquet")))
            .map(|name| fs::read(self.path(folder).join(name)).unwrap())
            .collect()
    }

    fn journal(&self, folder: &str) -> PathBuf {
        self.path(folder).join("journal.jsonl")
    }
}

fn lines(path: &Path) -> usize {
    fs::read(path).map_or(0, |text| text.iter().filter(|&&byte| byte == b'\n').count())
}

/// Without those that only slow machines see.
fn events(stdout: &str) -> Vec<serde_json::Value> {
    let events = stdout.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    events.filter(|event| event["event"] != "progress").collect()
}

const RUN: [&str; 3] = ["sweep", "sweep.yaml", "--quiet"];

fn run<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&RUN, more].concat()
}

#[test]
fn threads_cannot_be_seen_in_the_results() {
    let bench = Bench::new();
    bench.run(&run(&["--out", "one", "--threads", "1"]));
    bench.run(&run(&["--out", "two", "--threads", "2"]));
    assert!(bench.results("one") == bench.results("two"));
    let csv = fs::read_to_string(bench.path("one/results.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 1 + 2 * 10 * 2);
    assert!(rows[0].starts_with("point,engine.block_size,engine.num_gpu_blocks_override,replication,seed,"));
    assert!(rows[1].starts_with("0,16,40,0,,") && rows[1].contains("needs 256 blocks"), "{}", rows[1]);
    assert!(rows[39].starts_with("19,32,400,0,1,") && rows[40].starts_with("19,32,400,1,2,"));
}

#[test]
fn a_killed_sweep_goes_on_and_loses_nothing() {
    let bench = Bench::new();
    bench.run(&run(&["--out", "whole"]));
    let mut child =
        bench.command(&run(&["--out", "killed", "--threads", "1"])).stderr(Stdio::null()).spawn().unwrap();
    let journal = bench.journal("killed");
    while lines(&journal) < 12 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = lines(&journal) - 1;
    assert!((11..40).contains(&done), "{done}");
    assert!(!bench.path("killed/results.csv").exists());
    // As if the kill had come in the middle of a line.
    let mut text = fs::read_to_string(&journal).unwrap();
    text.push_str("{\"point\":39,\"replica");
    fs::write(&journal, &text).unwrap();
    let output = bench.output(&["sweep", "sweep.yaml", "--out", "killed", "--json"]);
    assert!(output.status.success());
    assert_eq!(output.stderr, b"");
    let told = events(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(told[1]["message"], format!("small: {done} of 40 runs are there already"));
    assert_eq!(told.iter().filter(|event| event["event"] == "row").count(), 40 - done);
    assert!(bench.results("killed") == bench.results("whole"));
    assert_eq!(lines(&journal), 41);
    // A finished sweep has nothing left to run.
    let again = events(&bench.run(&["sweep", "sweep.yaml", "--out", "killed", "--json"]));
    let names: Vec<&str> = again.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(names, ["started", "note", "written", "finished"]);
    assert_eq!(again[3]["summary"]["points"].as_array().unwrap().len(), 20);
    assert!(bench.results("killed") == bench.results("whole"));
}

#[test]
fn shards_make_the_whole() {
    let bench = Bench::new();
    bench.run(&run(&["--out", "whole"]));
    for shard in ["1/3", "2/3", "3/3"] {
        bench.run(&run(&["--shard", shard, "--out", &format!("part{}", &shard[..1])]));
        assert!(!bench.path(&format!("part{}/results.csv", &shard[..1])).exists());
    }
    bench.run(&["sweep", "merge", "--quiet", "--out", "merged", "part3", "part1", "part2"]);
    assert!(bench.results("merged") == bench.results("whole"));
    // And again, in place.
    bench.run(&["sweep", "merge", "--quiet", "--out", "merged", "part1", "part2", "part3"]);
    assert!(bench.results("merged") == bench.results("whole"));

    let error = bench.refused(&["sweep", "merge", "--out", "x", "part1", "part3"]);
    assert_eq!(error, "error: shard 2/3 is missing; give the folders of all\n");
    let error = bench.refused(&["sweep", "merge", "--out", "x", "part1", "part1", "part3"]);
    assert_eq!(error, "error: part1 and part1 are both shard 1/3\n");
    let error = bench.refused(&["sweep", "merge", "--out", "x", "part1", "whole"]);
    assert_eq!(error, "error: whole does not belong to part1: it is a whole sweep\n");
    let text = fs::read_to_string(bench.journal("part2")).unwrap();
    let short: Vec<&str> = text.lines().take(3).collect();
    fs::write(bench.journal("part2"), short.join("\n") + "\n").unwrap();
    let error = bench.refused(&["sweep", "merge", "--out", "x", "part1", "part2", "part3"]);
    assert_eq!(error, "error: part2 has 2 of 14 runs; run its shard (2/3) again to its end\n");
    assert!(!bench.path("x").exists());
}

#[test]
fn what_was_begun_differently_is_left_alone() {
    let bench = Bench::new();
    bench.write("sweep.yaml", &SWEEP.replace("from: 40", "from: 360"));
    bench.run(&run(&["--out", "out"]));
    let begun = bench.results("out");
    let refused = |arguments: &[&str], change: &str| {
        let error = bench.refused(&[&RUN, arguments, &["--out", "out"]].concat());
        assert!(error.starts_with(&format!("error: out was begun differently: {change}\n")), "{error}");
        assert!(error.contains("--restart"));
    };
    refused(&["--shard", "1/2"], "it was shard 1/1 and is 1/2");
    refused(&["--reports"], "it was without --reports and is with");
    refused(&["--set", "gpu=A100"], "the scenario has changed");
    let sweep = fs::read_to_string(bench.path("sweep.yaml")).unwrap();
    bench.write("sweep.yaml", &sweep.replace("replications: 2", "replications: 3"));
    refused(&[], "the number of replications has changed");
    bench.write("sweep.yaml", &sweep.replace("[16, 32]", "[16, 64]"));
    refused(&[], "the points have changed");
    bench.write("sweep.yaml", &format!("confidence: 0.9\n{sweep}"));
    refused(&[], "the sweep file has changed");
    bench.write("sweep.yaml", &sweep);
    bench.write("scenario.yaml", &SCENARIO.replace("duration_s: 10", "duration_s: 5"));
    refused(&[], "the scenario has changed");
    // Nothing was touched, and a comment changes nothing.
    assert!(bench.results("out") == begun);
    bench.write("scenario.yaml", &format!("# A comment\n{SCENARIO}"));
    bench.run(&run(&["--out", "out"]));
    bench.write("scenario.yaml", &SCENARIO.replace("duration_s: 10", "duration_s: 5"));
    bench.run(&run(&["--out", "out", "--restart"]));
    assert!(bench.results("out") != begun);

    // Neither a folder with something else nor a damaged journal is overwritten.
    fs::create_dir(bench.path("mine")).unwrap();
    bench.write("mine/thesis.txt", "years of work");
    assert!(bench.refused(&run(&["--out", "mine"])).contains("has no sweep in it"));
    let text = fs::read_to_string(bench.journal("out")).unwrap();
    fs::write(bench.journal("out"), text.replacen("\"point\":", "\"pt\":", 1)).unwrap();
    let error = bench.refused(&run(&["--out", "out"]));
    assert_eq!(error, "error: out/journal.jsonl: line 2 is damaged; give --restart to begin anew\n");
}

#[test]
fn a_trace_is_read_once_and_its_change_is_seen() {
    let bench = Bench::new();
    let row = |time: u32| {
        format!(
            "{{\"timestamp\": {time}, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [1, {time}]}}\n"
        )
    };
    let trace = |rows: u32| (2..rows).map(row).collect::<String>();
    bench.write("trace.jsonl", &trace(40));
    bench.write(
        "trace.yaml",
        "name: t\nmodel: Llama-3.1-8B\ngpu: H100\nengine: {max_model_len: 4096}\n\
         workload: {trace: {path: trace.jsonl}}\n",
    );
    bench.write(
        "sweep.yaml",
        "name: t\nscenario: trace.yaml\nlist:\n- {name: slow, workload.trace.rate_scale: 0.001}\n\
         - {name: few, workload.trace.max_requests: 7}\n- {name: short, engine.max_model_len: 512}\n",
    );
    bench.run(&run(&["--out", "out", "--reports"]));
    let csv = fs::read_to_string(bench.path("out/results.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert!(rows[1].starts_with("0,slow,0.001,,,0,1,") && rows[2].starts_with("1,few,,7,,0,1,"), "{csv}");
    assert!(rows[3].contains("trace.jsonl: line 1: "), "{csv}");
    // A report is what `kvsim run` writes.
    bench.run(&["run", "trace.yaml", "--quiet", "--out", "run", "--set", "workload.trace.max_requests=7"]);
    for name in
        ["summary.json", "requests.csv", "blocks.csv", "timeseries.csv", "hit_rate.svg", "manifest.json"]
    {
        let of = |folder: &str| fs::read(bench.path(folder).join(name)).unwrap();
        assert!(of("run") == of("out/reports/point-1-seed-1"), "{name}");
    }
    bench.write("trace.jsonl", &trace(41));
    let error = bench.refused(&run(&["--out", "out", "--reports"]));
    assert!(error.contains("the trace has changed"), "{error}");
    bench.write("trace.jsonl", &format!("{}no row\n", trace(4)));
    let error = bench.refused(&run(&["--out", "other"]));
    assert!(error.starts_with("error: trace.jsonl: line 3"), "{error}");
    assert!(!bench.path("other").exists());
}

#[test]
fn two_points_are_compared_in_pairs_and_two_runs_are_not() {
    let bench = Bench::new();
    bench.write(
        "sweep.yaml",
        &SWEEP.replace("from: 40", "from: 320").replace("replications: 2", "replications: 3"),
    );
    bench.run(&run(&["--out", "out"]));
    let comparison = bench.run(&["compare", "out:0", "out:2", "--json"]);
    let comparison = &events(&comparison)[1]["summary"];
    assert_eq!(comparison["method"], "paired");
    assert_eq!(
        comparison["settings"],
        serde_json::json!([{"field": "engine.num_gpu_blocks_override", "a": 320, "b": 400}])
    );
    let results = fs::read_to_string(bench.path("out/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    // Point 2 is the baseline: its difference from point 0 is that of point 0 the other way round.
    let metric =
        comparison["metrics"].as_array().unwrap().iter().find(|it| it["name"] == "duration_s").unwrap();
    let from_baseline = results["points"][0]["metrics"]["duration_s"]["difference"].as_f64().unwrap();
    assert_eq!(metric["difference"]["mean"].as_f64().unwrap(), -from_baseline);

    for out in ["a", "b"] {
        let size = if out == "a" { "engine.block_size=16" } else { "engine.block_size=32" };
        bench.run(&["run", "scenario.yaml", "--quiet", "--out", out, "--set", size]);
    }
    let table = bench.run(&["compare", "a", "b"]);
    assert!(table.contains("engine.block_size") && table.contains("One run on a side"), "{table}");
    assert!(bench.refused(&["compare", "a", "nothing"]).starts_with("error: nothing is no report; "));
    let error = bench.refused(&["compare", "a", "out"]);
    assert_eq!(error, "error: out is a sweep; give one of its points too: out:POINT, with POINT 0 to 5\n");
    assert!(bench.refused(&["compare", "out:6", "a"]).contains("has no point `6`"));
}

#[test]
fn every_sweep_of_ours_runs() {
    let dir = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in fs::read_dir(root.join("sweeps")).unwrap() {
        let path = entry.unwrap().path();
        let out = dir.path().join(path.file_stem().unwrap());
        // Shorter, for the checks of a debug build.
        let sweep = fs::read_to_string(&path).unwrap();
        let shorter = match ["/routers.yaml", "/shared_store.yaml"].iter().any(|it| sweep.contains(it)) {
            true => "workload.shared_prefix.num_sessions=40",
            false => "workload.chat.num_sessions=2",
        };
        let status = Command::new(env!("CARGO_BIN_EXE_kvsim"))
            .args(["sweep", "--quiet", "--set", shorter, "--out"])
            .args([&out, &path])
            .status();
        assert!(status.unwrap().success(), "{}", path.display());
        let csv = fs::read_to_string(out.join("results.csv")).unwrap();
        assert!(csv.lines().all(|line| line.ends_with(",error") || line.ends_with(',')), "{csv}");
        assert!(out.join("report.html").exists());
        count += 1;
    }
    assert!(count >= 2);
}

#[test]
fn a_journal_of_another_build_is_left_alone() {
    let bench = Bench::new();
    bench.run(&run(&["--out", "out", "--set", "workload.chat.num_sessions=2"]));
    let text = fs::read_to_string(bench.journal("out")).unwrap();
    let (begin, rest) = text.split_once("\"kvsim_build\":\"").unwrap();
    let (build, rest) = rest.split_once('"').unwrap();
    assert_eq!(build.len(), 16);
    fs::write(bench.journal("out"), format!("{begin}\"kvsim_build\":\"other\"{rest}")).unwrap();
    assert_eq!(
        bench.refused(&run(&["--out", "out", "--set", "workload.chat.num_sessions=2"])),
        format!(
            "error: out was begun differently: kvsim was another build of the same version (other, now {build})\n  \
             help: undo the change to go on, give --restart to begin anew, or another folder with --out\n"
        )
    );
}

#[test]
fn a_killed_curve_goes_on_with_the_simulations_that_are_left() {
    let bench = Bench::new();
    let curve = |more: &[&'static str]| {
        let sizes =
            "4400tokens,5000tokens,6000tokens,7000tokens,8000tokens,9000tokens,10000tokens,12000tokens";
        [&["curve", "scenario.yaml", "--block-sizes", "16,32", "--simulate", sizes], more].concat()
    };
    bench.run(&curve(&["--out", "whole", "--quiet"]));
    assert!(!bench.path(".whole.simulations").exists());
    let mut child = bench.command(&curve(&["--out", "killed", "--threads", "1"])).spawn().unwrap();
    let journal = bench.path(".killed.simulations/journal.jsonl");
    while lines(&journal) < 5 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = lines(&journal) - 1;
    assert!((4..16).contains(&done), "{done}");
    assert!(!bench.path("killed").exists());
    let told = events(&bench.run(&curve(&["--out", "killed", "--json"])));
    assert_eq!(told[1]["message"], format!("small: {done} of 16 simulations are there already"));
    assert_eq!(told.iter().filter(|event| event["event"] == "row").count(), 16 - done);
    assert!(!bench.path(".killed.simulations").exists());
    for name in ["curve.csv", "breakdown.csv", "curve.json", "curve.svg", "manifest.json"] {
        let read = |folder: &str| fs::read(bench.path(folder).join(name)).unwrap();
        assert!(read("whole") == read("killed"), "{name}");
    }

    // Of other sizes nothing is gone on with.
    let mut child = bench.command(&curve(&["--out", "other", "--threads", "1"])).spawn().unwrap();
    let journal = bench.path(".other.simulations/journal.jsonl");
    while lines(&journal) < 3 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let other = ["curve", "scenario.yaml", "--simulate", "5000tokens", "--out", "other", "--json"];
    let told = events(&bench.run(&other));
    assert!(told.iter().all(|event| event["event"] != "note"));
    assert_eq!(told.iter().filter(|event| event["event"] == "row").count(), 3);
}

#[test]
fn three_fields_have_a_plot_for_each() {
    let bench = Bench::new();
    let three = "
name: three
scenario: scenario.yaml
grid:
  engine.block_size: [16, 32]
  engine.num_gpu_blocks_override: [300, 400]
  engine.max_num_seqs: [8, 64]
metrics: [prefix_cache.hit_rate]
";
    bench.write("three.yaml", three);
    bench.run(&["sweep", "three.yaml", "--out", "out", "--quiet"]);
    for file in ["out/sweep.svg", "out/report.html"] {
        let drawn = fs::read_to_string(bench.path(file)).unwrap();
        for field in ["block_size", "num_gpu_blocks_override", "max_num_seqs"] {
            assert!(drawn.contains(&format!("hit_rate over {field}")), "{file}: {field}");
            assert!(drawn.contains("the means over the settings of the others"), "{file}: {field}");
        }
    }
}
