//! The microbench harness: times the kernels of a decoder layer on the GPU at hand.
//!
//! ```text
//! plan (operations and shapes) --> session --> measurements --> timing tables (CSV)
//!                                     |
//!              check against f64, warm up, time groups, watch the clocks
//!                                     |
//!                        device: CUDA, wgpu, or a made-up one in tests
//! ```
//!
//! A device allocates and fills the inputs of one operation in several sets that together exceed the
//! L2 cache, launches the kernel on a set, and times many launches in one submission with its own
//! clock. Everything else is decided here, the same for all devices.

#[cfg_attr(
    not(any(feature = "cuda", feature = "wgpu")),
    allow(dead_code, reason = "the references need a part of it, the rest lays out batches for a backend")
)]
mod attention_inputs;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod find_device;
mod inputs;
mod measure;
mod operation;
mod plan;
mod reference;
mod session;
mod session_files;
mod table;
#[cfg(test)]
mod tests;
#[cfg(feature = "wgpu")]
mod wgpu_device;

pub use device::{DeviceError, DeviceKind, ElementType, Identity, Kernel, Telemetry};
pub use find_device::{Backend, NoDevice, find_device, list_devices};
pub use measure::Timing;
pub use operation::Operation;
pub use plan::{Effort, plan};
pub use session::{Measurement, Outcome, Session, SessionReport};
pub use table::{TableError, TableFolder};
