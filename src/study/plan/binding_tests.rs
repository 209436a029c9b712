//! Servers that are made to be held back by one thing each. What a GPU takes for a step is that of a built-in
//! profile; where a verdict hangs on times, the profile is bent until no refit could change it.

use std::fs;

use super::result::Capacity;
use super::tests::run_in;
use super::{Binding, terminal_text};
use crate::catalog::Gpu;
use crate::cost::Profile;

struct Server<'a> {
    gpu: &'a str,
    engine: &'a str,
    /// Of the profile, in microseconds or times.
    bend: fn(&mut Profile),
    /// Instead of the profile.
    step_ns: Option<u64>,
    workload: &'a str,
    target: &'a str,
}

impl Default for Server<'_> {
    fn default() -> Self {
        Self {
            gpu: "H100-SXM",
            engine: "{max_model_len: 4096}",
            bend: |_| {},
            step_ns: None,
            workload: "{requests_per_s: 4, arrival_process: fixed, duration_s: 60, input_len: 1000, output_len: 200}",
            target: "{metric: ttft, percentile: 90, at_most_ms: 1000}",
        }
    }
}

impl Server<'_> {
    #[track_caller]
    fn is_bound_by(&self, expected: Binding) {
        let capacity = self.plan().0;
        assert_eq!(capacity.binding, expected, "{}", capacity.binding_because);
    }

    /// What a replica takes, and what the plan says of it all.
    fn plan(&self) -> (Capacity, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut profile = Profile::built_in(Gpu::find(self.gpu).unwrap()).unwrap().clone();
        (self.bend)(&mut profile);
        fs::write(folder.path().join("bent.yaml"), profile.to_yaml()).unwrap();
        let cost = match self.step_ns {
            Some(step_ns) => format!("{{constant: {{step_ns: {step_ns}}}}}"),
            None => "{profile: bent.yaml}".to_owned(),
        };
        let Self { gpu, engine, workload, target, .. } = self;
        let plan = format!(
            "name: bound\nscenario:\n  name: bound\n  model: Llama-3.1-8B\n  gpu: {gpu}\n  engine: {engine}\n  \
             cost: {cost}\n  workload: {{random: {workload}}}\ntargets: [{target}]\nprices_per_hour: {{gpu: {{{gpu}: \
             2}}}}\nprecision: 0.2\nmax_replications: 2\nlost_replicas: 0\nheadroom: 0\n"
        );
        let result = run_in(folder.path(), &plan, 2);
        (result.candidates[0].capacity().unwrap().clone(), terminal_text(&result))
    }
}

/// No step that computes a prompt of 1,000 tokens lies within a profile whose products end at 16 tokens,
/// and all of them within the built-in one.
#[test]
fn what_is_beyond_the_profile_is_marked() {
    let server = Server {
        engine: "{max_model_len: 4096, max_num_batched_tokens: 2048, enable_prefix_caching: false}",
        workload: "{requests_per_s: 4, arrival_process: fixed, duration_s: 60, input_len: 1000, output_len: 1}",
        ..Server::default()
    };
    let (capacity, text) = server.plan();
    assert_eq!(capacity.extrapolated, 0.0);
    assert!(!text.contains("extrapolated"), "{text}");
    let narrow = |profile: &mut Profile| {
        for fit in profile.gemm.values_mut() {
            fit.valid.values_mut().for_each(|range| *range = (1.0, 16.0));
        }
    };
    let (capacity, text) = Server { bend: narrow, ..server }.plan();
    assert_eq!(capacity.extrapolated, 1.0);
    assert!(text.contains("is extrapolated: 100 % of its GPU time"), "{text}");
}

/// Four requests fill the blocks.
#[test]
fn blocks_bind() {
    let engine = "{max_model_len: 4096, num_gpu_blocks_override: 300, enable_prefix_caching: false}";
    Server { engine, ..Server::default() }.is_bound_by(Binding::KvCapacity);
}

/// Two may run.
#[test]
fn max_num_seqs_binds() {
    let engine = "{max_model_len: 4096, max_num_seqs: 2}";
    Server { engine, ..Server::default() }.is_bound_by(Binding::MaxNumSeqs);
}

/// Long prompts and one token are arithmetic.
#[test]
fn compute_binds() {
    Server {
        engine: "{max_model_len: 16384, enable_prefix_caching: false}",
        workload: "{requests_per_s: 4, arrival_process: fixed, duration_s: 60, input_len: 8000, output_len: 1}",
        ..Server::default()
    }
    .is_bound_by(Binding::Compute);
}

/// Long contexts that are read for each token are memory traffic.
#[test]
fn memory_bandwidth_binds() {
    MEMORY.is_bound_by(Binding::MemoryBandwidth);
}

const MEMORY: Server<'_> = Server {
    gpu: "H100-SXM",
    engine: "{max_model_len: 16384}",
    bend: |_| {},
    step_ns: None,
    workload: "{requests_per_s: 2, arrival_process: fixed, duration_s: 60, prefix_len: 8000, input_len: 10, \
               output_len: 300}",
    target: "{metric: tpot, percentile: 90, at_most_ms: 20}",
};

/// The same server, whose GPU takes less than a millisecond for each request, with a host that takes 5.
#[test]
fn the_host_binds() {
    Server {
        bend: |profile| profile.host.host_request_us = 5_000.0,
        target: "{metric: tpot, percentile: 90, at_most_ms: 60}",
        ..MEMORY
    }
    .is_bound_by(Binding::Host);
}

/// The same with 32 ms between two steps.
#[test]
fn step_overheads_bind() {
    Server {
        bend: |profile| profile.host.gpu_step_us = 32_000.0,
        target: "{metric: tpot, percentile: 90, at_most_ms: 60}",
        ..MEMORY
    }
    .is_bound_by(Binding::Overheads);
}

/// Two L40S add up the hidden states of 8,192 tokens twice a layer over PCIe: 64 MiB each time at less than 32
/// GB/s, 134 ms at the least, and three times that here; 8 * 10^9 parameters take 181 ms of each at 362 TFLOP/s.
#[test]
fn communication_binds() {
    Server {
        gpu: "L40S",
        engine: "{max_model_len: 16384, tensor_parallel_size: 2, max_num_batched_tokens: 8192, \
                 enable_prefix_caching: false}",
        bend: |profile| profile.host.comms_scale = 3.0,
        workload: "{requests_per_s: 1, arrival_process: fixed, duration_s: 60, input_len: 8000, output_len: 1}",
        target: "{metric: ttft, percentile: 90, at_most_ms: 5000}",
        ..Server::default()
    }
    .is_bound_by(Binding::Communication);
}

/// A step takes 50 ms however many requests are in it, and who comes during one waits for its end. A tenth of
/// the requests may wait longer than half a step: the GPU is busy about a fifth of the time.
#[test]
fn queueing_binds() {
    Server {
        step_ns: Some(50_000_000),
        engine: "{max_model_len: 4096, async_scheduling: false}",
        workload: "{requests_per_s: 4, duration_s: 300, input_len: 100, output_len: 1}",
        target: "{metric: ttft, percentile: 90, at_most_ms: 75}",
        ..Server::default()
    }
    .is_bound_by(Binding::Queueing);
}
