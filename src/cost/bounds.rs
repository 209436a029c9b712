//! The least time of a step by the datasheet alone: what its arithmetic takes at the peak of the tensor
//! cores, and what its bytes take at the bandwidth of the memory. The larger one says what a faster GPU
//! would have to be faster at; how close a step comes to it is another question.

use serde::{Deserialize, Serialize};

use super::{Parallelism, StepShape};
use crate::catalog::{Gpu, Model, ParameterRole};

/// Nanoseconds of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepBounds {
    pub compute_ns: f64,
    pub memory_ns: f64,
}

/// The bounds of steps of one model on one kind of GPU.
#[derive(Clone, Debug)]
pub struct DatasheetBounds {
    /// For each token, for each sampled token, and for each token that is attended to by another.
    token_compute_ns: f64,
    sampled_compute_ns: f64,
    attended_compute_ns: f64,
    /// Weights that every step reads, those of all experts, and the share of experts a token visits.
    weights_ns: f64,
    experts_ns: f64,
    expert_share: f64,
    /// Of a token in the KV cache: of layers that read all, and of those with a window.
    full_kv_ns: f64,
    sliding_kv_ns: f64,
    window_tokens: f64,
    /// Engine cores whose tokens visit the experts.
    num_engines: f64,
}

impl DatasheetBounds {
    /// Of an engine core, whose stages follow one another.
    pub fn new(model: &Model, gpu: &Gpu, parallelism: &Parallelism) -> Self {
        let tp = parallelism.tensor_parallel_size;
        let ranks = f64::from(tp.max(1));
        let byte_ns = 1e9 / gpu.hbm_bytes_per_s;
        let mut bounds = Self {
            token_compute_ns: 0.0,
            sampled_compute_ns: 0.0,
            attended_compute_ns: 0.0,
            weights_ns: 0.0,
            experts_ns: 0.0,
            expert_share: model
                .moe
                .as_ref()
                .map_or(1.0, |moe| f64::from(moe.num_experts_per_tok) / f64::from(moe.num_experts)),
            full_kv_ns: 0.0,
            sliding_kv_ns: 0.0,
            num_engines: f64::from(parallelism.data_parallel_size),
            window_tokens: model.sliding_window.as_ref().map_or(0.0, |it| f64::from(it.window_tokens)),
        };
        for group in model.parameter_groups() {
            let peak = gpu.native_matmul_flops(group.dtype).unwrap_or(gpu.bf16_flops);
            let compute_ns = 2.0 * group.num_activated as f64 / ranks / peak * 1e9;
            let is_shared = group.role == ParameterRole::RoutedExperts;
            let read_ns = group.bytes_per_rank(if is_shared { parallelism.num_expert_ranks() } else { tp })
                as f64
                * byte_ns;
            match group.role {
                // A row of the table for each token.
                ParameterRole::Embedding if !model.tie_word_embeddings => continue,
                ParameterRole::Embedding | ParameterRole::LmHead => bounds.sampled_compute_ns += compute_ns,
                _ => bounds.token_compute_ns += compute_ns,
            }
            match group.role {
                ParameterRole::RoutedExperts => bounds.experts_ns += read_ns,
                _ => bounds.weights_ns += read_ns,
            }
        }
        // A query and a value product over each head.
        let head_dims = model
            .mla
            .as_ref()
            .map_or(2 * model.head_dim, |mla| mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim);
        let attended = 2.0 * f64::from(model.num_attention_heads) * f64::from(head_dims);
        bounds.attended_compute_ns =
            attended * f64::from(model.num_full_attention_layers()) / ranks / gpu.bf16_flops * 1e9;
        let layer_kv_ns = model.kv_bytes_per_token_per_layer(tp) as f64 * byte_ns;
        bounds.full_kv_ns = layer_kv_ns * f64::from(model.num_full_attention_layers());
        bounds.sliding_kv_ns = layer_kv_ns * f64::from(model.num_sliding_layers());
        bounds
    }

