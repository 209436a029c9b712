//! How long a step takes: the shape of a batch in, GPU and host time out.
//!
//! [`CostModel`] is the one seam. [`CostModel::Constant`] gives tests exact times;
//! [`CostModel::Roofline`] adds up the operations of a step, one file each. An operation's law has a
//! few numbers, fitted to measured kernels by `calibrate` and kept in a [`Profile`]. The room knows
//! nothing of the engine but the names of its hash algorithms: the simulation fills a [`StepShape`] from what the scheduler decided.

pub mod attention;
pub mod bounds;
pub mod collective;
mod complete_profile;
pub mod decode_attention;
pub mod drafter;
pub mod elementwise;
mod expert_layer;
mod format;
pub mod gemm;
mod graphs;
pub mod hashing;
pub mod host;
pub mod law;
mod layers;
mod memo;
pub mod mixed_attention;
mod model;
pub mod moe;
pub mod nvlink_all_reduce;
mod parallelism;
pub mod prefill_attention;
pub mod profile;
mod roofline;
mod router;
mod shared_experts;
mod smooth_max;
mod step_shape;
pub mod tuned_moe;

pub use complete_profile::CompleteProfile;
pub use drafter::Drafts;
pub use format::Format;
pub use graphs::{CudaGraphs, CudagraphMode};
pub use hashing::{BlockHashing, HashingLaw, HashingProfile};
pub use model::{ConstantCost, CostModel};
pub use parallelism::{All2AllBackend, Parallelism, StepTokens};
pub use profile::{Fit, FitError, Profile, ProfileError};
pub use roofline::Roofline;
pub use router::RouterKernels;
pub use step_shape::{PrefillChunk, StepShape, StepTime};
