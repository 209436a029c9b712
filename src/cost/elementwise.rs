//! Norms, activations, rotary embedding and other kernels that only move data, and the sampler.
//!
//! `t = t0 + bytes / bandwidth`. Activations come from the kernel before: up to a share of the L2 they are
//! read and written at the L2's speed. The sampler passes over the 32-bit logits of its requests, which
//! the L2 holds for few of them.

use super::law::{L2, law};
use crate::catalog::Gpu;

law! {
    /// See the module.
    pub struct ElementwiseLaw[] {
        t0_us = 2.0 in [0.5, 20.0] else 0.0,
        memory_efficiency = 0.8 in [0.2, 1.0] else 1.0,
        /// How much faster than memory the L2 is.
        l2_speedup = 2.0 in [1.0, 5.0] else 1.0,
        /// Share of the L2 up to which it holds what a kernel moves.
        l2_share = 0.5 in [0.1, 2.0] else 0.5,
    }
}

law! {
    /// See the module.
    pub struct SamplerLaw[] {
        t0_us = 20.0 in [0.0, 100.0] else 0.0,
        passes = 3.0 in [0.1, 20.0] else 1.0,
        /// How much faster than memory the L2 is.
        l2_speedup = 4.0 in [1.0, 10.0] else 1.0,
        /// Share of the L2 up to which it holds the logits.
        l2_share = 0.5 in [0.1, 2.0] else 0.5,
    }
}

#[derive(Clone, Debug)]
pub struct Elementwise {
    law: ElementwiseLaw,
    sampler: SamplerLaw,
    l2_bytes: f64,
    /// At the datasheet's bandwidth.
    us_per_byte: f64,
}

impl Elementwise {
    pub fn new(gpu: &Gpu, law: &ElementwiseLaw, sampler: &SamplerLaw) -> Self {
        Self {
            law: *law,
            sampler: *sampler,
            l2_bytes: gpu.l2_bytes as f64,
            us_per_byte: 1e6 / gpu.hbm_bytes_per_s,
        }
    }

    /// One kernel that reads and writes `bytes` together.
    pub fn time_us(&self, bytes: f64) -> f64 {
        self.start_us() + self.move_us(bytes)
    }

    /// The least that a kernel takes.
    pub fn start_us(&self) -> f64 {
        self.law.t0_us
    }

    /// As part of a kernel that does something else too.
    pub fn move_us(&self, bytes: f64) -> f64 {
        let law = &self.law;
        let speedup = L2::Warm.speedup(bytes, self.l2_bytes, law.l2_speedup, law.l2_share);
        bytes * self.us_per_byte / (law.memory_efficiency * speedup)
    }

    /// Sampling from the 32-bit logits of `num_sampled` requests.
    pub fn sampler_us(&self, num_sampled: u32, vocab_size: u32) -> f64 {
        let law = &self.sampler;
        let bytes = f64::from(num_sampled) * f64::from(vocab_size) * 4.0;
        let speedup = L2::Warm.speedup(bytes, self.l2_bytes, law.l2_speedup, law.l2_share);
        law.t0_us + law.passes * bytes * self.us_per_byte / speedup
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 TB/s and an L2 of 10 MB at four times that.
    #[test]
    fn what_the_l2_holds_moves_at_its_speed() {
        let gpu = Gpu { hbm_bytes_per_s: 1e12, l2_bytes: 10_000_000, ..Gpu::find("H100").unwrap().clone() };
        let law = ElementwiseLaw { t0_us: 2.0, memory_efficiency: 0.5, l2_speedup: 4.0, l2_share: 0.5 };
        let sampler = SamplerLaw { t0_us: 20.0, passes: 3.0, l2_speedup: 4.0, l2_share: 0.5 };
        let elementwise = Elementwise::new(&gpu, &law, &sampler);
        // Half a MB, then all that the L2 is said to hold (half of the gain), then far more.
        assert!((elementwise.time_us(5e5) - (2.0 + 0.25)).abs() < 1e-3);
        assert!((elementwise.time_us(5e6) - (2.0 + 10.0 / 2.5)).abs() < 1e-9);
        assert!((elementwise.time_us(5e8) - (2.0 + 1000.0)).abs() < 1e-3);
        // 10 requests with 125,000 logits of four bytes.
        assert!((elementwise.sampler_us(10, 125_000) - (20.0 + 3.0 * 5.0 / 2.5)).abs() < 1e-9);
    }
}
