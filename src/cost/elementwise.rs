//! Norms, activations, rotary embedding and other kernels that only move data, and the sampler.
//!
//! `t = t0 + bytes / bandwidth`, with the first half of the L2's size at the L2's speed. The sampler
//! passes over the 32-bit logits of its requests.

use super::law::law;
use crate::catalog::Gpu;

law! {
    /// See the module.
    pub struct ElementwiseLaw[] {
        t0_us = 2.0 in [0.5, 20.0] else 0.0,
        memory_efficiency = 0.8 in [0.2, 1.0] else 1.0,
        /// How much faster than memory the L2 is.
        l2_speedup = 2.0 in [1.0, 5.0] else 1.0,
    }
}

law! {
    /// See the module.
    pub struct SamplerLaw[] {
        t0_us = 20.0 in [0.0, 100.0] else 0.0,
        passes = 2.0 in [0.1, 20.0] else 1.0,
    }
}

#[derive(Clone, Debug)]
pub struct Elementwise {
    t0_us: f64,
    l2_bytes: f64,
    l2_us_per_byte: f64,
    us_per_byte: f64,
    /// At the datasheet's bandwidth.
    peak_us_per_byte: f64,
    sampler: SamplerLaw,
}

impl Elementwise {
    pub fn new(gpu: &Gpu, law: &ElementwiseLaw, sampler: &SamplerLaw) -> Self {
        let us_per_byte = 1e6 / (gpu.hbm_bytes_per_s * law.memory_efficiency);
        Self {
            t0_us: law.t0_us,
            l2_bytes: gpu.l2_bytes as f64 / 2.0,
            l2_us_per_byte: us_per_byte / law.l2_speedup,
            us_per_byte,
            peak_us_per_byte: 1e6 / gpu.hbm_bytes_per_s,
            sampler: *sampler,
        }
    }

    /// One kernel that reads and writes `bytes` together.
    pub fn time_us(&self, bytes: f64) -> f64 {
        self.t0_us + self.move_us(bytes)
    }

    /// The least that a kernel takes.
    pub fn start_us(&self) -> f64 {
        self.t0_us
    }

    /// Sampling from the 32-bit logits of `num_sampled` requests.
    pub fn sampler_us(&self, num_sampled: u32, vocab_size: u32) -> f64 {
        let bytes = f64::from(num_sampled) * f64::from(vocab_size) * 4.0;
        self.sampler.t0_us + self.sampler.passes * bytes * self.peak_us_per_byte
    }

    /// As part of a kernel that does something else too.
    pub fn move_us(&self, bytes: f64) -> f64 {
        let in_l2 = bytes.min(self.l2_bytes);
        in_l2 * self.l2_us_per_byte + (bytes - in_l2) * self.us_per_byte
    }
}
