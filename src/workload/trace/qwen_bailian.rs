//! The traces of Qwen on Bailian: JSON lines such as
//!
//! ```text
//! {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521, "output_length": 132,
//!  "type": "text", "turn": 2, "hash_ids": [1089, 1090, ...]}
//! ```
//!
//! `timestamp` is in seconds from the start, the lengths are in tokens, and each hash id stands for 16
//! prompt tokens (`hash_id_tokens`). What is left of a prompt may have an id of its own or none; then
//! nothing shares it. A chat whose `parent_chat_id` is -1 begins a session; `turn` counts from 1, and
//! `hash_ids` cover the whole prompt, earlier turns included. Other fields are ignored.
//!
//! Source of the format: <https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon>.

use rustc_hash::FxHashMap;

use super::fields::{LENGTH_TOKENS, Range, TimeUnit, length_tokens, require, set};
use super::hash_ids::HashIds;
use super::head::Head;
use super::input::TraceInput;
use super::json::Json;
use super::mistake::Mistake;
use super::{ReadOptions, TraceReader, TraceRequest, TraceTokens};
use crate::workload::WorkloadError;

const DEFAULT_HASH_ID_TOKENS: u32 = 16;

const CHAT_ID: Range = Range { what: "a whole number", min: 0, max: u64::MAX };
const TURN: Range = Range { what: "a whole number", min: 1, max: u32::MAX as u64 };

pub(super) fn matches(head: &Head) -> bool {
    head.is_object_with(&["chat_id", "timestamp", "input_length", "hash_ids"])
}

pub(super) struct QwenBailian {
    input: TraceInput,
    hash_ids: HashIds,
    /// The first chat of the session of each chat that goes on from another; a first chat is its own.
    roots: FxHashMap<u64, u64>,
}

impl QwenBailian {
    pub fn new(input: TraceInput, options: &ReadOptions) -> Self {
        let hash_ids = HashIds::new(options.hash_id_tokens.unwrap_or(DEFAULT_HASH_ID_TOKENS));
        Self { input, hash_ids, roots: FxHashMap::default() }
    }
}

impl TraceReader for QwenBailian {
    fn time_field(&self) -> &'static str {
        "timestamp"
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.hash_ids.id_tokens()
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some((line, text)) = self.input.next_line()? else { return Ok(None) };
        read(&mut self.hash_ids, &mut self.roots, line, text)
            .map(Some)
            .map_err(|mistake| mistake.at_line(line))
    }
}

fn read(
    hash_ids: &mut HashIds,
    roots: &mut FxHashMap<u64, u64>,
    line: u64,
    text: &[u8],
) -> Result<TraceRequest, Mistake> {
    let (mut timestamp, mut input_length, mut output_length, mut ids) = (None, None, None, None);
    let (mut chat_id, mut parent, mut turn) = (None, None, None);
    let mut json = Json::new(text);
    json.object(|json, name| match name {
        "chat_id" => set(&mut chat_id, "chat_id", CHAT_ID.read(json)),
        "parent_chat_id" => set(&mut parent, "parent_chat_id", parent_chat_id(json)),
        "timestamp" => set(&mut timestamp, "timestamp", TimeUnit::Seconds.read(json)),
        "input_length" => set(&mut input_length, "input_length", length_tokens(json)),
        "output_length" => set(&mut output_length, "output_length", length_tokens(json)),
        "turn" => set(&mut turn, "turn", TURN.read(json)),
        "hash_ids" => set(&mut ids, "hash_ids", hash_ids.read(json)),
        _ => json.skip(),
    })?;
    json.end()?;
    let at = require(timestamp, "timestamp", TimeUnit::Seconds)?;
    let input_length = require(input_length, "input_length", LENGTH_TOKENS)?;
    let output_length = require(output_length, "output_length", LENGTH_TOKENS)?;
    let chat_id = require(chat_id, "chat_id", CHAT_ID)?;
    require(ids, "hash_ids", hash_ids.range())?;
    let prompt = hash_ids.prompt_with_rest(input_length).map_err(|mistake| mistake.within("hash_ids"))?;
    let session = match parent.flatten() {
        Some(parent) => {
            let root = roots.get(&parent).copied().unwrap_or(parent);
            roots.insert(chat_id, root);
            root
        }
        None => chat_id,
    };
    Ok(TraceRequest {
        session: Some(session),
        turn: turn.unwrap_or(1) as u32 - 1,
        ..TraceRequest::new(line, Some(at), TraceTokens::Known(prompt), TraceTokens::Length(output_length))
    })
}

/// -1 for none.
fn parent_chat_id(json: &mut Json<'_>) -> Result<Option<u64>, Mistake> {
    if json.null() {
        return Ok(None);
    }
    let start = json.clone();
    match json.u64() {
        Some(parent) => Ok(Some(parent)),
        None if json.number() == Some("-1") => Ok(None),
        None => {
            *json = start;
            Err(json.unexpected("the `chat_id` of another row, or -1"))
        }
    }
}
