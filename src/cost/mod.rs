//! How long a step takes: the shape of a batch in, GPU and host time out.
//!
//! [`CostModel`] is the one seam. [`CostModel::Constant`] gives tests exact times;
//! [`CostModel::Roofline`] adds up the operations of a step, one file each, with [`Coefficients`]
//! fitted to measured kernels. The room knows nothing of the engine: the simulation fills a
//! [`StepShape`] from what the scheduler decided.

mod all_reduce;
mod attention;
pub mod coefficients;
mod decode_attention;
mod elementwise;
mod gemm;
mod host;
mod layers;
mod memo;
mod mixed_attention;
mod model;
mod moe;
mod prefill_attention;
mod roofline;
mod smooth_max;
mod step_shape;

pub use coefficients::{Coefficients, CoefficientsError, FitError, HostCoefficients};
pub use model::{ConstantCost, CostModel};
pub use roofline::Roofline;
pub use step_shape::{PrefillChunk, StepBreakdown, StepShape, StepTime};

#[cfg(test)]
mod measured_tests;
