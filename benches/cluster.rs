//! An hour of chat at 200 requests a second on 64 replicas, behind one router after another: how long
//! the simulation takes, and how much memory.
//!
//! ```text
//! cargo bench --bench cluster                  # every policy below
//! cargo bench --bench cluster -- kv_aware
//! ```
//!
//! Each policy runs in a process of its own, so that the memory is that of one run.

use std::process::Command;
use std::time::Instant;

use kvsim::report::RunFigures;
use kvsim::scenario::{Scenario, Source};

const POLICIES: [&str; 5] = ["round_robin", "least_requests", "session_affinity", "prefix_aware", "kv_aware"];

/// 40 sessions of 5 turns on average a second: 720,000 requests.
const SCENARIO: &str = "
name: cluster
model: meta-llama/Llama-3.1-8B-Instruct
gpu: H100-SXM
engine: {max_model_len: 32768}
cluster: {replicas: 64}
workload:
  chat:
    sessions_per_s: 40
    duration_s: 3600
    tenants:
      - {name: assistant, weight: 6, system_prompt_tokens: 900}
      - {name: coding, weight: 3, system_prompt_tokens: 2400}
      - {name: support, weight: 1, system_prompt_tokens: 5200}
    turns: {geometric: {mean: 5, max: 40}}
    message_tokens: {lognormal: {median: 60, sigma: 1.1, max: 4000}}
    answer_tokens: {lognormal: {median: 220, sigma: 0.8, max: 2000}}
    think_time_s: {lognormal: {median: 18, sigma: 0.9, max: 600}}
    max_context_tokens: 32768
";

fn run(policy: &str) {
    let begin = Instant::now();
    let scenario = Scenario::load(Source {
        path: "cluster.yaml".into(),
        text: SCENARIO.to_owned(),
        overrides: vec![format!("cluster.router.policy={policy}")],
        ..Source::default()
    });
    let scenario = scenario.expect("the scenario is good");
    let mut simulation = scenario.build().expect("it needs no file");
    let mut figures = RunFigures::new(scenario.run_info(&simulation, None));
    simulation.run(&mut figures).expect("every request fits");
    let summary = figures.finish(simulation.ending());
    println!(
        "{policy:16} {:6.1} s, {:5.2} GiB, {} requests, {} steps, {} output tokens, hit rate {:.2} %, TTFT p99 {:.0} ms",
        begin.elapsed().as_secs_f64(),
        peak_gib(),
        summary.requests.finished,
        summary.steps.count,
        summary.tokens.output_tokens,
        100.0 * summary.prefix_cache.total.hit_rate,
        summary.latency.ttft.p99_ms
    );
}

/// The most memory that this process has had; 0 where the system does not say.
fn peak_gib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(0.0) / (1 << 20) as f64
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.as_slice() {
        [only] => run(only),
        chosen => {
            let itself = std::env::current_exe().expect("a program has a path");
            let all = if chosen.is_empty() { POLICIES.map(str::to_owned).to_vec() } else { chosen.to_vec() };
            for policy in all {
                Command::new(&itself).arg(policy).status().expect("it can start itself");
            }
        }
    }
}
