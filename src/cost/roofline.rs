//! A step as the sum of its operations.

use crate::catalog::{Gpu, Model};

use super::attention::Attention;
use super::collective::AllGather;
use super::drafter::{Drafter, Drafts};
use super::graphs::{CudaGraphs, Launch};
use super::host::{Host, Kernels};
use super::layers::{KernelTimes, Layers};
use super::memo::Memo;
use super::parallelism::{Parallelism, StepTokens};
use super::{CompleteProfile, Profile, StepShape, StepTime};

/// The cost of steps of one model on one kind of GPU.
#[derive(Clone, Debug)]
pub struct Roofline {
    layers: Layers,
    attention: Attention,
    host: Host,
    graphs: CudaGraphs,
    drafter: Option<Drafter>,
    stages: Stages,
    data_parallel_size: u32,
    max_num_tokens: u32,
    max_context_tokens: u32,
    caveats: Vec<String>,
    /// Everything but attention and experts by number of tokens, experts by that of all engine cores that
    /// share them, and sampling by number of requests.
    layers_ns: Memo,
    experts_ns: Memo,
    sampling_ns: Memo,
}

impl Roofline {
    /// The formats of weights and KV cache are the model's; `drafts` are those of speculative decoding.
    pub fn new(
        model: &Model,
        gpu: &Gpu,
        parallelism: &Parallelism,
        graphs: CudaGraphs,
        drafts: Option<Drafts>,
        profile: Profile,
    ) -> Self {
        let profile = CompleteProfile::new(profile, gpu);
        let (max_num_tokens, max_context_tokens) = profile.max_tokens_and_context();
        let mut caveats = profile.caveats(
            gpu,
            model.weight_dtype,
            model.moe.as_ref().map(|moe| moe.expert_dtype),
            model.kv_cache_dtype,
        );
        if parallelism.pipeline_parallel_size > 1 {
            caveats.push(
                "sending between pipeline stages was not measured; NCCL's all-gather between two ranks stands in"
                    .to_owned(),
            );
        }
        if model.mla.is_some() {
            caveats.push(
                "latent attention was not measured; the laws of grouped-query attention stand in".to_owned(),
            );
        }
        Self {
            layers: Layers::new(model, gpu, parallelism, &profile),
            attention: Attention::new(model, gpu, parallelism, &profile),
            host: Host::new(*profile.host()),
            graphs,
            drafter: drafts.map(|drafts| Drafter::new(drafts, model, gpu, parallelism, &profile)),
            stages: Stages::new(model, parallelism, &profile),
            data_parallel_size: parallelism.data_parallel_size,
            max_num_tokens,
            max_context_tokens,
            caveats,
            layers_ns: Memo::default(),
            experts_ns: Memo::default(),
            sampling_ns: Memo::default(),
        }
    }

    /// What this prediction rests on beside measured timings, one sentence each; for reports.
    pub fn caveats(&self) -> &[String] {
        &self.caveats
    }

    /// Engine cores that run their steps together, each with as many tokens.
    pub(super) fn alike(&self, num_tokens: u32) -> StepTokens {
        StepTokens::alike(num_tokens, self.data_parallel_size)
    }

