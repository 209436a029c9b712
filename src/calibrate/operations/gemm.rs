use super::super::operation::{Operation, Variant};
use crate::catalog::Gpu;
use crate::cost::Format;
use crate::cost::gemm::{Gemm, GemmLaw, Tiling};
use crate::cost::law::L2;

#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct GemmShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
}

pub(in crate::calibrate) struct GemmOperation;

const DENSE: &[&str] = &[
    "t0_us",
    "compute_efficiency",
    "memory_efficiency",
    "p",
    "tile_loss",
    "pad_k",
    "wave_share",
    "sm_bandwidth",
    "split_us",
    "tall_loss",
    "l2_speedup",
];
const QUANTISED: &[&str] = &[
    "t0_us",
    "compute_efficiency",
    "memory_efficiency",
    "p",
    "tile_loss",
    "pad_k",
    "wave_share",
    "tall_loss",
    "l2_speedup",
    "quantisation_passes",
    "quantisation_row_ns",
];
/// A single row takes another kernel.
const SINGLE_ROW: &[&str] = &[
    "t0_us",
    "compute_efficiency",
    "memory_efficiency",
    "p",
    "tile_loss",
    "pad_k",
    "wave_share",
    "tall_loss",
    "quantisation_passes",
    "quantisation_row_ns",
    "single_row_us",
];
/// Weights of four bits are often small enough for the L2.
const IN_L2: &[&str] = &[
    "t0_us",
    "compute_efficiency",
    "memory_efficiency",
    "p",
    "tile_loss",
    "pad_k",
    "wave_share",
    "l2_speedup",
    "l2_share",
    "quantisation_passes",
    "quantisation_row_ns",
];
/// Hopper's tiles are chosen, so that their edges do not tell.
const BY_ROWS: &[&str] = &[
    "t0_us",
    "compute_efficiency",
    "memory_efficiency",
    "p",
    "pad_k",
    "wave_share",
    "tall_loss",
    "empty_tile_loss",
    "l2_speedup",
    "quantisation_passes",
    "quantisation_row_ns",
];

impl Operation for GemmOperation {
    type Shape = GemmShape;
    type Law = GemmLaw;
    const SCOPE: &'static str = "n, k >= 1024";

    fn variants(_gpu: &Gpu, format: Format) -> Vec<Variant<GemmLaw>> {
        let variant = |tiling, free| Variant { law: GemmLaw::neutral(tiling), free };
        match format {
            Format::Bf16 => vec![variant(Tiling::BestSplit, DENSE), variant(Tiling::BestFineSplit, DENSE)],
            _ => vec![
                variant(Tiling::Best, QUANTISED),
                variant(Tiling::Best, SINGLE_ROW),
                variant(Tiling::Best, IN_L2),
                variant(Tiling::ByRows, BY_ROWS),
            ],
        }
    }

    fn predict_us(shape: &GemmShape, format: Format, gpu: &Gpu, law: &GemmLaw) -> f64 {
        Gemm::new(shape.n, shape.k, format.weights(), gpu, law, L2::Warm).time_us(shape.m)
    }

    fn is_in_scope(shape: &GemmShape, _format: Format, _gpu: &Gpu) -> bool {
        shape.n >= 1024 && shape.k >= 1024
    }

    fn is_serving(shape: &GemmShape) -> bool {
        (8..=256).contains(&shape.m) && shape.n >= 1024 && shape.k >= 1024
    }

    fn key(shape: &GemmShape) -> String {
        format!("{} {}", shape.n, shape.k)
    }

    fn quantities(shape: &GemmShape) -> Vec<(&'static str, f64)> {
        vec![("m", f64::from(shape.m)), ("n", f64::from(shape.n)), ("k", f64::from(shape.k))]
    }
}