    pub fn of(&self, shape: &StepShape) -> StepBounds {
        let tokens = f64::from(shape.num_tokens());
        let mut attended = shape.decode_context_tokens as f64;
        let decodes = f64::from(shape.num_decodes);
        let mut read = attended;
        let mut read_in_windows = attended.min(decodes * self.window_tokens);
        for chunk in &shape.prefill_chunks {
            let (new, known) = (f64::from(chunk.num_tokens), f64::from(chunk.num_computed_tokens));
            attended += new * (known + new / 2.0);
            // Once, and the new tokens' own are written.
            read += known + new;
            read_in_windows += known.min(self.window_tokens) + new;
        }
        // Of the experts those that no token visits are not read; tokens choose independently here.
        let experts_hit = 1.0 - (1.0 - self.expert_share).powf(tokens * self.num_engines);
        StepBounds {
            compute_ns: tokens * self.token_compute_ns
                + f64::from(shape.num_sampled) * self.sampled_compute_ns
                + attended * self.attended_compute_ns,
            memory_ns: self.weights_ns
                + self.experts_ns * experts_hit
                + read * self.full_kv_ns
                + read_in_windows * self.sliding_kv_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{CostModel, CudaGraphs, Profile, Roofline};

    fn near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 1e-3, "{value} is not {expected}");
    }

    #[test]
    fn bounds_are_quotients_of_the_datasheet() {
        let (model, gpu) = (Model::find("Llama-3.1-8B").unwrap(), Gpu::find("H100").unwrap());
        let bounds = DatasheetBounds::new(&model, gpu, &Parallelism::tensor(1));
        let mut shape = StepShape::default();
        shape.add_decodes(4, 4 * 1000);
        let table = 128_256.0 * 4096.0;
        let linear = model.num_parameters() as f64 - table;
        let of = bounds.of(&shape);
        near(of.memory_ns, (2.0 * linear + 4000.0 * 131_072.0) / 3350.0);
        near(of.compute_ns, (4.0 * 2.0 * linear + 4000.0 * 4.0 * 4096.0 * 32.0) / 989e3);
        // A long prompt is arithmetic, a decode is memory.
        assert!(of.memory_ns > 10.0 * of.compute_ns);
        shape.clear();
        shape.add_prefill(8192, 0, true);
        assert!(bounds.of(&shape).compute_ns > 10.0 * bounds.of(&shape).memory_ns);
    }

    #[test]
    fn no_step_is_faster_than_its_bounds() {
        for name in ["Llama-3.1-8B", "Qwen3-30B-A3B", "gpt-oss-120b", "DeepSeek-V3"] {
            for gpu in Gpu::all() {
                let model = Model::find(name).unwrap();
                let bounds = DatasheetBounds::new(&model, gpu, &Parallelism::tensor(1));
                let profile = Profile::built_in(gpu).unwrap().clone();
                let alone = Parallelism::tensor(1);
                let roofline = Roofline::new(&model, gpu, &alone, CudaGraphs::FULL, None, profile);
                let mut cost = CostModel::Roofline(Box::new(roofline));
                for (decodes, prefill) in [(1, 0), (64, 0), (0, 4096), (32, 2048)] {
                    let mut shape = StepShape::default();
                    shape.add_decodes(decodes, u64::from(decodes) * 2000);
                    if prefill > 0 {
                        shape.add_prefill(prefill, 0, true);
                    }
                    let time_ns = cost.step_time(&shape).gpu_ns() as f64;
                    let StepBounds { compute_ns, memory_ns } = bounds.of(&shape);
                    assert!(time_ns > compute_ns, "{name} on {}: {shape:?}", gpu.name);
                    // Tokens that agree on experts, as those of the measured routings do, read fewer
                    // than independent choices would.
                    let choices_agree = model.moe.is_some() && shape.num_tokens() > 1;
                    assert!(choices_agree || time_ns > memory_ns, "{name} on {}: {shape:?}", gpu.name);
                }
            }
        }
    }
}
