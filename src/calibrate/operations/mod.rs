//! Each operation: the shape of its timings, and which of them matter for what.

mod attention;
mod collective;
mod elementwise;
mod gemm;
mod grouped_choices;
mod moe;
mod moe_routing;

pub(super) use attention::{
    DecodeOperation, DecodeShape, Heads, MixedOperation, MixedShape, PrefillOperation, PrefillShape,
};
pub(super) use collective::{CollectiveShape, NvlinkAllReduceOperation, RateOperation};
pub(super) use elementwise::{ElementwiseOperation, ElementwiseShape, SamplerOperation, SamplerShape};
pub(super) use gemm::{GemmOperation, GemmShape};
pub(super) use moe::{MoeOperation, MoeTiming};
pub(super) use moe_routing::{MoeRouting, RoutingMemo};