    pub(super) fn step_time(&mut self, shape: &StepShape, tokens: StepTokens) -> StepTime {
        let launch = self.graphs.launch(tokens.own, shape.prefill_chunks.is_empty());
        // Engine cores that run their steps together have padded them already.
        let tokens = match self.data_parallel_size {
            1 => StepTokens::alike(self.graphs.padded(tokens.own, launch), 1),
            _ => tokens,
        };
        let num_tokens = tokens.own;
        let (layers, attention, host, stages) = (&self.layers, &self.attention, &self.host, &self.stages);
        let [gemm_ns, _, comms_ns, elementwise_ns] = self.layers_ns.get(num_tokens, || {
            let [gemm_ns, moe_ns, comms_ns, elementwise_ns] =
                parts_ns(layers.time_us(num_tokens), host, num_tokens);
            let exchange_us = attention.exchange_us(num_tokens);
            let exchange_ns = host.kernels_ns(Kernels::Collectives, exchange_us, num_tokens);
            let sends_ns = stages.sends_ns(host, num_tokens);
            [gemm_ns, moe_ns, comms_ns + sends_ns + exchange_ns, elementwise_ns]
        });
        let experts_ns =
            || layers.experts_us(tokens).map_or([0; 4], |times| parts_ns(times, host, tokens.most));
        let [_, moe_ns, travel_ns, _] = if tokens == StepTokens::alike(num_tokens, self.data_parallel_size) {
            self.experts_ns.get(num_tokens, experts_ns)
        } else {
            experts_ns()
        };
        let mut time = StepTime {
            gemm_ns,
            attention_ns: host.kernels_ns(Kernels::Others, self.attention.time_us(shape), num_tokens),
            moe_ns,
            comms_ns: comms_ns + travel_ns,
            elementwise_ns,
            launch_ns: host.gpu_step_ns(stages.num),
            host_ns: host.host_ns(shape.num_requests()),
            ..StepTime::default()
        };
        if shape.num_sampled > 0 {
            let sampled = shape.num_sampled;
            let [gemm_ns, _, comms_ns, sampler_ns] =
                self.sampling_ns.get(sampled, || parts_ns(layers.sampling_us(sampled), host, sampled));
            time.gemm_ns += gemm_ns;
            time.comms_ns += comms_ns;
            time.sampler_ns = sampler_ns;
            time.head_ns = gemm_ns + comms_ns + sampler_ns;
        }
        if let Some(drafter) = &self.drafter {
            time.drafts_ns = host.kernels_ns(Kernels::Others, drafter.time_us(shape), num_tokens);
            time.head_ns += time.drafts_ns;
        }
        let num_launches = match launch {
            Launch::Full => 0.0,
            Launch::Piecewise => self.layers.num_piecewise_launches(),
            Launch::Eager => self.layers.num_launches(),
        };
        // The GPU waits for what its kernels do not cover.
        let busy_ns = time.gpu_ns() - time.launch_ns - time.drafts_ns;
        time.launch_ns += self.host.launches_ns(num_launches).saturating_sub(busy_ns);
        if !self.is_in_range(shape) {
            time.extrapolated_ns = time.gpu_ns();
        }
        time
    }

    /// What the host does for a step of so many requests.
    pub(super) fn host_ns(&self, num_requests: u32) -> u64 {
        self.host.host_ns(num_requests)
    }

    fn is_in_range(&self, shape: &StepShape) -> bool {
        let longest_prefill = shape
            .prefill_chunks
            .iter()
            .map(|chunk| chunk.num_computed_tokens.saturating_add(chunk.num_tokens))
            .max();
        let mean_decode = shape.decode_context_tokens / u64::from(shape.num_decodes.max(1));
        shape.num_tokens() <= self.max_num_tokens
            && longest_prefill.unwrap_or(0) <= self.max_context_tokens
            && mean_decode <= u64::from(self.max_context_tokens)
    }
}

/// What the stages of a pipeline send to the next: hidden states and residual, each rank of tensor
/// parallelism its part, gathered again there (`PPGroup.send_tensor_dict` in vLLM).
#[derive(Clone, Debug)]
struct Stages {
    num: u32,
    send: Option<AllGather>,
    gather: Option<AllGather>,
    token_bytes: f64,
    tensor_parallel_size: f64,
}

impl Stages {
    fn new(model: &Model, parallelism: &Parallelism, profile: &CompleteProfile) -> Self {
        let (num, tp) = (parallelism.pipeline_parallel_size, parallelism.tensor_parallel_size);
        Self {
            num,
            // Two ranks that gather `2 b` bytes send `b` to each other at a time.
            send: AllGather::new(num.min(2), profile.all_gather()),
            gather: AllGather::new(tp, profile.all_gather()),
            token_bytes: 2.0 * f64::from(model.hidden_size) * model.activation_dtype.bytes_per_value(),
            tensor_parallel_size: f64::from(tp),
        }
    }

