//! Attention of decodes: one query per sequence over its KV cache.
//!
//! `t = t0 + pnorm(bytes / memory (1 + penalty / splits), head B heads_kv / SMs) + length min(kv, 4096)`.
//! Splits are sequences times KV heads times 256-token pieces: few of them leave SMs idle. The
//! weights of a layer pass through the L2 between two attentions, so KV is always read from memory.

use crate::catalog::Gpu;

use super::attention::AttentionShape;
use super::coefficients::DecodeAttentionCoefficients;
use super::smooth_max::smooth_max;

#[derive(Clone, Debug)]
pub(super) struct DecodeAttention {
    fit: DecodeAttentionCoefficients,
    heads_kv: f64,
    kv_us_per_token: f64,
    query_us: f64,
    head_us: f64,
    /// Arithmetic per sequence and token; only latent attention has enough of it to matter.
    compute_us_per_token: f64,
}

impl DecodeAttention {
    pub fn new(
        shape: &AttentionShape,
        gpu: &Gpu,
        fit: DecodeAttentionCoefficients,
        compute_efficiency: f64,
    ) -> Self {
        let bytes_per_us = gpu.hbm_bytes_per_s * 1e-6 * fit.memory_efficiency;
        Self {
            fit,
            heads_kv: shape.decode_heads_kv,
            kv_us_per_token: shape.kv_bytes_per_token / bytes_per_us,
            query_us: shape.decode_query_bytes / bytes_per_us,
            head_us: fit.head_us / f64::from(gpu.num_sms),
            compute_us_per_token: shape.decode_flops_per_token / (gpu.bf16_flops * 1e-6 * compute_efficiency),
        }
    }

    /// `num_decodes` sequences of `kv_tokens` each, on average.
    pub fn time_us(&self, num_decodes: u32, kv_tokens: f64) -> f64 {
        let batch = f64::from(num_decodes);
        let rows = batch * self.heads_kv;
        let splits = rows * (kv_tokens / 256.0).max(1.0);
        let bytes = batch * (kv_tokens * self.kv_us_per_token + self.query_us);
        let memory = bytes * (1.0 + self.fit.split_penalty / splits);
        let compute = (self.head_us * rows).max(self.compute_us_per_token * batch * kv_tokens);
        let length = self.fit.length_us * 1e-3 * kv_tokens.min(4096.0);
        self.fit.t0_us + smooth_max(memory, compute, self.fit.p) + length
    }

    pub fn t0_us(&self) -> f64 {
        self.fit.t0_us
    }
}
