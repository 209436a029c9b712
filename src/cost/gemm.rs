//! Matrix products.
//!
//! The library that runs a product picks a tile and may split the inner dimension; the law does the
//! same: it takes the best of a few tiles and splits. For one of them, with `tiles` of `tm x tn` on
//! all `s` splits,
//!
//! ```text
//! compute = waves(tiles / SMs) 2 tm tn (k / s + pad_k) / (peak / SMs / tile_loss(tm, tn)) tall(m)
//! memory  = (bytes + partial sums) / bandwidth / min(1, sm_bandwidth tiles / SMs)
//! t       = t0 + pnorm(compute, memory) + split_us if s > 1 + quantisation
//! ```
//!
//! Bytes are activations, weights and output once each. Products in 8 and 4 bits pay for quantising
//! their activations first: passes over them, and a row's own length; a single row can take another,
//! slower kernel. vLLM's CUTLASS kernels for Hopper's fp8 choose the tile by the number of rows alone
//! ([`Tiling::ByRows`], the dispatch of `scaled_mm_c3x`), which costs narrow products dearly, and they
//! take longer the emptier the last tile of the rows is.

use serde::{Deserialize, Serialize};

use super::law::{L2, law, tall, waves};
use super::smooth_max::smooth_max;
use crate::catalog::{Dtype, Gpu};

/// How a kernel's tile is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tiling {
    /// The best of four, with the inner dimension split where that helps.
    BestSplit,
    /// The same from more tiles and splits.
    BestFineSplit,
    /// The best of four.
    Best,
    /// By the number of rows.
    ByRows,
}

law! {
    /// See the module.
    pub struct GemmLaw[tiling: Tiling] {
        /// Launch and pipeline fill, microseconds.
        t0_us = 2.5 in [0.1, 20.0] else 0.0,
        /// Share of the tensor cores' peak.
        compute_efficiency = 0.8 in [0.1, 1.1] else 1.0,
        /// Share of the memory's bandwidth.
        memory_efficiency = 0.85 in [0.3, 1.0] else 1.0,
        p = 4.0 in [0.8, 9.0] else 4.0,
        /// Loss of tiles smaller than 256 x 128, by their edges.
        tile_loss = 0.4 in [0.0, 3.0] else 0.0,
        /// Inner steps that fill the pipeline.
        pad_k = 100.0 in [0.0, 3000.0] else 0.0,
        /// How far tiles run in whole waves.
        wave_share = 0.3 in [0.0, 1.0] else 0.0,
        /// Bandwidth that one SM can draw, in equal shares of the whole; 0 for no limit.
        sm_bandwidth = 2.0 in [0.3, 8.0] else 0.0,
        /// Adding up the splits, microseconds.
        split_us = 1.5 in [0.0, 10.0] else 0.0,
        /// Loss of compute for each doubling of the rows beyond 2,048.
        tall_loss = 0.1 in [0.0, 1.0] else 0.0,
        /// Loss of compute where the last tile of more than 256 rows is all but empty.
        empty_tile_loss = 0.2 in [0.0, 1.0] else 0.0,
        /// Speed of a warm L2 against memory.
        l2_speedup = 1.5 in [1.0, 5.0] else 1.0,
        /// Share of the L2 up to which a benchmark's operands stay in it.
        l2_share = 0.4 in [0.05, 1.0] else 0.1,
        /// Passes over the activations to quantise them.
        quantisation_passes = 3.0 in [0.3, 20.0] else 0.0,
        /// Quantising one row, nanoseconds for each inner step.
        quantisation_row_ns = 0.2 in [0.0, 2.0] else 0.0,
        /// What quantising a single row takes beyond that, microseconds.
        single_row_us = 10.0 in [0.0, 40.0] else 0.0,
    }
}

const TILES: [(f64, f64); 9] = [
    (128.0, 256.0),
    (128.0, 128.0),
    (128.0, 64.0),
    (64.0, 64.0),
    (64.0, 128.0),
    (256.0, 128.0),
    (64.0, 256.0),
    (192.0, 128.0),
    (128.0, 192.0),
];
/// The first so many are those that libraries take most.
const NUM_USUAL_TILES: usize = 4;
const SPLITS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
const FINE_SPLITS: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0];
/// Rows of the tiles of CUTLASS's kernels, and up to how many an empty tile costs nothing.
const CUTLASS_TILE_ROWS: f64 = 128.0;
const SMALL_ROWS: f64 = 256.0;

/// A product of `[m, k]` activations with `[k, n]` weights, for any `m`.
#[derive(Clone, Debug)]
pub struct Gemm {
    law: GemmLaw,
    l2: L2,
    l2_bytes: f64,
    n: f64,
    k: f64,
    weight_bytes: f64,
    activation_bytes: f64,
    num_sms: f64,
    flops_per_us_per_sm: f64,
    bytes_per_us: f64,
}

