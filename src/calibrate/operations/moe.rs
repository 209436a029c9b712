use super::super::operation::{Operation, Variant};
use crate::catalog::Gpu;
use crate::cost::Format;
use crate::cost::law::L2;
use crate::cost::moe::{BlockRows, ExpertLoads, MoeLaw, MoeLayer, MoeShape};
use crate::cost::tuned_moe;

#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct MoeTiming {
    pub tokens: u32,
    pub hidden: u32,
    /// After division by tensor parallelism.
    pub inter: u32,
    pub experts_per_token: u32,
    pub num_experts: u32,
    pub expert_matrices: u32,
    /// Ranks that share the experts, of which one was timed.
    pub expert_parallel: u32,
    /// Of the rank that was timed, as the benchmark's routing has it.
    pub loads: ExpertLoads,
}

/// All experts on one rank, of a size that models have.
fn is_whole(shape: &MoeTiming) -> bool {
    shape.expert_parallel == 1 && shape.inter >= 256
}

/// Whether reading as much from memory as the L2 holds takes longer than most layers: on cards with
/// GDDR memory and the L2 of the latest, 75 us and more, elsewhere up to 20.
fn fills_l2_slowly(gpu: &Gpu) -> bool {
    gpu.l2_bytes as f64 / gpu.hbm_bytes_per_s > 50e-6
}

/// The L2 holds enough experts, and long enough, to tell.
const SLOW_MEMORY: &[&str] = &[
    "t0_us",
    "compute_efficiency",
    "memory_efficiency",
    "p",
    "activation_passes",
    "pad_rows",
    "pad_inter",
    "small_block_gain",
    "depth_us",
    "absent_share",
    "l2_speedup",
];
/// Only 16-bit kernels have tuned configurations.
const TUNED: &[&str] = &[
    "t0_us",
    "compute_efficiency",
    "memory_efficiency",
    "p",
    "activation_passes",
    "pad_rows",
    "pad_inter",
    "small_block_gain",
    "depth_us",
    "absent_share",
    "tuned_gain",
];
/// Tokens are quantised before they are sorted.
const QUANTISED: &[&str] = &[
    "t0_us",
    "compute_efficiency",
    "memory_efficiency",
    "p",
    "activation_passes",
    "token_passes",
    "pad_rows",
    "pad_inter",
    "small_block_gain",
    "depth_us",
    "absent_share",
];

/// Marlin's layers have a fixed part of 33 to 40 us with eight choices of a token (int4) and of 48 to 65 with
/// sixteen (mxfp4) on H100, H200 and B200, that is 1.9 to 3.6 us for each. Each format has been timed with one
/// number of choices, so no fit can tell; gpt-oss, which mxfp4's numbers are for too, makes four. What servers of
/// it took speaks for the lower end.
const MARLIN_CHOICE_US: f64 = 2.0;

pub(in crate::calibrate) struct MoeOperation;

impl Operation for MoeOperation {
    type Shape = MoeTiming;
    type Law = MoeLaw;
    const SCOPE: &'static str = "inter / tp >= 256, no expert parallelism but for its own kernels";

    fn variants(gpu: &Gpu, format: Format) -> Vec<Variant<MoeLaw>> {
        let free: &[&str] = if fills_l2_slowly(gpu) {
            SLOW_MEMORY
        } else if format == Format::Bf16 {
            TUNED
        } else {
            QUANTISED
        };
        let choice_us = if format == Format::Mxfp4Marlin { MARLIN_CHOICE_US } else { 0.0 };
        [BlockRows::Default, BlockRows::Tokens, BlockRows::Blockwise, BlockRows::Fitted]
            .map(|rows| Variant { law: MoeLaw { choice_us, ..MoeLaw::neutral(rows) }, free })
            .into_iter()
            .collect()
    }

    fn predict_us(shape: &MoeTiming, format: Format, gpu: &Gpu, law: &MoeLaw) -> f64 {
        // A rank holds its share of the experts.
        let num_experts = (shape.num_experts / shape.expert_parallel).max(1);
        let local = MoeShape {
            hidden: shape.hidden,
            inter: shape.inter,
            num_experts,
            experts_per_token: f64::from(shape.experts_per_token) / f64::from(shape.expert_parallel),
            rows_per_token: f64::from(shape.experts_per_token),
            expert_matrices: shape.expert_matrices,
            // Its loads are known.
            is_balanced: true,
            dtype: format.weights(),
            is_tuned: format == Format::Bf16 && tuned_moe::is_tuned(gpu, num_experts, shape.inter),
        };
        MoeLayer::new(&local, gpu, law, L2::Warm).time_with_loads_us(shape.tokens, &shape.loads)
    }

    fn is_in_scope(shape: &MoeTiming, format: Format, _gpu: &Gpu) -> bool {
        is_whole(shape) || format == Format::Fp8BlockCutlass && shape.inter >= 256
    }

    fn is_serving(shape: &MoeTiming) -> bool {
        (8..=256).contains(&shape.tokens) && is_whole(shape)
    }

    fn key(shape: &MoeTiming) -> String {
        format!("{} {} {} {}", shape.hidden, shape.inter, shape.experts_per_token, shape.num_experts)
    }

    fn quantities(shape: &MoeTiming) -> Vec<(&'static str, f64)> {
        vec![
            ("tokens", f64::from(shape.tokens)),
            ("hidden", f64::from(shape.hidden)),
            ("inter", f64::from(shape.inter)),
            ("experts", f64::from(shape.num_experts)),
            ("topk", f64::from(shape.experts_per_token)),
        ]
    }

    fn weight(shape: &MoeTiming, format: Format, gpu: &Gpu) -> f64 {
        match Self::is_in_scope(shape, format, gpu) {
            true if Self::is_serving(shape) => 1.5,
            true => 1.0,
            false => 0.1,
        }
    }
}
