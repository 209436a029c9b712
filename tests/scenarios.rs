//! Every scenario runs, and the same scenario and seed give the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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

#[test]
fn every_scenario_runs() {
    let dir = tempfile::tempdir().unwrap();
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut count = 0;
    for entry in fs::read_dir(scenarios).unwrap() {
        let path = entry.unwrap().path();
        let out = dir.path().join(path.file_stem().unwrap());
        run(&path, &out, &[]);
        assert!(summary(&out)["requests"]["finished"].as_u64().unwrap() > 0, "{}", path.display());
        count += 1;
    }
    assert!(count >= 2);
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
}
