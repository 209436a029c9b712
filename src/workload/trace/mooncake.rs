//! The traces of Mooncake, of the arXiv paper and of FAST '25: JSON lines such as
//!
//! ```text
//! {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}
//! ```
//!
//! `timestamp` is in milliseconds from the start, the lengths are in tokens, and each hash id
//! stands for 512 prompt tokens (`hash_id_tokens`), the last for what remains. Equal ids are equal
//! tokens: id `h` is the run of token ids from `512 * h`. The recording hashed its blocks of 512
//! tokens, so what two prompts share of a partial last block is not known and counts as different.
//!
//! Other fields are ignored.
//!
//! Source of the format: <https://github.com/kvcache-ai/Mooncake>, `FAST25-release`: `traces` and
//! `arxiv-trace`, whose fields are the same.

use super::fields::{LENGTH_TOKENS, TimeUnit, length_tokens, require, set};
use super::hash_ids::HashIds;
use super::head::Head;
use super::input::TraceInput;
use super::json::Json;
use super::mistake::Mistake;
use super::{ReadOptions, TraceReader, TraceRequest, TraceTokens};
use crate::workload::WorkloadError;

const DEFAULT_HASH_ID_TOKENS: u32 = 512;

pub(super) fn matches(head: &Head) -> bool {
    head.is_object_with(&["timestamp", "input_length", "output_length", "hash_ids"])
}

pub(super) struct Mooncake {
    input: TraceInput,
    hash_ids: HashIds,
}

impl Mooncake {
    pub fn new(input: TraceInput, options: &ReadOptions) -> Self {
        let hash_ids = HashIds::new(options.hash_id_tokens.unwrap_or(DEFAULT_HASH_ID_TOKENS));
        Self { input, hash_ids }
    }
}

impl TraceReader for Mooncake {
    fn time_field(&self) -> &'static str {
        "timestamp"
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.hash_ids.id_tokens()
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some((line, text)) = self.input.next_line()? else { return Ok(None) };
        read(&mut self.hash_ids, line, text).map(Some).map_err(|mistake| mistake.at_line(line))
    }
}

fn read(hash_ids: &mut HashIds, line: u64, text: &[u8]) -> Result<TraceRequest, Mistake> {
    let (mut timestamp, mut input_length, mut output_length, mut ids) = (None, None, None, None);
    let mut json = Json::new(text);
    json.object(|json, name| match name {
        "timestamp" => set(&mut timestamp, "timestamp", TimeUnit::Milliseconds.read(json)),
        "input_length" => set(&mut input_length, "input_length", length_tokens(json)),
        "output_length" => set(&mut output_length, "output_length", length_tokens(json)),
        "hash_ids" => set(&mut ids, "hash_ids", hash_ids.read(json)),
        _ => json.skip(),
    })?;
    json.end()?;
    let at = require(timestamp, "timestamp", TimeUnit::Milliseconds)?;
    let input_length = require(input_length, "input_length", LENGTH_TOKENS)?;
    let output_length = require(output_length, "output_length", LENGTH_TOKENS)?;
    require(ids, "hash_ids", hash_ids.range())?;
    let prompt = hash_ids.prompt(input_length).map_err(|mistake| mistake.within("hash_ids"))?;
    Ok(TraceRequest::new(line, Some(at), TraceTokens::Known(prompt), TraceTokens::Length(output_length)))
}