    /// All sends of a step.
    fn sends_ns(&self, host: &Host, num_tokens: u32) -> u64 {
        let Some(send) = &self.send else { return 0 };
        let bytes = self.token_bytes * f64::from(num_tokens);
        let mut send_us = send.time_us(2.0 * bytes / self.tensor_parallel_size);
        send_us += self.gather.as_ref().map_or(0.0, |gather| gather.time_us(bytes));
        host.kernels_ns(Kernels::Collectives, send_us * f64::from(self.num - 1), num_tokens)
    }
}

/// GEMM, MoE, communication and other, each rounded.
fn parts_ns(times: KernelTimes, host: &Host, num_tokens: u32) -> [u64; 4] {
    [
        (Kernels::Others, times.gemm_us),
        (Kernels::Experts, times.moe_us),
        (Kernels::Collectives, times.comms_us),
        (Kernels::Others, times.other_us),
    ]
    .map(|(kernels, time_us)| host.kernels_ns(kernels, time_us, num_tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Dtype;
    use crate::cost::CostModel;

    fn cost(model: &str, gpu: &str, tp: u32) -> CostModel {
        let gpu = Gpu::find(gpu).unwrap();
        let profile = Profile::built_in(gpu).unwrap().clone();
        CostModel::Roofline(Box::new(Roofline::new(
            &Model::find(model).unwrap(),
            gpu,
            &Parallelism::tensor(tp),
            CudaGraphs::FULL,
            None,
            profile,
        )))
    }

    fn decode(num: u32, context: u64) -> StepShape {
        let mut shape = StepShape::default();
        shape.add_decodes(num, context * u64::from(num));
        shape
    }

    fn prefill(num_tokens: u32, num_computed_tokens: u32) -> StepShape {
        let mut shape = StepShape::default();
        shape.add_prefill(num_tokens, num_computed_tokens, true);
        shape
    }

    const ALL: [&str; 8] = [
        "Llama-3-8B",
        "Llama-3.1-8B",
        "Llama-3.1-70B",
        "Qwen3-8B",
        "Qwen3-32B",
        "Qwen3-30B-A3B",
        "gpt-oss-120b",
        "DeepSeek-V3",
    ];

    #[test]
    fn no_step_beats_the_memory_bandwidth() {
        for name in ALL {
            for gpu in Gpu::all() {
                let model = Model::find(name).unwrap();
                // One token reads every weight it uses but the embedding table.
                let activated = model
                    .parameter_groups()
                    .iter()
                    .filter(|group| group.role != crate::catalog::ParameterRole::Embedding)
                    .map(|group| group.dtype.bytes(group.num_activated))
                    .sum::<u64>() as f64;
                let time = cost(name, gpu.name, 1).step_time(&decode(1, 1024)).gpu_ns() as f64;
                assert!(time > activated / gpu.hbm_bytes_per_s * 1e9, "{name} on {}", gpu.name);
            }
        }
    }

    #[test]
    fn no_prefill_beats_the_tensor_cores() {
        for gpu in Gpu::all() {
            let model = Model::find("Llama-3.1-8B").unwrap();
            let linear = (model.num_parameters() - 2 * 128_256 * 4096) as f64;
            let flops = 2.0 * linear * 8192.0;
            let time = cost("Llama-3.1-8B", gpu.name, 1).step_time(&prefill(8192, 0)).gpu_ns() as f64;
            let least = flops / gpu.bf16_flops * 1e9;
            assert!(time > least && time < 3.0 * least, "{}: {time} against {least}", gpu.name);
        }
    }

    #[test]
    fn more_tokens_and_longer_contexts_take_longer() {
        for name in ALL {
            for (gpu, tp) in [("H100", 8), ("A100", 4), ("RTX-PRO-6000", 2)] {
                let mut cost = cost(name, gpu, tp);
                let mut last = 0;
                for num in [1, 2, 7, 8, 33, 64, 128, 256] {
                    let time = cost.step_time(&decode(num, 2000)).gpu_ns();
                    assert!(time > last, "{name} on {gpu}: {num} decodes");
                    last = time;
                }
                last = 0;
                for context in [16, 128, 1000, 4096, 30_000] {
                    let time = cost.step_time(&decode(32, context)).gpu_ns();
                    assert!(time > last, "{name} on {gpu}: decodes at {context}");
                    last = time;
                }
                last = 0;
                // FlashAttention 2 packs the heads of single queries first, which takes longer than it saves.
                for tokens in [2, 16, 100, 512, 2048, 8192] {
                    let time = cost.step_time(&prefill(tokens, 512)).gpu_ns();
                    assert!(time > last, "{name} on {gpu}: {tokens} tokens");
                    last = time;
                }
                last = 0;
                for past in [0, 1000, 8000, 30_000] {
                    let time = cost.step_time(&prefill(512, past)).gpu_ns();
                    assert!(time > last, "{name} on {gpu}: over {past} tokens");
                    last = time;
                }
            }
        }
    }

    #[test]
    fn a_mixed_batch_takes_longer_than_either_part() {
        for gpu in Gpu::all() {
            let mut cost = cost("Llama-3.1-8B", gpu.name, 1);
            let mut both = prefill(512, 1024);
            both.add_decodes(64, 64 * 2048);
            let time = cost.step_time(&both).gpu_ns();
            assert!(time > cost.step_time(&prefill(512, 1024)).gpu_ns(), "{}", gpu.name);
            assert!(time > cost.step_time(&decode(64, 2048)).gpu_ns(), "{}", gpu.name);
        }
    }

    #[test]
    fn what_is_remembered_is_what_was_computed() {
        for (name, tp) in [("Qwen3-30B-A3B", 2), ("DeepSeek-V3", 8), ("Llama-3.1-8B", 1)] {
            let mut cost = cost(name, "H200", tp);
            let mut shape = prefill(700, 100);
            shape.add_decodes(20, 50_000);
            let time = cost.step_time(&shape);
            assert_eq!(cost.step_time(&shape), time);
            assert_eq!((time.comms_ns > 0, time.moe_ns > 0), (tp > 1, tp > 1));
            assert!(time.gemm_ns > 0 && time.attention_ns > 0 && time.elementwise_ns > 0);
            assert!(time.sampler_ns > 0 && time.launch_ns > 0 && time.host_ns > 0);
            assert_eq!(time.other_ns, 0);
        }
    }

    #[test]
    fn the_range_is_what_was_measured() {
        let mut cost = cost("Llama-3.1-8B", "RTX-PRO-6000", 1);
        let within = cost.step_time(&prefill(2048, 4096));
        assert_eq!(within.extrapolated_ns, 0);
        for shape in [prefill(4096, 0), prefill(16, 100_000), decode(1, 100_000)] {
            let beyond = cost.step_time(&shape);
            assert_eq!(beyond.extrapolated_ns, beyond.gpu_ns());
        }
    }

    #[test]
    fn caveats_name_what_was_not_measured() {
        let gpu = Gpu::find("A100").unwrap();
        let model = Model::find("Llama-3.1-8B").unwrap().with_weight_dtype(Dtype::Fp8);
        let roofline = Roofline::new(
            &model,
            gpu,
            &Parallelism::tensor(1),
            CudaGraphs::FULL,
            None,
            Profile::built_in(gpu).unwrap().clone(),
        );
        assert!(
            roofline
                .caveats()
                .iter()
                .any(|caveat| caveat.starts_with("GEMM in Fp8 was not measured on A100"))
        );
    }
}
