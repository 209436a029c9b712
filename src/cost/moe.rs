//! A fused mixture-of-experts layer on one rank.
//!
//! ```text
//! A       = E (1 - (1 + T ((1 - k / E)^(-1/a) - 1))^-a)    experts that T tokens hit, with a = 1.3
//! blocks  = A (x + 1/2 + exp(-2 x) / 2),  x = T k / A / block
//! compute = 2 w H (I + pad) blocks (block + pad_rows) / (peak efficiency)
//! memory  = A (w H (I + pad) weights / bandwidth + per_expert_us)      w: 3 matrices, 2 without a gate
//! t       = t0 + choice_us k + pnorm(compute, memory) / (1 + full_tile_gain rows / 128 / blocks)
//!              + depth_us (H + 2 I) / 10,000
//!              + (activation_passes T k (2 H + w I) + token_passes T H) 16 bits / bandwidth
//! ```
//!
//! Sorting, quantising and adding up rows are kernels of their own around the products: nothing hides
//! them, and some pass over tokens rather than over their choices.
//!
//! An expert's rows are padded to blocks. vLLM's Triton kernel chooses them by the number of tokens
//! (`get_default_config` in `fused_moe.py`, which changed with the releases), but for the shapes that
//! it ships a tuned configuration of, which run faster ([`super::tuned_moe`]); other kernels fit the
//! block to the rows. CUTLASS's kernels in 8 bits on Hopper are faster the fuller their tiles of 128 rows
//! are. On Blackwell some routers make do with CUTLASS's kernels instead of TensorRT-LLM's.

use serde::{Deserialize, Serialize};

use super::law::{L2, law};
use super::smooth_max::smooth_max;
use crate::catalog::{Dtype, Gpu};

/// How many rows a block of one expert's tokens has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockRows {
    /// 16 up to as many tokens as experts, 64 beyond: vLLM up to 0.14.
    Default,
    /// 16 up to 32 tokens, 32 up to 96, 64 up to 512, 128 beyond: vLLM since.
    Tokens,
    /// 16 up to 64 tokens, 64 beyond: vLLM with weights that are scaled by blocks.
    Blockwise,
    /// The power of two that the rows of an expert that is hit fit in, 16 to 128.
    Fitted,
    /// The same from 8.
    FittedFromEight,
    /// The power of two that the mean rows of all experts fit in, 8 to 64: TensorRT-LLM's kernels.
    MeanToSixtyFour,
}

law! {
    /// See the module.
    pub struct MoeLaw[block_rows: BlockRows] {
        t0_us = 30.0 in [0.1, 150.0] else 0.0,
        /// Beyond that for each of a token's choices, which are sought and added up one after the other.
        choice_us = 2.0 in [0.0, 20.0] else 0.0,
        compute_efficiency = 0.6 in [0.05, 1.2] else 1.0,
        /// Above 1 where fewer experts are hit than by independent choices.
        memory_efficiency = 0.9 in [0.1, 1.3] else 1.0,
        p = 2.0 in [0.7, 10.0] else 2.0,
        /// Over what a choice reads and writes.
        activation_passes = 2.0 in [0.1, 20.0] else 1.0,
        /// Over a token's hidden values, whatever it chooses.
        token_passes = 2.0 in [0.0, 60.0] else 0.0,
        /// Rows that loading the weights of a block is worth.
        pad_rows = 15.0 in [0.0, 500.0] else 0.0,
        /// Intermediate values that tiles are padded by, read and computed.
        pad_inter = 50.0 in [0.0, 1000.0] else 0.0,
        /// What each expert that is hit adds, microseconds.
        per_expert_us = 0.1 in [0.0, 3.0] else 0.0,
        /// How much faster full tiles of 128 rows are than nearly empty ones.
        full_tile_gain = 0.2 in [0.0, 3.0] else 0.0,
        /// How much longer CUTLASS's kernels take, where most models have others.
        cutlass_loss = 1.0 in [0.0, 3.0] else 0.0,
        /// Gain of a tuned configuration in compute.
        tuned_gain = 1.3 in [0.7, 4.0] else 1.0,
        /// Efficiency of the smallest blocks against larger ones.
        small_block_gain = 1.0 in [0.05, 4.0] else 1.0,
        /// Depth of the inner loops, microseconds for each 10,000 steps.
        depth_us = 10.0 in [0.0, 60.0] else 0.0,
        /// Share of the choices of other ranks' experts that the kernel passes over all the same.
        absent_share = 0.5 in [0.0, 1.0] else 0.0,
        /// Speed of a warm L2 against memory, for weights up to half of its size.
        l2_speedup = 2.0 in [1.0, 10.0] else 1.0,
    }
}