impl Gemm {
    /// Weights of `dtype`; tensor cores that lack it compute in 16 bits.
    pub fn new(n: u32, k: u32, dtype: Dtype, gpu: &Gpu, law: &GemmLaw, l2: L2) -> Self {
        let native = gpu.native_matmul_flops(dtype);
        let computed_in = if native.is_some() { dtype } else { Dtype::Bf16 };
        let num_sms = f64::from(gpu.num_sms);
        Self {
            law: *law,
            l2,
            l2_bytes: gpu.l2_bytes as f64,
            n: f64::from(n),
            k: f64::from(k),
            weight_bytes: dtype.bytes_per_value(),
            activation_bytes: computed_in.bytes_per_value(),
            num_sms,
            flops_per_us_per_sm: native.unwrap_or(gpu.bf16_flops) * 1e-6 / num_sms,
            bytes_per_us: gpu.hbm_bytes_per_s * 1e-6,
        }
    }

    /// The same product where the kernel before it has quantised its input: without the passes of
    /// quantisation, and without the `start_us` of its kernel.
    pub fn with_quantised_input(mut self, start_us: f64) -> Self {
        let quantises = self.law.quantisation_passes > 0.0;
        self.law.quantisation_passes = 0.0;
        self.law.quantisation_row_ns = 0.0;
        self.law.single_row_us = 0.0;
        if quantises {
            self.law.t0_us = (self.law.t0_us - start_us).max(0.0);
        }
        self
    }

    pub fn time_us(&self, m: u32) -> f64 {
        let law = &self.law;
        let m = f64::from(m);
        let bytes = self.activation_bytes * m * self.k
            + self.weight_bytes * self.n * self.k
            + Dtype::Bf16.bytes_per_value() * m * self.n;
        let speedup = self.l2.speedup(bytes, self.l2_bytes, law.l2_speedup, law.l2_share);
        let read_us = bytes / (self.bytes_per_us * law.memory_efficiency * speedup);
        let slowdown = tall(m, law.tall_loss) * self.empty_tile(m);
        let mut best = f64::INFINITY;
        let mut consider = |tile_m: f64, tile_n: f64, splits: f64| {
            let (compute, memory) = self.limits_us(m, tile_m, tile_n, splits, read_us);
            let compute = compute * slowdown;
            let split_us = if splits > 1.0 { law.split_us } else { 0.0 };
            // The p-norm is never below its larger side: most candidates need not be worked out.
            if compute.max(memory) + split_us < best {
                best = best.min(smooth_max(compute, memory, law.p) + split_us);
            }
        };
        let usual = &TILES[..NUM_USUAL_TILES];
        match law.tiling {
            Tiling::ByRows => {
                let tile_m = if m <= 128.0 { 64.0 } else { 128.0 };
                consider(tile_m, if m <= 64.0 { 64.0 } else { 128.0 }, 1.0);
            }
            Tiling::Best => usual.iter().for_each(|&(tile_m, tile_n)| consider(tile_m, tile_n, 1.0)),
            Tiling::BestSplit => {
                for splits in SPLITS {
                    usual.iter().for_each(|&(tile_m, tile_n)| consider(tile_m, tile_n, splits));
                }
            }
            Tiling::BestFineSplit => {
                for splits in FINE_SPLITS {
                    TILES.iter().for_each(|&(tile_m, tile_n)| consider(tile_m, tile_n, splits));
                }
            }
        }
        law.t0_us + best + self.quantisation_us(m)
    }

    /// Compute and memory time of one choice of tile and splits.
    fn limits_us(&self, m: f64, tile_m: f64, tile_n: f64, splits: f64, read_us: f64) -> (f64, f64) {
        let law = &self.law;
        let tiles = (m / tile_m).ceil() * (self.n / tile_n).ceil() * splits;
        let loss = 1.0 + law.tile_loss * (64.0 / tile_m + 64.0 / tile_n - 0.75);
        let tile_flops = 2.0 * tile_m * tile_n * (self.k / splits + law.pad_k);
        let tile_us = tile_flops * loss / (self.flops_per_us_per_sm * law.compute_efficiency);
        let compute = waves(tiles, self.num_sms, law.wave_share) * tile_us;
        // 32-bit partial sums of every split are written once; reading them hits the L2.
        let partial_us = if splits > 1.0 { 4.0 * m * self.n * splits / self.bytes_per_us } else { 0.0 };
        let drawn =
            if law.sm_bandwidth > 0.0 { (tiles * law.sm_bandwidth / self.num_sms).min(1.0) } else { 1.0 };
        (compute, (read_us + partial_us) / drawn)
    }

    /// The factor by which rows that do not fill the last tile slow all down.
    fn empty_tile(&self, m: f64) -> f64 {
        if m <= SMALL_ROWS {
            return 1.0;
        }
        let tiles = m / CUTLASS_TILE_ROWS;
        1.0 + self.law.empty_tile_loss * (tiles.ceil() - tiles)
    }

