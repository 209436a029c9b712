//! A scenario is understood, and simulated for some events, or refused with an error.
#![no_main]

use std::path::PathBuf;

use kvsim::scenario::{Scenario, Source};
use kvsim::simulation::{Observer, RequestRecord, StepRecord};
use libfuzzer_sys::fuzz_target;

/// What is accepted is run only up to this size, so that many are tried.
const MAX_BLOCKS: u32 = 1 << 14;
const MAX_MODEL_LEN: u32 = 1 << 14;
const MAX_REPLICAS: u32 = 8;
const MAX_EVENTS: u32 = 300;

struct Nobody;

impl Observer for Nobody {
    fn on_step(&mut self, _step: &StepRecord) {}
    fn on_request(&mut self, _request: &RequestRecord) {}
    fn on_evictions(&mut self, _replica: u32, _evictions: &[kvsim::engine::kv_cache::BlockEviction]) {}
    fn on_reuse_gaps(&mut self, _replica: u32, _gaps_ns: &[u64]) {}
}

fuzz_target!(|text: &str| {
    // A scenario must not make the fuzzer read files.
    if text.contains(".json") || text.contains("path") {
        return;
    }
    let path = PathBuf::from("fuzzed/scenario.yaml");
    let Ok(scenario) = Scenario::load(Source { path, text: text.to_owned(), ..Source::default() }) else {
        return;
    };
    let is_small = scenario.num_replicas() <= MAX_REPLICAS
        && scenario.engine.num_gpu_blocks <= MAX_BLOCKS
        && scenario.engine.max_model_len <= MAX_MODEL_LEN;
    if is_small && let Ok(mut simulation) = scenario.build() {
        for _ in 0..MAX_EVENTS {
            if !matches!(simulation.step(&mut Nobody), Ok(true)) {
                return;
            }
        }
    }
});
