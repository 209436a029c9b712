//! Recorded traffic: the formats that it comes in, and its replay.
//!
//! A format is a file here that implements [`TraceReader`], and its lines in [`TraceFormat`]. What
//! readers yield, [`TraceRequest`]s, is the same for all: [`Trace`] replays it, [`KvsimWriter`]
//! writes it in kvsim's own format.

mod aiperf;
mod azure;
mod burstgpt;
mod config;
mod conversations;
mod csv_rows;
mod date_time;
mod decompress;
mod dynamo;
mod fields;
mod format;
mod hash_ids;
mod head;
mod hf_tokenizer;
mod in_order;
mod input;
mod items;
mod json;
pub mod kvsim;
mod kvsim_writer;
mod messages;
mod mistake;
mod mooncake;
mod openai_chat;
mod prefix_blocks;
mod qwen_bailian;
mod record;
mod replay;
mod requests;
mod reuse;
mod session_id;
mod shared;
mod sharegpt;
mod skip_bad_rows;
mod text;
mod turns;
mod vllm_bench;
mod vllm_multi_turn;

pub use config::{RateArrivals, ReadOptions, TextConfig, TraceArrivals, TraceConfig};
pub use format::{TraceFormat, open};
pub use hf_tokenizer::HfTokenizer;
pub use input::TraceInput;
pub use kvsim::KvsimHeader;
pub use kvsim_writer::KvsimWriter;
pub use record::{FIRST_UNKNOWN_TOKEN, SkippedRows, TraceReader, TraceRequest, TraceTokens};
pub use replay::Trace;
pub(crate) use reuse::{FIRST_PREFIX_TOKEN, FIRST_REUSE_TOKEN};
pub use reuse::{ReuseConfig, SessionReuse, SharedPrefixReuse};
pub use shared::{SharedTrace, SharedTraces};