    fn quantisation_us(&self, m: f64) -> f64 {
        let bytes = (Dtype::Bf16.bytes_per_value() + self.activation_bytes) * m * self.k;
        let single_us = if m <= 1.0 { self.law.single_row_us } else { 0.0 };
        self.law.quantisation_passes * bytes / self.bytes_per_us
            + self.law.quantisation_row_ns * 1e-3 * self.k
            + single_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{CompleteProfile, Profile};

    fn time_us(gpu: &str, (m, n, k): (u32, u32, u32), dtype: Dtype) -> f64 {
        let gpu = Gpu::find(gpu).unwrap();
        let profile = CompleteProfile::new(Profile::built_in(gpu).unwrap().clone(), gpu);
        Gemm::new(n, k, dtype, gpu, profile.gemm(dtype, gpu), L2::Cold).time_us(m)
    }

    #[test]
    fn a_quantised_input_costs_no_passes_over_it() {
        let gpu = Gpu::find("B200").unwrap();
        let law = GemmLaw {
            t0_us: 5.0,
            quantisation_passes: 4.0,
            quantisation_row_ns: 0.5,
            ..GemmLaw::neutral(Tiling::Best)
        };
        let gemm = Gemm::new(1024, 8000, Dtype::Fp8, gpu, &law, L2::Cold);
        let quantised = gemm.clone().with_quantised_input(2.0);
        // 4 passes over 3 bytes for each of 100 x 8,000 values at 8 TB/s, 8,000 inner steps, and the kernel's start.
        let less = 4.0 * 3.0 * 100.0 * 8000.0 / 8e6 + 4.0 + 2.0;
        assert!((gemm.time_us(100) - quantised.time_us(100) - less).abs() < 1e-9);
    }

    /// 128 x 256 tiles on 100 SMs of 1 Tflop/s each: worked out by hand.
    #[test]
    fn the_law_is_what_the_module_says() {
        let gpu = Gpu {
            bf16_flops: 100e12,
            num_sms: 100,
            hbm_bytes_per_s: 1e12,
            ..Gpu::find("H100").unwrap().clone()
        };
        let law = GemmLaw {
            t0_us: 2.0,
            compute_efficiency: 0.5,
            pad_k: 24.0,
            wave_share: 1.0,
            p: 1e3,
            ..GemmLaw::neutral(Tiling::ByRows)
        };
        let gemm = Gemm::new(16384, 1000, Dtype::Bf16, &gpu, &law, L2::Cold);
        // 2 x 128 tiles of 128 x 128 in three waves; 2 x 128 x 128 x 1024 flops at 0.5e6 per us.
        assert!((gemm.time_us(256) - (2.0 + 3.0 * 67.108_864)).abs() < 1e-6);
        // One row: 2 x 1000 x 16384 bytes of weights and a few more at 1e6 per us, in 256 tiles of
        // 64 x 64 in three waves of 16.8 us each.
        assert!((gemm.time_us(1) - (2.0 + 3.0 * 16.777_216)).abs() < 1e-6);
    }

    /// What tall products, empty tiles and single rows cost beyond [`the_law_is_what_the_module_says`].
    #[test]
    fn rows_cost_by_their_number() {
        let gpu = Gpu {
            bf16_flops: 100e12,
            num_sms: 100,
            hbm_bytes_per_s: 1e15,
            ..Gpu::find("H100").unwrap().clone()
        };
        let law = GemmLaw {
            p: 1e3,
            tall_loss: 0.1,
            empty_tile_loss: 0.4,
            single_row_us: 9.0,
            ..GemmLaw::neutral(Tiling::ByRows)
        };
        let gemm = Gemm::new(12800, 1000, Dtype::Bf16, &gpu, &law, L2::Cold);
        // Tiles of 128 x 128 x 1000 for each SM; those of 4,096 rows take 1.1 times as long.
        let tile_us = 2.0 * 128.0 * 128.0 * 1000.0 * 1e-6;
        assert!((gemm.time_us(256) - 2.0 * tile_us).abs() < 1e-9);
        assert!((gemm.time_us(320) - 3.0 * 1.2 * tile_us).abs() < 1e-9);
        assert!((gemm.time_us(4096) - 32.0 * 1.1 * tile_us).abs() < 1e-6);
        // 200 tiles of 64 x 64 on 100 SMs, and the row.
        assert!((gemm.time_us(1) - gemm.time_us(2) - 9.0).abs() < 1e-9);
    }

    #[test]
    fn never_beats_the_datasheet() {
        for m in [1, 16, 256, 8192] {
            let flops = 2.0 * f64::from(m) * 28672.0 * 4096.0;
            let bytes = 2.0 * 28672.0 * 4096.0;
            let time = time_us("H100", (m, 28672, 4096), Dtype::Bf16);
            assert!(time > (flops / 989e6).max(bytes / 3.35e6), "{m}");
        }
    }

    #[test]
    fn fewer_weight_bytes_speed_up_small_batches() {
        let time = |dtype| time_us("H100", (8, 28672, 8192), dtype);
        assert!(time(Dtype::Fp8) < 0.65 * time(Dtype::Bf16));
        assert!(time(Dtype::Mxfp4) < 0.4 * time(Dtype::Bf16));
    }

    #[test]
    fn formats_without_tensor_cores_are_expanded() {
        let time = |dtype| time_us("A100", (8192, 8192, 8192), dtype);
        // Compute-bound: the peak is that of 16 bits.
        assert!((time(Dtype::Fp8) / time(Dtype::Bf16) - 1.0).abs() < 0.05);
    }
}
