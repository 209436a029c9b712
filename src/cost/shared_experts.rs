//! The experts that every token visits.
//!
//! Where tokens are few vLLM runs them on a stream of their own, beside the router and the experts that it
//! chooses (`SharedExpertsOrder.MULTI_STREAM_OVERLAPPED`; its pull requests 26440 and 28406 of autumn 2025).
//! The longer of the two counts then; memory's bandwidth they share, so what the hidden ones read adds up.
//! That is so on Blackwell, where it was measured. Elsewhere the chosen experts' kernels (Triton's, Marlin's) take
//! every SM, and Kimi-K2.5 on H200 takes what one after the other does.

use super::elementwise::Elementwise;
use super::gemm::Gemm;
use crate::catalog::Gpu;

/// vLLM's `VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD`.
const STREAM_TOKEN_THRESHOLD: u32 = 256;

/// Of one layer.
#[derive(Clone, Debug)]
pub(super) struct SharedExperts {
    pub products: [Gemm; 2],
    /// What the activation between them moves for each token.
    pub activation_bytes: f64,
    /// To read all weights.
    pub weights_us: f64,
    /// Steps of more tokens run them one after the other.
    pub stream_tokens: u32,
}

impl SharedExperts {
    /// Up to how many tokens others hide them on this GPU.
    pub fn stream_tokens(gpu: &Gpu) -> u32 {
        if gpu.compute_capability / 10 == 10 { STREAM_TOKEN_THRESHOLD } else { 0 }
    }

    /// Whether a step of so many tokens runs them beside the others.
    pub fn is_beside(&self, num_tokens: u32) -> bool {
        num_tokens <= self.stream_tokens
    }

    pub fn time_us(&self, num_tokens: u32, elementwise: &Elementwise) -> f64 {
        let products = self.products.iter().map(|product| product.time_us(num_tokens)).sum::<f64>();
        products + elementwise.time_us(self.activation_bytes * f64::from(num_tokens))
    }

    /// Together with experts that take `routed_us` alone.
    pub fn beside_us(&self, routed_us: f64, num_tokens: u32, elementwise: &Elementwise) -> f64 {
        (routed_us + self.weights_us).max(self.time_us(num_tokens, elementwise))
    }
}
