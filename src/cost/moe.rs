//! A fused mixture-of-experts layer on one rank.
//!
//! `t = t0 + pnorm(flops / compute, (weights of the experts that are hit + activations) / memory)`.
//! With independent choices `E (1 - exp(-T k / E))` of `E` experts are hit by `T` tokens.

use crate::catalog::{Dtype, Gpu, Moe};

use super::coefficients::{MoeCoefficients, PerFormat};
use super::smooth_max::smooth_max;

#[derive(Clone, Debug)]
pub(super) struct MoeLayer {
    t0_us: f64,
    p: f64,
    num_experts: f64,
    experts_per_token: f64,
    expert_us: f64,
    compute_us_per_token: f64,
    memory_us_per_token: f64,
}

impl MoeLayer {
    pub fn new(moe: &Moe, hidden_size: u32, tp: u32, gpu: &Gpu, fits: &PerFormat<MoeCoefficients>) -> Self {
        let dtype = moe.expert_dtype;
        let fit = fits.get(dtype);
        let hidden = f64::from(hidden_size);
        let inter = f64::from(moe.moe_intermediate_size.div_ceil(tp));
        let experts_per_token = f64::from(moe.num_experts_per_tok);
        let flops = gpu.native_matmul_flops(dtype).unwrap_or(gpu.bf16_flops) * 1e-6 * fit.compute_efficiency;
        let memory = gpu.hbm_bytes_per_s * 1e-6 * fit.memory_efficiency;
        // In and out of both products.
        let activations = (2.0 * hidden + 3.0 * inter) * Dtype::Bf16.bytes_per_value();
        Self {
            t0_us: fit.t0_us,
            p: fit.p,
            num_experts: f64::from(moe.num_experts),
            experts_per_token,
            expert_us: 3.0 * hidden * inter * dtype.bytes_per_value() / memory,
            compute_us_per_token: 6.0 * experts_per_token * hidden * inter / flops,
            memory_us_per_token: experts_per_token * activations / memory,
        }
    }

    pub fn time_us(&self, num_tokens: u32) -> f64 {
        let tokens = f64::from(num_tokens);
        let hit = self.num_experts * (1.0 - (-tokens * self.experts_per_token / self.num_experts).exp());
        let memory = hit * self.expert_us + self.memory_us_per_token * tokens;
        self.t0_us + smooth_max(self.compute_us_per_token * tokens, memory, self.p)
    }
}
