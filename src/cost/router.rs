//! The product that chooses a token's experts.
//!
//! Where the model wants it in 32 bits (MiniMax-M2), tensor cores cannot do it at once. vLLM's
//! `GateLinear` adds up three products in 16 bits on Blackwell; elsewhere, and in versions before its pull request
//! 47973 of summer 2026, the plain cores multiply as soon as tokens are more than a few.
//!
//! The choice itself is in the experts' kernels of TensorRT-LLM on Blackwell, and in their times. Those with 8-bit
//! weights took no logits in 32 bits (FlashInfer's issue 2469) before vLLM's pull request 39141 of spring 2026; then
//! choosing and packing the choices were kernels before them.

use super::CompleteProfile;
use super::gemm::Gemm;
use super::law::L2;
use crate::catalog::{Dtype, Gpu, Model, Moe};

/// Multiply-adds of a streaming multiprocessor in a cycle, in 32 bits: 64 on A100, 128 since.
const fn lanes(compute_capability: u32) -> f64 {
    if compute_capability == 80 { 64.0 } else { 128.0 }
}

/// Boost clocks are 1.4 (A100) to 2.6 GHz, and what is reached of the peak about two thirds.
const FP32_CYCLES_PER_US: f64 = 1_200.0;

/// What older versions of vLLM did in kernels of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterKernels {
    /// A product in 32 bits runs on plain cores wherever it is.
    pub plain_product: bool,
    /// By logits in 32 bits experts in 8 bits are chosen before their kernel on Blackwell too.
    pub separate_choice: bool,
}

/// Choosing, and packing the choices with their weights: a shift, a cast and a sum.
const CHOICE_KERNELS: f64 = 4.0;

#[derive(Clone, Debug)]
pub(super) struct Router {
    gemm: Gemm,
    /// Of a token on the plain cores.
    plain_us: f64,
    choice_us: f64,
}

impl Router {
    pub fn new(
        model: &Model,
        moe: &Moe,
        gpu: &Gpu,
        kernels: RouterKernels,
        profile: &CompleteProfile,
    ) -> Self {
        let (n, k) = (moe.num_experts, model.hidden_size);
        let gemm = |k| Gemm::new(n, k, Dtype::Bf16, gpu, profile.gemm(Dtype::Bf16, gpu), L2::Cold);
        let is_blackwell = gpu.compute_capability / 10 == 10;
        let is_in_32_bits = moe.router_dtype == Dtype::Fp32;
        let is_plain = is_in_32_bits && (kernels.plain_product || !is_blackwell);
        let per_us = f64::from(gpu.num_sms) * lanes(gpu.compute_capability) * FP32_CYCLES_PER_US;
        Self {
            gemm: gemm(if is_in_32_bits && !is_plain { 3 * k } else { k }),
            plain_us: if is_plain { f64::from(n) * f64::from(k) / per_us } else { 0.0 },
            choice_us: if kernels.separate_choice
                && is_blackwell
                && is_in_32_bits
                && moe.expert_dtype == Dtype::Fp8
            {
                CHOICE_KERNELS * profile.elementwise().t0_us
            } else {
                0.0
            },
        }
    }

    pub fn time_us(&self, num_tokens: u32) -> f64 {
        self.gemm.time_us(num_tokens) + self.plain_us * f64::from(num_tokens) + self.choice_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Profile;

    /// 8,192 tokens, 256 experts, 3,072 values: 6.4 * 10^9 multiply-adds, of which 132 x 128 are done in a cycle.
    #[test]
    fn thirty_two_bits_take_the_plain_cores_of_hopper() {
        let model = Model::find("MiniMax-M2.5").unwrap();
        let moe = model.moe.clone().unwrap();
        assert_eq!(moe.router_dtype, Dtype::Fp32);
        let router_us = |gpu: &str, router_dtype: Dtype, kernels: RouterKernels| {
            let gpu = Gpu::find(gpu).unwrap();
            let profile = CompleteProfile::new(Profile::built_in(gpu).unwrap().clone(), gpu);
            let moe = Moe { router_dtype, ..moe.clone() };
            Router::new(&model, &moe, gpu, kernels, &profile).time_us(8192)
        };
        let time_us = |gpu: &str, router_dtype: Dtype| router_us(gpu, router_dtype, RouterKernels::default());
        let more = time_us("H200", Dtype::Fp32) - time_us("H200", Dtype::Bf16);
        let cycles = 8192.0 * 256.0 * 3072.0 / (132.0 * 128.0);
        assert!((more - cycles / FP32_CYCLES_PER_US).abs() < 1e-6, "{more}");
        let ratio = time_us("B200", Dtype::Fp32) / time_us("B200", Dtype::Bf16);
        assert!((1.0..3.0).contains(&ratio), "{ratio}");
        // Of an older version 148 SMs do the same.
        let older = RouterKernels { plain_product: true, separate_choice: false };
        let more = router_us("B200", Dtype::Fp32, older) - time_us("B200", Dtype::Bf16);
        let cycles = 8192.0 * 256.0 * 3072.0 / (148.0 * 128.0);
        assert!((more - cycles / FP32_CYCLES_PER_US).abs() < 1e-6, "{more}");
        // Four kernels more than start 2 to 3 us after each other.
        let apart = RouterKernels { separate_choice: true, ..older };
        let more = router_us("B200", Dtype::Fp32, apart) - router_us("B200", Dtype::Fp32, older);
        assert!((8.0..12.0).contains(&more), "{more}");
    }
}
