//! What `kvsim trace` does: tells of a trace, and makes others of it.

mod check;
mod error;
pub mod info;
mod sessions;
mod write;

pub use check::{Totals, read_back};
pub use error::TraceError;
pub use sessions::SessionFinder;
pub use write::{Losses, PromptsKept, TraceWriter, WRITABLE};
