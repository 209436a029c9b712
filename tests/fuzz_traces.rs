//! Our samples changed at random: whatever a trace holds is read or refused with an error, never a
//! panic, and reading ends. Seeded, so that a failure comes again; and bounded, so that it is part of
//! every test run.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use kvsim::units::SimTime;
use kvsim::workload::Workload;
use kvsim::workload::trace::{ReuseConfig, Trace, TraceArrivals, TraceConfig, TraceInput};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SEED: u64 = 20_261_130;
/// For a longer search set `KVSIM_FUZZ_SECONDS`, and `KVSIM_FUZZ_SEED` for another one.
const TIME_LIMIT: Duration = Duration::from_secs(3);
/// So much of a sample is taken.
const MAX_BYTES: usize = 6000;

/// Pieces that are likely to be taken for something.
const PIECES: [&str; 22] = [
    "0",
    "-1",
    "18446744073709551616",
    "1e400",
    "NaN",
    "null",
    "\"",
    "\\",
    "\\u",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\n",
    "\r\n",
    "\u{feff}",
    "[[0, 4294967295]]",
    "\"at_s\": 1e-400",
    "9223372036854775807",
    "2147483647",
];

fn change(rng: &mut ChaCha8Rng, content: &mut Vec<u8>) {
    let at = rng.random_range(0..=content.len());
    let end = (at + rng.random_range(0..12_usize)).min(content.len());
    match rng.random_range(0..4) {
        0 => drop(content.drain(at..end)),
        1 => drop(content.splice(at..at, PIECES.choose(rng).unwrap().bytes())),
        2 => drop(content.splice(at..end, PIECES.choose(rng).unwrap().bytes())),
        _ => {
            if let Some(byte) = content.get_mut(at) {
                *byte = rng.random();
            }
        }
    }
}

/// Replays it, each answer an instant after its request.
fn replay(content: Vec<u8>, config: &TraceConfig) {
    let Ok(input) = TraceInput::new(Cursor::new(content)) else { return };
    let Ok(mut trace) = Trace::new(input, config, None, 1) else { return };
    let mut requests = 0;
    while let Ok(Some(arrival)) = trace.next() {
        trace.finished(arrival.request.index, arrival.at + SimTime(1));
        requests += 1;
        assert!(requests < 100_000, "a trace of {MAX_BYTES} bytes does not end");
    }
    let _ = trace.notes();
}

#[test]
fn no_trace_makes_it_panic() {
    let var = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let limit = var("KVSIM_FUZZ_SECONDS").map_or(TIME_LIMIT, Duration::from_secs);
    let mut rng = ChaCha8Rng::seed_from_u64(var("KVSIM_FUZZ_SEED").unwrap_or(SEED));
    let mut samples: Vec<_> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("traces"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("_sample."))
        .collect();
    samples.sort();
    let samples: Vec<Vec<u8>> = samples
        .iter()
        .map(|path| std::fs::read(path).unwrap().into_iter().take(MAX_BYTES).collect())
        .collect();
    assert!(samples.len() >= 13);
    let base = TraceConfig { reuse: Some(ReuseConfig::None), ..TraceConfig::new("") };
    let configs = [
        base.clone(),
        TraceConfig { skip_bad_rows: true, closed_loop: true, sort_window_s: Some(60.0), ..base.clone() },
        TraceConfig { skip_bad_rows: true, arrivals: TraceArrivals::Concurrency(3), ..base },
    ];
    let started = Instant::now();
    while started.elapsed() < limit {
        let mut content = samples.choose(&mut rng).unwrap().clone();
        for _ in 0..rng.random_range(1..5) {
            change(&mut rng, &mut content);
        }
        for config in &configs {
            let result = catch_unwind(AssertUnwindSafe(|| replay(content.clone(), config)));
            assert!(result.is_ok(), "{config:?} of {}", String::from_utf8_lossy(&content));
        }
    }
}
