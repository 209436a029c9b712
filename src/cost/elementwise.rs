//! Norms, activations, rotary embedding and other kernels that only move data.

use crate::catalog::Gpu;

use super::Coefficients;

/// `t = t0 + bytes / bandwidth`, with the first half of the L2's size at the L2's speed.
#[derive(Clone, Debug)]
pub(super) struct Elementwise {
    t0_us: f64,
    l2_bytes: f64,
    l2_us_per_byte: f64,
    us_per_byte: f64,
    sampler_t0_us: f64,
    sampler_passes: f64,
}

impl Elementwise {
    pub fn new(gpu: &Gpu, coefficients: &Coefficients) -> Self {
        let fit = coefficients.elementwise;
        let us_per_byte = 1e6 / (gpu.hbm_bytes_per_s * fit.memory_efficiency);
        Self {
            t0_us: fit.t0_us,
            l2_bytes: gpu.l2_bytes as f64 / 2.0,
            l2_us_per_byte: us_per_byte / fit.l2_speedup,
            us_per_byte,
            sampler_t0_us: coefficients.sampler.t0_us,
            sampler_passes: coefficients.sampler.passes,
        }
    }

    /// One kernel that reads and writes `bytes` together.
    pub fn time_us(&self, bytes: f64) -> f64 {
        self.t0_us + self.move_us(bytes)
    }

    /// Sampling from the 32-bit logits of `num_sampled` requests.
    pub fn sampler_us(&self, num_sampled: u32, vocab_size: u32) -> f64 {
        let bytes = f64::from(num_sampled) * f64::from(vocab_size) * 4.0;
        self.sampler_t0_us + self.move_us(self.sampler_passes * bytes)
    }

    fn move_us(&self, bytes: f64) -> f64 {
        let in_l2 = bytes.min(self.l2_bytes);
        in_l2 * self.l2_us_per_byte + (bytes - in_l2) * self.us_per_byte
    }
}
