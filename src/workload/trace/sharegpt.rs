//! ShareGPT: a JSON list (or JSON lines) of conversations such as
//!
//! ```text
//! {"id": "QWJhYvA_0", "conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
//! ```
//!
//! Source of the format: the data set `ShareGPT_V3_unfiltered_cleaned_split.json`, which vLLM's
//! benchmarks read. Read as [`super::conversations`] says.

use super::conversations::Conversations;
use super::head::Head;
use super::{ReadOptions, TraceInput};

const MESSAGES: &str = "conversations";

pub(super) fn matches(head: &Head) -> bool {
    head.is_list_with(&[MESSAGES]) || head.is_object_with(&[MESSAGES])
}

pub(super) fn reader(input: TraceInput, options: &ReadOptions) -> Conversations {
    Conversations::new(input, options, MESSAGES)
}
