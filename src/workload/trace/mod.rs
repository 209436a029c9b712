//! Recorded traffic: the formats that it comes in, and its replay.
//!
//! A format is a file here that implements [`TraceReader`], and its lines in [`TraceFormat`]. What
//! readers yield, [`TraceRequest`]s, is the same for all: [`Trace`] replays it, [`KvsimWriter`]
//! writes it in kvsim's own format.

mod config;
mod decompress;
mod fields;
mod format;
mod hash_ids;
mod head;
mod input;
mod json;
pub mod kvsim;
mod kvsim_writer;
mod mistake;
mod mooncake;
mod record;
mod replay;
mod session_id;
mod shared;

pub use config::{ReadOptions, TraceConfig};
pub use format::{TraceFormat, open};
pub use input::TraceInput;
pub use kvsim::KvsimHeader;
pub use kvsim_writer::KvsimWriter;
pub use record::{FIRST_UNKNOWN_TOKEN, TraceReader, TraceRequest, TraceTokens};
pub use replay::Trace;
pub use shared::{SharedTrace, SharedTraces};
