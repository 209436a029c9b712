//! Matrix products.
//!
//! `t = t0 + pnorm(2 (m + pad_m)(n + pad_n)(k + pad_k) / compute, (bytes + fixed) / memory)`, where
//! bytes are activations, weights and output once each. Products in 8 and 4 bits also pay for
//! quantising their activations, one after the other: 3 m k bytes read and written.

use crate::catalog::{Dtype, Gpu};

use super::coefficients::{GemmCoefficients, PerFormat};
use super::smooth_max::smooth_max;

/// A product of `[m, k]` activations with `[k, n]` weights, for any `m`.
#[derive(Clone, Debug)]
pub(super) struct Gemm {
    t0_us: f64,
    p: f64,
    pad_m: f64,
    compute_us_per_row: f64,
    memory_us: f64,
    memory_us_per_row: f64,
    quantisation_us_per_row: f64,
}

impl Gemm {
    pub fn new(n: u32, k: u32, dtype: Dtype, gpu: &Gpu, fits: &PerFormat<GemmCoefficients>) -> Self {
        let (n, k) = (f64::from(n), f64::from(k));
        let native = gpu.native_matmul_flops(dtype);
        let computed_in = if native.is_some() { dtype } else { Dtype::Bf16 };
        let fit = fits.get(computed_in);
        let flops_per_us = native.unwrap_or(gpu.bf16_flops) * 1e-6 * fit.compute_efficiency;
        let bytes_per_us = gpu.hbm_bytes_per_s * 1e-6;
        let memory = bytes_per_us * fit.memory_efficiency;
        Self {
            t0_us: fit.t0_us,
            p: fit.p,
            pad_m: fit.pad_m,
            compute_us_per_row: 2.0 * (n + fit.pad_n) * (k + fit.pad_k) / flops_per_us,
            memory_us: (n * k * dtype.bytes_per_value() + fit.fixed_bytes) / memory,
            memory_us_per_row: (k * computed_in.bytes_per_value() + n * Dtype::Bf16.bytes_per_value())
                / memory,
            quantisation_us_per_row: fit
                .quantisation_efficiency
                .map_or(0.0, |efficiency| 3.0 * k / (bytes_per_us * efficiency)),
        }
    }

    pub fn time_us(&self, m: u32) -> f64 {
        let m = f64::from(m);
        let compute = self.compute_us_per_row * (m + self.pad_m);
        let memory = self.memory_us + self.memory_us_per_row * m;
        self.t0_us + smooth_max(compute, memory, self.p) + self.quantisation_us_per_row * m
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Coefficients;

    fn h100(n: u32, k: u32, dtype: Dtype) -> Gemm {
        let gpu = Gpu::find("H100").unwrap();
        Gemm::new(n, k, dtype, gpu, &Coefficients::built_in(gpu).unwrap().gemm)
    }

    #[test]
    fn never_beats_the_datasheet() {
        let gemm = h100(28672, 4096, Dtype::Bf16);
        for m in [1, 16, 256, 8192] {
            let flops = 2.0 * f64::from(m) * 28672.0 * 4096.0;
            let bytes = 2.0 * 28672.0 * 4096.0;
            assert!(gemm.time_us(m) > (flops / 989e6).max(bytes / 3.35e6), "{m}");
        }
    }

    #[test]
    fn fewer_weight_bytes_speed_up_small_batches() {
        let time = |dtype| h100(28672, 8192, dtype).time_us(8);
        assert!(time(Dtype::Fp8) < 0.65 * time(Dtype::Bf16));
        assert!(time(Dtype::Mxfp4) < 0.35 * time(Dtype::Bf16));
    }

    #[test]
    fn formats_without_tensor_cores_are_expanded() {
        let gpu = Gpu::find("A100").unwrap();
        let fits = Coefficients::built_in(gpu).unwrap().gemm;
        let time = |dtype| Gemm::new(8192, 8192, dtype, gpu, &fits).time_us(8192);
        // Compute-bound: the peak is that of 16 bits.
        assert!((time(Dtype::Fp8) / time(Dtype::Bf16) - 1.0).abs() < 0.05);
    }
}