/// Share of the L2 up to which a benchmark's weights stay in it.
const L2_SHARE: f64 = 0.5;

/// The sizes of a layer on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoeShape {
    pub hidden: u32,
    /// After division by tensor parallelism.
    pub inter: u32,
    /// On all ranks.
    pub num_experts: u32,
    /// A share of the model's where several ranks hold the experts.
    pub experts_per_token: f64,
    /// All choices of a token, of which kernels may pass over those of other ranks too.
    pub rows_per_token: f64,
    /// Three with a gate, two without.
    pub expert_matrices: u32,
    pub dtype: Dtype,
    /// Whether a tuned configuration of the kernel is used.
    pub is_tuned: bool,
    /// Whether CUTLASS's kernel is, where most models have another.
    pub is_cutlass: bool,
}

/// How the tokens of a step choose the experts of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertLoads {
    /// Experts that are chosen at all.
    pub hit: f64,
    /// Choices in all.
    pub rows: f64,
    /// Blocks that the rows of each expert fill, for each of [`BLOCK_ROWS`].
    pub blocks: [f64; 5],
}

/// Rows that a block can have.
pub const BLOCK_ROWS: [f64; 5] = [8.0, 16.0, 32.0, 64.0, 128.0];

impl ExpertLoads {
    /// `rows` choices over `hit` experts, each independent: half a block is padding, less of it where
    /// most experts have a single row.
    pub fn independent(rows: f64, hit: f64) -> Self {
        let hit = hit.min(rows).max(1e-9);
        let blocks = BLOCK_ROWS.map(|block| {
            let full = rows / hit / block;
            hit * (full + 0.5 + 0.5 * (-2.0 * full).exp())
        });
        Self { hit, rows, blocks }
    }

    /// Known rows of each expert.
    pub fn listed(loads: impl IntoIterator<Item = f64>) -> Self {
        let mut all = Self { hit: 0.0, rows: 0.0, blocks: [0.0; 5] };
        for rows in loads {
            all.hit += f64::from(u8::from(rows > 0.0));
            all.rows += rows;
            all.blocks
                .iter_mut()
                .zip(BLOCK_ROWS)
                .for_each(|(blocks, block)| *blocks += (rows / block).ceil());
        }
        all
    }

    /// Of several, at least one.
    pub fn mean(loads: &[Self]) -> Self {
        let share = 1.0 / loads.len() as f64;
        let mut mean = Self { hit: 0.0, rows: 0.0, blocks: [0.0; 5] };
        for load in loads {
            mean.hit += share * load.hit;
            mean.rows += share * load.rows;
            mean.blocks.iter_mut().zip(load.blocks).for_each(|(mean, blocks)| *mean += share * blocks);
        }
        mean
    }
}

/// How evenly served tokens choose: the shape of a gamma distribution of how much each expert is liked
/// (infinite: all alike). What gpt-oss-120b took on two H100 with 8 to 64 users is what 6 to 18 % fewer
/// experts would take than independent even choices hit, which is this shape. Kimi-K2.5 and MiniMax-M2.5, whose
/// routers were trained until all experts are chosen alike, take no other time on B200 and H200.
const EVENNESS: f64 = 1.3;

/// The share of experts that tokens miss which each choose a `share` of them; `(1 - share)^tokens` if they
/// liked all alike.
fn missed(num_tokens: u32, share: f64) -> f64 {
    let liked = (1.0 - share).max(0.0).powf(-EVENNESS.recip()) - 1.0;
    (1.0 + f64::from(num_tokens) * liked).powf(-EVENNESS)
}

#[derive(Clone, Debug)]
pub struct MoeLayer {
    law: MoeLaw,
    is_tuned: bool,
    /// Of the products, by the kernel.
    kernel_factor: f64,
    num_experts: f64,
    experts_per_token: f64,
    rows_per_token: f64,
    l2: L2,
    l2_bytes: f64,
    expert_bytes: f64,
    expert_us: f64,
    row_us: f64,
    activation_us_per_row: f64,
    token_us: f64,
    fixed_us: f64,
}

