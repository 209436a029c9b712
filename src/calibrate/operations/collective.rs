use super::super::operation::{Operation, Variant};
use crate::catalog::Gpu;
use crate::cost::Format;
use crate::cost::collective::{AllGather, AllReduce, AllReduceLaw, RateLaw};
use crate::cost::nvlink_all_reduce::NvlinkAllReduceLaw;

#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct CollectiveShape {
    pub num_gpus: u32,
    pub bytes: f64,
}

fn key(shape: &CollectiveShape) -> String {
    // Messages of one size stay together; so few numbers of GPUs cannot be held out.
    format!("{}", shape.bytes)
}

fn quantities(shape: &CollectiveShape) -> Vec<(&'static str, f64)> {
    vec![("num_gpus", f64::from(shape.num_gpus)), ("bytes", shape.bytes)]
}

/// Activations of 8 to 256 tokens of 8,192 values.
fn is_serving(shape: &CollectiveShape) -> bool {
    (131_072.0..=4_194_304.0).contains(&shape.bytes)
}

pub(in crate::calibrate) struct NvlinkAllReduceOperation;

const BLACKWELL: &[&str] = &[
    "t0_us",
    "rank_us",
    "direct_efficiency",
    "peer_efficiency",
    "wait_us",
    "symmetric_us",
    "symmetric_efficiency",
    "symmetric_peer_efficiency",
    "nccl_us",
    "nccl_efficiency",
    "nccl_rank_power",
];
const HOPPER: &[&str] = &[
    "t0_us",
    "rank_us",
    "direct_efficiency",
    "symmetric_us",
    "symmetric_efficiency",
    "nccl_us",
    "nccl_efficiency",
    "nccl_rank_power",
];
const AMPERE: &[&str] = &[
    "t0_us",
    "rank_us",
    "direct_efficiency",
    "peer_efficiency",
    "wait_us",
    "nccl_us",
    "nccl_efficiency",
    "nccl_rank_power",
];

impl Operation for NvlinkAllReduceOperation {
    type Shape = CollectiveShape;
    type Law = NvlinkAllReduceLaw;
    const SCOPE: &'static str = "in a CUDA graph";

    fn variants(gpu: &Gpu, _format: Format) -> Vec<Variant<NvlinkAllReduceLaw>> {
        // Two steps are taken on Hopper with 4 and 6 GPUs only, which nobody has published.
        let free = match gpu.compute_capability {
            90 => HOPPER,
            100 | 103 => BLACKWELL,
            _ => AMPERE,
        };
        vec![Variant { law: NvlinkAllReduceLaw::neutral(), free }]
    }

    fn predict_us(shape: &CollectiveShape, _format: Format, gpu: &Gpu, law: &NvlinkAllReduceLaw) -> f64 {
        let all_reduce = AllReduce::new(shape.num_gpus, gpu, &AllReduceLaw::Nvlink(*law));
        all_reduce.map_or(0.0, |all_reduce| all_reduce.time_us(shape.bytes))
    }

    fn is_in_scope(_shape: &CollectiveShape, _format: Format, _gpu: &Gpu) -> bool {
        true
    }

    fn is_serving(shape: &CollectiveShape) -> bool {
        is_serving(shape)
    }

    fn key(shape: &CollectiveShape) -> String {
        key(shape)
    }

    fn quantities(shape: &CollectiveShape) -> Vec<(&'static str, f64)> {
        quantities(shape)
    }
}

/// A collective between one number of GPUs.
pub(in crate::calibrate) struct RateOperation;

impl Operation for RateOperation {
    type Shape = CollectiveShape;
    type Law = RateLaw;
    const SCOPE: &'static str = "all rows";

    fn variants(_gpu: &Gpu, _format: Format) -> Vec<Variant<RateLaw>> {
        vec![Variant { law: RateLaw::neutral(0), free: &["t0_us", "gigabytes_per_s", "p"] }]
    }

    fn predict_us(shape: &CollectiveShape, _format: Format, _gpu: &Gpu, law: &RateLaw) -> f64 {
        AllGather::new(shape.num_gpus, [law]).map_or(0.0, |gather| gather.time_us(shape.bytes))
    }

    fn is_in_scope(_shape: &CollectiveShape, _format: Format, _gpu: &Gpu) -> bool {
        true
    }

    fn is_serving(shape: &CollectiveShape) -> bool {
        is_serving(shape)
    }

    fn key(shape: &CollectiveShape) -> String {
        key(shape)
    }

    fn quantities(shape: &CollectiveShape) -> Vec<(&'static str, f64)> {
        quantities(shape)
    }
}
