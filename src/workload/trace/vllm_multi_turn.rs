//! Conversations of vLLM's multi-turn benchmark: a JSON list such as
//!
//! ```text
//! [{"id": "UzTK34D", "messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}]
//! ```
//!
//! Source of the format: `benchmarks/multi_turn` of vLLM. Read as [`super::conversations`] says.

use super::conversations::Conversations;
use super::head::Head;
use super::{ReadOptions, TraceInput};

const MESSAGES: &str = "messages";

pub(super) fn matches(head: &Head) -> bool {
    head.is_list_with(&["id", MESSAGES])
}

pub(super) fn reader(input: TraceInput, options: &ReadOptions) -> Conversations {
    Conversations::new(input, options, MESSAGES)
}