impl MoeLayer {
    pub fn new(shape: &MoeShape, gpu: &Gpu, law: &MoeLaw, l2: L2) -> Self {
        let hidden = f64::from(shape.hidden);
        let inter = f64::from(shape.inter);
        let peak = gpu.native_matmul_flops(shape.dtype).unwrap_or(gpu.bf16_flops);
        let bytes_per_us = gpu.hbm_bytes_per_s * 1e-6;
        let matrices = f64::from(shape.expert_matrices);
        // In and out of both products.
        let activations = (2.0 * hidden + matrices * inter) * Dtype::Bf16.bytes_per_value();
        let expert_bytes = matrices * hidden * inter * shape.dtype.bytes_per_value();
        Self {
            law: *law,
            is_tuned: shape.is_tuned,
            kernel_factor: if shape.is_cutlass { 1.0 + law.cutlass_loss } else { 1.0 },
            num_experts: f64::from(shape.num_experts),
            experts_per_token: shape.experts_per_token,
            rows_per_token: shape.rows_per_token,
            l2,
            l2_bytes: gpu.l2_bytes as f64,
            expert_bytes,
            expert_us: expert_bytes * (inter + law.pad_inter)
                / (inter * bytes_per_us * law.memory_efficiency)
                + law.per_expert_us,
            row_us: 2.0 * matrices * hidden * (inter + law.pad_inter)
                / (peak * 1e-6 * law.compute_efficiency),
            activation_us_per_row: law.activation_passes * activations / bytes_per_us,
            token_us: law.token_passes * hidden * Dtype::Bf16.bytes_per_value() / bytes_per_us,
            fixed_us: law.t0_us
                + law.choice_us * shape.rows_per_token
                + law.depth_us * 1e-4 * (hidden + 2.0 * inter),
        }
    }

    pub fn time_us(&self, num_tokens: u32) -> f64 {
        self.time_with_choices_us(num_tokens, self.experts_per_token)
    }

    /// Where a token chooses so many of this rank's experts, on average.
    pub fn time_with_choices_us(&self, num_tokens: u32, experts_per_token: f64) -> f64 {
        let share = experts_per_token / self.num_experts;
        let hit = self.num_experts * (1.0 - missed(num_tokens, share));
        let loads = ExpertLoads::independent(f64::from(num_tokens) * experts_per_token, hit);
        self.time_with_loads_us(num_tokens, &loads)
    }

    /// For benchmarks that say more of how their tokens choose.
    pub fn time_with_loads_us(&self, num_tokens: u32, loads: &ExpertLoads) -> f64 {
        let law = &self.law;
        let ExpertLoads { hit, rows, blocks } = *loads;
        let rule = if self.is_tuned { BlockRows::Fitted } else { law.block_rows };
        let fitting =
            |rows: f64| BLOCK_ROWS.iter().position(|&block| rows <= block).unwrap_or(BLOCK_ROWS.len() - 1);
        let size = match rule {
            // 16 or 64 rows.
            BlockRows::Default => 1 + 2 * usize::from(f64::from(num_tokens) > self.num_experts),
            BlockRows::Tokens => 1 + [32, 96, 512].iter().filter(|&&most| num_tokens > most).count(),
            BlockRows::Blockwise => 1 + 2 * usize::from(num_tokens > 64),
            BlockRows::Fitted => fitting(rows / hit).max(1),
            BlockRows::FittedFromEight => fitting(rows / hit),
            BlockRows::MeanToSixtyFour => {
                fitting(f64::from(num_tokens) * self.experts_per_token / self.num_experts).min(3)
            }
        };
        let smallest = match rule {
            BlockRows::FittedFromEight | BlockRows::MeanToSixtyFour => 0,
            _ => 1,
        };
        let (block, num_blocks) = (BLOCK_ROWS[size], blocks[size]);
        let mut gain = 1.0;
        if self.is_tuned {
            gain *= law.tuned_gain;
        } else if size == smallest {
            gain *= law.small_block_gain;
        }
        let compute = self.row_us * num_blocks * (block + law.pad_rows) / gain;
        let full = rows / BLOCK_ROWS[4] / blocks[4];
        let products_us = |memory| {
            self.kernel_factor * smooth_max(compute, memory, law.p) / (1.0 + law.full_tile_gain * full)
        };
        let tokens = f64::from(num_tokens);
        let absent = (self.rows_per_token * tokens - rows).max(0.0);
        let passed = rows + law.absent_share * absent;
        let speedup = self.l2.speedup(hit * self.expert_bytes, self.l2_bytes, law.l2_speedup, L2_SHARE);
        let memory = hit * self.expert_us / speedup;
        self.fixed_us + products_us(memory) + passed * self.activation_us_per_row + tokens * self.token_us
    }
}

