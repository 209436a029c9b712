//! What the engine costs: blocks through the pool, one decode step.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvsim::engine::hash::RequestBlockHasher;
use kvsim::engine::scheduler::{EngineCoreOutputs, ModelRunnerOutput, Scheduler, SchedulerOutput};
use kvsim::engine::{EngineConfig, NewRequest};
use kvsim::prompt::TokenRuns;

const BLOCK_SIZE: u32 = 16;

struct Engine {
    scheduler: Scheduler,
    output: SchedulerOutput,
    sampled: ModelRunnerOutput,
    outputs: EngineCoreOutputs,
    next_id: u64,
}

impl Engine {
    fn new(num_gpu_blocks: u32) -> Self {
        let config = EngineConfig {
            async_scheduling: false,
            num_gpu_blocks,
            max_model_len: 131_072,
            max_num_batched_tokens: 131_072,
            ..EngineConfig::default()
        };
        let scheduler = Scheduler::new(config, Some(RequestBlockHasher::identity(BLOCK_SIZE, 0)), None)
            .expect("the settings are good");
        Self {
            scheduler,
            output: SchedulerOutput::default(),
            sampled: ModelRunnerOutput::default(),
            outputs: EngineCoreOutputs::default(),
            next_id: 0,
        }
    }

    fn add(&mut self, first_token: u64, prompt_tokens: u32, max_tokens: u32) {
        let request = NewRequest {
            id: self.next_id,
            prompt_token_ids: TokenRuns::from_run(first_token, prompt_tokens),
            max_tokens,
            ..NewRequest::default()
        };
        self.next_id += 1;
        self.scheduler.add_request(request).expect("the request is good");
    }

    /// Schedules, samples one token for each request and updates.
    fn step(&mut self) {
        self.scheduler.schedule(&mut self.output);
        self.sampled.clear();
        for entry in &self.output.scheduled {
            if entry.samples {
                self.sampled.push_token(u64::from(entry.num_computed_tokens) | 1 << 40);
            }
            self.sampled.end_request();
        }
        self.scheduler.update_from_output(&self.output, &self.sampled, None, &mut self.outputs);
        black_box(&self.outputs);
    }
}

/// A request of 1,024 blocks comes, evicts as many and goes.
fn pool(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool");
    group.throughput(Throughput::Elements(1_024));
    let mut engine = Engine::new(27_000);
    let mut first_token = 0;
    group.bench_function("allocate, cache, evict and free 1,024 blocks", |bencher| {
        bencher.iter(|| {
            engine.add(first_token, 1_024 * BLOCK_SIZE, 1);
            first_token += u64::from(1_024 * BLOCK_SIZE) + 1;
            engine.step();
        });
    });
    let mut engine = Engine::new(27_000);
    engine.add(0, 1_024 * BLOCK_SIZE + 1, 1);
    engine.step();
    group.bench_function("hit 1,024 blocks", |bencher| {
        bencher.iter(|| {
            engine.add(0, 1_024 * BLOCK_SIZE + 1, 1);
            engine.step();
        });
    });
    group.finish();
}

/// 256 requests decode one token each.
fn step(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("step");
    group.throughput(Throughput::Elements(256));
    let mut engine = Engine::new(1_000_000);
    let mut first_token = 0;
    group.bench_function("256 decodes", |bencher| {
        bencher.iter(|| {
            if engine.scheduler.get_num_unfinished_requests() == 0 {
                for _ in 0..256 {
                    engine.add(first_token, 256, 30_000);
                    first_token += 1_000;
                }
                engine.step();
            }
            engine.step();
        });
    });
    group.finish();
}

criterion_group!(benches, pool, step);
criterion_main!(benches);
