//! What a whole run costs: `kvsim run scenarios/mooncake.yaml` on the Mooncake conversation trace
//! (read, simulate, report), in sync and async mode, and what a hit-rate curve of 20 sizes costs that is
//! made in one pass over it, beside a plain LRU of one size over the same block touches.
//!
//! Without the trace in `../shared` (or `$KVSIM_SHARED`) it takes the sample in `traces/`.

mod plain_lru;

use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, criterion_group, criterion_main};
use kvsim::report::RunReport;
use kvsim::scenario::{Scenario, Source, Template};
use kvsim::study::hit_rate_curve::{CacheSize, CurveRequest, Progress};
use kvsim::study::sweep;
use kvsim::trace_tools::AnswerTimes;
use kvsim::units::SimTime;
use kvsim::workload::trace::TraceInput;

fn trace() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("KVSIM_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let whole = shared.join("data/traces/mooncake_fast25_conversation_trace.jsonl.gz");
    if whole.exists() {
        return whole;
    }
    eprintln!("{} is not there; taking the sample", whole.display());
    root.join("traces/mooncake_sample.jsonl")
}

fn source(trace: &Path, overrides: Vec<String>) -> Source {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/mooncake.yaml");
    Source {
        text: std::fs::read_to_string(&path).expect("the scenario is there"),
        path,
        overrides,
        seed: None,
        trace: Some(trace.to_owned()),
        skip_bad_rows: false,
    }
}

struct Silent;

impl Progress for Silent {
    fn request(&mut self, _share: Option<f64>) {}
}

impl sweep::Progress for Silent {
    fn begin(&mut self, _done: usize, _all: usize) -> std::io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _row: &sweep::Row) -> std::io::Result<()> {
        Ok(())
    }
}

/// The library's part of `kvsim curve` without simulations, in blocks of 16 tokens.
fn curve(trace: &Path) {
    let template = Template::read(source(trace, Vec::new())).expect("the scenario is good");
    let scenario = Scenario::load(source(trace, Vec::new())).expect("the scenario is good");
    let request = CurveRequest {
        block_sizes: vec![16.try_into().expect("it is not 0")],
        sizes: (1..=20).map(|size| CacheSize::Blocks(20_000 * size)).collect(),
        simulate: None,
        sampling: None,
        answers: AnswerTimes { ttft: SimTime::from_ms(200), tpot: SimTime::from_ms(20) },
        host_gib: 64.0,
        threads: 1,
        simulations: PathBuf::new(),
    };
    black_box(request.run(&template, &scenario, &mut Silent).expect("the trace is good"));
}

/// The library's part of the command: all but the checksum of the trace and the table.
fn run(trace: &Path, async_scheduling: bool, out: &Path) {
    let overrides = vec![format!("engine.async_scheduling={async_scheduling}")];
    let scenario = Scenario::load(source(trace, overrides)).expect("the scenario is good");
    let mut simulation = scenario.build().expect("the trace can be opened");
    let info = scenario.run_info(&simulation, None);
    let mut report = RunReport::create(out, info).expect("the report can be written");
    simulation.run(&mut report).expect("the trace is good");
    black_box(report.finish(&[], simulation.workload_notes()).expect("the report can be written"));
}

fn replay(criterion: &mut Criterion) {
    let trace = trace();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("report");
    let mut group = criterion.benchmark_group("replay");
    group.sample_size(10);
    group.bench_function("plain LRU", |bencher| {
        bencher.iter(|| {
            let input = TraceInput::new(File::open(&trace).expect("the trace")).expect("the trace");
            black_box(plain_lru::touch_all(input, 28_014).expect("the trace is good"))
        });
    });
    group.bench_function("curve of 20 sizes", |bencher| bencher.iter(|| curve(&trace)));
    group.bench_function("sync", |bencher| bencher.iter(|| run(&trace, false, &out)));
    group.bench_function("async", |bencher| bencher.iter(|| run(&trace, true, &out)));
    group.finish();
}

criterion_group!(benches, replay);
criterion_main!(benches);