/// The load of the busiest of the ranks that share a layer's experts.
///
/// On average `T` tokens make `r = T k / n` choices on each of `n` ranks. Choices that are independent
/// and even have a variance of about `r (1 - 1/n)`, so the most of `n` ranks is taken as
/// `min(r + sqrt(2 ln n r (1 - 1/n)), T min(k, experts of a rank))`. Served tokens prefer some experts,
/// which vLLM's load balancer evens out where it is on; neither is modelled.
#[derive(Clone, Copy, Debug)]
pub struct BusiestRank {
    ranks: f64,
    experts_per_token: f64,
    most_per_token: f64,
}

impl BusiestRank {
    /// `num_ranks` is at least one, `experts_per_token` are chosen of all ranks' experts.
    pub fn new(num_ranks: u32, experts_per_token: u32, experts_of_rank: u32) -> Self {
        Self {
            ranks: f64::from(num_ranks),
            experts_per_token: f64::from(experts_per_token),
            most_per_token: f64::from(experts_per_token.min(experts_of_rank)),
        }
    }

    /// How many experts of this rank a token chooses, on average over `tokens`.
    pub fn experts_per_token(self, tokens: f64) -> f64 {
        let mean = tokens * self.experts_per_token / self.ranks;
        let spread = 2.0 * self.ranks.ln() * mean * (1.0 - 1.0 / self.ranks);
        (mean + spread.sqrt()).min(tokens * self.most_per_token) / tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_rank_has_more_than_its_share_and_no_more_than_all() {
        let busiest = BusiestRank::new(8, 8, 32);
        // One row each on average: 1 + sqrt(2 ln 8 x 7/8).
        assert!((busiest.experts_per_token(1.0) - (1.0 + (2.0 * 8f64.ln() * 0.875).sqrt())).abs() < 1e-12);
        // The more tokens, the more even.
        assert!(busiest.experts_per_token(10_000.0) < 1.02);
        let few = BusiestRank::new(8, 8, 2);
        assert_eq!(few.experts_per_token(1.0), 2.0);
    }

    #[test]
    fn tokens_that_like_some_experts_more_hit_fewer() {
        // One token hits what it chooses, and many tokens all.
        assert!((1.0 - missed(1, 0.25) - 0.25).abs() < 1e-12);
        assert_eq!((missed(0, 0.25), missed(7, 1.0)), (1.0, 0.0));
        assert!(missed(100_000, 0.03) < 1e-3);
        // Four of 128: 128 (1 - (1 + 32 ((31/32)^(-1/1.3) - 1))^-1.3), where even choices hit 81.7.
        assert!((128.0 * (1.0 - missed(32, 4.0 / 128.0)) - 68.00).abs() < 0.01);
    }

    fn layer(expert_matrices: u32, block_rows: BlockRows) -> MoeLayer {
        // 100 Tflop/s and 1 TB/s.
        let gpu = Gpu { bf16_flops: 100e12, hbm_bytes_per_s: 1e12, ..Gpu::find("H100").unwrap().clone() };
        let shape = MoeShape {
            hidden: 1000,
            inter: 500,
            num_experts: 64,
            experts_per_token: 4.0,
            rows_per_token: 4.0,
            expert_matrices,
            dtype: Dtype::Bf16,
            is_tuned: false,
            is_cutlass: false,
        };
        let law = MoeLaw { p: 1e3, activation_passes: 0.0, ..MoeLaw::neutral(block_rows) };
        MoeLayer::new(&shape, &gpu, &law, L2::Cold)
    }

    /// One token hits as many experts as it chooses; each brings its weights.
    #[test]
    fn few_tokens_read_the_experts_they_hit() {
        assert!((layer(3, BlockRows::Default).time_us(1) - 4.0 * 3.0).abs() < 1e-9);
        assert!((layer(2, BlockRows::Default).time_us(1) - 4.0 * 2.0).abs() < 1e-9);
        let ten = ExpertLoads::independent(64.0, 10.0);
        assert!((layer(3, BlockRows::Default).time_with_loads_us(16, &ten) - 10.0 * 3.0).abs() < 1e-9);
    }

    /// Three passes over what 16 choices move, two over what four tokens bring, at 1 TB/s.
    #[test]
    fn nothing_hides_what_moves_activations() {
        let mut layer = layer(3, BlockRows::Default);
        let one = ExpertLoads::independent(16.0, 1.0);
        let products_us = layer.time_with_loads_us(4, &one);
        layer.activation_us_per_row = 3.0 * (2.0 * 1000.0 + 3.0 * 500.0) * 2.0 * 1e-6;
        layer.token_us = 2.0 * 1000.0 * 2.0 * 1e-6;
        let expected_us = products_us + 16.0 * 3.0 * 7000.0 * 1e-6 + 4.0 * 4000.0 * 1e-6;
        assert!((layer.time_with_loads_us(4, &one) - expected_us).abs() < 1e-9);
    }

    /// 4096 tokens on 64 experts: 256 rows each, four blocks of 64 and half a block of padding.
    #[test]
    fn many_tokens_compute_their_rows_and_padding() {
        let all = ExpertLoads::independent(4.0 * 4096.0, 64.0);
        let flops = 6.0 * 1000.0 * 500.0 * 64.0 * 64.0 * (4.0 + 0.5 + 0.5 * (-8f64).exp());
        assert!(
            (layer(3, BlockRows::Default).time_with_loads_us(4096, &all) / (flops / 1e8) - 1.0).abs() < 1e-6
        );
        let flops = 6.0 * 1000.0 * 500.0 * 64.0 * 128.0 * (2.0 + 0.5 + 0.5 * (-4f64).exp());
        assert!(
            (layer(3, BlockRows::Fitted).time_with_loads_us(4096, &all) / (flops / 1e8) - 1.0).abs() < 1e-6
        );
    }

    /// 100 experts with a row for each token: the blocks of each rule, by hand.
    #[test]
    fn blocks_follow_the_tokens() {
        let rows = |rule, tokens: u32| {
            let mut layer = layer(3, rule);
            layer.num_experts = 100.0;
            layer.expert_us = 0.0;
            layer.activation_us_per_row = 0.0;
            let loads = ExpertLoads { hit: 1.0, rows: f64::from(tokens), blocks: [1.0; 5] };
            (layer.time_with_loads_us(tokens, &loads) / layer.row_us).round()
        };
        for (rule, expected) in [
            (BlockRows::Default, [16.0, 16.0, 64.0, 64.0]),
            (BlockRows::Tokens, [16.0, 32.0, 64.0, 128.0]),
            (BlockRows::Blockwise, [16.0, 64.0, 64.0, 64.0]),
            (BlockRows::Fitted, [32.0, 128.0, 128.0, 128.0]),
            (BlockRows::FittedFromEight, [32.0, 128.0, 128.0, 128.0]),
            // Four choices each: 1.3, 3.8, 20.5 and 20.5 rows of each of 100 experts.
            (BlockRows::MeanToSixtyFour, [8.0, 8.0, 32.0, 32.0]),
        ] {
            assert_eq!([32, 96, 512, 513].map(|tokens| rows(rule, tokens)), expected, "{rule:?}");
        }
    }

    /// Ten experts of 3 MB at 1 TB/s and half a microsecond each, three quarters of whose tiles of 128 rows are
    /// full; by CUTLASS's kernel in twice the time.
    #[test]
    fn full_tiles_are_faster_and_other_kernels_slower() {
        let mut layer = layer(3, BlockRows::FittedFromEight);
        layer.expert_us += 0.5;
        layer.row_us = 0.0;
        layer.activation_us_per_row = 0.0;
        let loads = ExpertLoads { hit: 10.0, rows: 960.0, blocks: [120.0, 60.0, 30.0, 15.0, 10.0] };
        assert!((layer.time_with_loads_us(960, &loads) - 35.0).abs() < 1e-9);
        layer.law.full_tile_gain = 2.0;
        assert!((layer.time_with_loads_us(960, &loads) - 35.0 / 2.5).abs() < 1e-9);
        layer.kernel_factor = 2.0;
        assert!((layer.time_with_loads_us(960, &loads) - 70.0 / 2.5).abs() < 1e-9);
    }

    /// A benchmark's weights, read again and again: ten experts of 3 MB in an L2 of 50 MiB.
    #[test]
    fn a_warm_l2_brings_few_experts_faster() {
        let mut layer = layer(3, BlockRows::Default);
        layer.law.l2_speedup = 3.0;
        layer.activation_us_per_row = 0.0;
        let ten = ExpertLoads::independent(10.0, 10.0);
        let cold = layer.time_with_loads_us(2, &ten);
        layer.l2 = L2::Warm;
        let speedup = 1.0 + 2.0 / (1.0 + (30e6_f64 / (25.0 * 1024.0 * 1024.0)).powi(4));
        assert!((cold / layer.time_with_loads_us(2, &ten) - speedup).abs() < 1e-6);
    }
}
