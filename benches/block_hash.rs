//! What hashing costs: an hour of real traffic by identity, and a tenth of a million blocks by each
//! algorithm.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kvsim::engine::hash::{
    HashCursor, PrefixCachingHashAlgo, RequestBlockHasher, init_none_hash, resolve_none_hash_seed,
};
use kvsim::prompt::TokenRuns;

const BLOCK_SIZE_TOKENS: u32 = 16;
const RUN_TOKENS: u32 = 512;

/// Prompts of `num_runs` runs of 512 tokens, as in traces with prefix hashes. Three turns of
/// one chat in a row share all but their last runs.
fn prompts(num_requests: u64, num_runs: u64) -> Vec<TokenRuns> {
    (0..num_requests)
        .map(|request| {
            let mut tokens = TokenRuns::new();
            for run in 0..num_runs {
                let owner = if run < num_runs * 2 / 3 { request / 3 } else { num_requests + request };
                // Runs of one owner are apart, so that none continues the one before.
                tokens.push_run((owner * num_runs + run) * 2 * u64::from(RUN_TOKENS), RUN_TOKENS);
            }
            tokens
        })
        .collect()
}

fn hash_all(mut hasher: RequestBlockHasher, prompts: &[TokenRuns]) -> RequestBlockHasher {
    let mut hashes = Vec::new();
    for tokens in prompts {
        hashes.clear();
        hasher.extend(tokens, None, &mut HashCursor::default(), &mut hashes);
        black_box(&hashes);
    }
    hasher
}

fn benchmark(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("block_hash");
    group.sample_size(10);

    let trace = prompts(12_000, 24);
    group.throughput(Throughput::Elements(12_000 * 24 * u64::from(RUN_TOKENS / BLOCK_SIZE_TOKENS)));
    group.bench_function("identity", |bencher| {
        bencher.iter_batched(
            || RequestBlockHasher::identity(BLOCK_SIZE_TOKENS, 0),
            |hasher| hash_all(hasher, &trace),
            BatchSize::PerIteration,
        );
    });

    let trace = prompts(130, 24);
    group.throughput(Throughput::Elements(130 * 24 * u64::from(RUN_TOKENS / BLOCK_SIZE_TOKENS)));
    for algo in PrefixCachingHashAlgo::ALL {
        let none_hash = init_none_hash(algo, &resolve_none_hash_seed(algo, None, &[0; 32]));
        group.bench_function(algo.name(), |bencher| {
            bencher.iter_batched(
                || RequestBlockHasher::digests(algo, none_hash, BLOCK_SIZE_TOKENS, 0),
                |hasher| hash_all(hasher, &trace),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, benchmark);
criterion_main!(benches);
