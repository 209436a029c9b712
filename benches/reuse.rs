//! What it costs to find out what could be reused: the block chains and stack distances of all requests
//! of the Mooncake conversation trace, in blocks of 16 tokens, beside a stack that is a linked LRU list
//! touched block by block and knows no distances; and `kvsim trace info` as a whole, with one block size
//! and with its five.
//!
//! Without the trace in `../shared` (or `$KVSIM_SHARED`) it takes the sample in `traces/`.

use std::fs::File;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvsim::prompt::TokenRuns;
use kvsim::reuse::{BlockChains, ComputedTokens, DistanceCounts, PrefixStack};
use kvsim::trace_tools::info::trace_info;
use kvsim::workload::trace::{ReadOptions, TraceFormat, TraceInput, TraceReader, TraceRequest, open};

const BLOCK_SIZE_TOKENS: u32 = 16;

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

fn reader() -> (TraceFormat, Box<dyn TraceReader>) {
    let input = TraceInput::new(File::open(trace()).expect("the trace")).expect("the trace");
    open(input, &ReadOptions::default()).expect("the trace is good")
}

fn requests() -> Vec<(TraceRequest, TokenRuns)> {
    let (_, mut reader) = reader();
    let mut computed = ComputedTokens::default();
    let mut requests = Vec::new();
    while let Some(request) = reader.next_request().expect("the trace is good") {
        let tokens = computed.of(&request).expect("all prompts are known");
        requests.push((request, tokens));
    }
    requests
}

/// The number of blocks touched, and the hits of a cache without end.
fn distances(requests: &[(TraceRequest, TokenRuns)]) -> (u64, u64) {
    let mut chains = BlockChains::new(BLOCK_SIZE_TOKENS);
    let mut stack = PrefixStack::default();
    let mut counts = DistanceCounts::default();
    let mut touches = 0;
    for (request, tokens) in requests {
        let chain = chains.of(tokens, &request.extras).expect("the blocks can be counted");
        touches += chain.len() as u64;
        stack.touch(chain, |part| {
            if let Some(reuse) = part.reuse {
                counts.add(reuse.distance_blocks, part.len as u32);
            }
        });
    }
    (touches, counts.total())
}

/// The same touches on a doubly linked list, the least that an LRU does.
fn linked_list(requests: &[(TraceRequest, TokenRuns)]) -> u64 {
    const NONE: u32 = u32::MAX;
    let mut chains = BlockChains::new(BLOCK_SIZE_TOKENS);
    // By block: the one before and the one behind.
    let mut links: Vec<[u32; 2]> = Vec::new();
    let (mut top, mut hits) = (NONE, 0);
    for (request, tokens) in requests {
        let chain = chains.of(tokens, &request.extras).expect("the blocks can be counted");
        for block in chain.iter().rev().map(|block| block.0) {
            if block as usize >= links.len() {
                links.resize(block as usize + 1, [block; 2]);
            }
            let [before, behind] = links[block as usize];
            if block == top {
                continue;
            }
            if before != block || behind != block {
                hits += 1;
                if before != NONE {
                    links[before as usize][1] = behind;
                }
                if behind != NONE {
                    links[behind as usize][0] = before;
                }
            }
            links[block as usize] = [NONE, top];
            if top != NONE {
                links[top as usize][0] = block;
            }
            top = block;
        }
    }
    hits
}

fn reuse(criterion: &mut Criterion) {
    let requests = requests();
    let (touches, found) = distances(&requests);
    eprintln!("{touches} touches, {found} of them of a block that was there");
    let mut group = criterion.benchmark_group("reuse");
    group.sample_size(10);
    group.throughput(Throughput::Elements(touches));
    group.bench_function("stack distances", |bencher| bencher.iter(|| black_box(distances(&requests))));
    group.bench_function("linked list", |bencher| bencher.iter(|| black_box(linked_list(&requests))));
    for block_sizes in [[16].as_slice(), &[16, 32, 64, 128, 256]] {
        group.bench_function(format!("trace info {block_sizes:?}"), |bencher| {
            bencher.iter(|| {
                let (format, mut reader) = reader();
                black_box(trace_info(format, reader.as_mut(), block_sizes).expect("the trace is good"))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, reuse);
criterion_main!(benches);
