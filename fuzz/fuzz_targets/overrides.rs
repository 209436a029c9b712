//! `--set` changes a scenario or is refused with an error: each line is one.
#![no_main]

use std::path::PathBuf;

use kvsim::scenario::{Scenario, Source};
use libfuzzer_sys::fuzz_target;

const SCENARIO: &str = include_str!("../../scenarios/chat.yaml");

fuzz_target!(|text: &str| {
    // An override must not make the fuzzer read files.
    if text.contains(".json") {
        return;
    }
    let source = Source {
        path: PathBuf::from("fuzzed/scenario.yaml"),
        text: SCENARIO.to_owned(),
        overrides: text.lines().map(str::to_owned).collect(),
        ..Source::default()
    };
    if let Err(error) = Scenario::load(source) {
        assert!(!error.to_string().is_empty());
    }
});
