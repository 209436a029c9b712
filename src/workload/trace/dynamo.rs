//! Request traces of NVIDIA Dynamo (`dynamo.request.trace.v1`): JSON lines of events, of which the
//! ends of requests count:
//!
//! ```text
//! {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1777312801000,
//!  "agent_context": {"session_id": "run-42:researcher"},
//!  "request": {"request_received_ms": 1777312800000, "output_tokens": 16,
//!   "replay": {"trace_block_size": 64, "input_length": 128, "input_sequence_hashes": [14879255164371896291, ...]}}}
//! ```
//!
//! Times are in milliseconds since 1970, of which the first counts as the start, the lengths in
//! tokens. A hash stands for a block of `trace_block_size` tokens and all before it. Lines are written
//! when answers end, so they may be out of order by `sort_window_s`. In a session the time from the
//! end of one answer to the next request is its think time. A request without `replay` has only
//! lengths: then the scenario's `reuse` has to say what prompts share. Lines may stand in an `event`
//! of a log. Other events and fields are ignored.
//!
//! Source of the format: <https://github.com/ai-dynamo/dynamo>, request tracing.

use rustc_hash::FxHashMap;

use super::fields::{LENGTH_TOKENS, Range, TimeUnit, length_tokens, require, set};
use super::hash_ids::HashIds;
use super::head::Head;
use super::input::TraceInput;
use super::json::Json;
use super::mistake::Mistake;
use super::session_id::session_id;
use super::turns::Turns;
use super::{TraceReader, TraceRequest, TraceTokens};
use crate::units::SimTime;
use crate::workload::WorkloadError;

const BLOCK_TOKENS: Range = Range { what: "a whole number of tokens", min: 1, max: 1 << 20 };

pub(super) fn matches(head: &Head) -> bool {
    head.is_object_with(&["schema", "event_type"]) || head.is_object_with(&["timestamp", "event"])
}

pub(super) struct Dynamo {
    input: TraceInput,
    hash_ids: HashIds,
    turns: Turns,
    /// When the last answer of each session ended.
    ends: FxHashMap<u64, SimTime>,
}

impl Dynamo {
    pub fn new(input: TraceInput) -> Self {
        Self { input, hash_ids: HashIds::new(1), turns: Turns::default(), ends: FxHashMap::default() }
    }
}

impl TraceReader for Dynamo {
    fn time_field(&self) -> &'static str {
        "request.request_received_ms"
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.hash_ids.id_tokens()
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        loop {
            let Some((line, text)) = self.input.next_line()? else { return Ok(None) };
            let at_line = |mistake: Mistake| mistake.at_line(line);
            let mut event = Event::default();
            let mut json = Json::new(text);
            event.read(&mut self.hash_ids, &mut json).and_then(|()| json.end()).map_err(at_line)?;
            if event.is_request_end {
                return self.request(line, event).map(Some).map_err(at_line);
            }
        }
    }
}

impl Dynamo {
    fn request(&mut self, line: u64, event: Event) -> Result<TraceRequest, Mistake> {
        let at = require(event.received, "request.request_received_ms", TimeUnit::Milliseconds)?;
        let output = require(event.output_tokens, "request.output_tokens", LENGTH_TOKENS)?;
        let prompt = match event.replay {
            Some(replay) => {
                let block = require(replay.block_tokens, "request.replay.trace_block_size", BLOCK_TOKENS)?;
                let input = require(replay.input_length, "request.replay.input_length", LENGTH_TOKENS)?;
                let hashes = "request.replay.input_sequence_hashes";
                require(replay.hashes, hashes, self.hash_ids.range())?;
                self.hash_ids.set_id_tokens(block as u32);
                let prompt = self.hash_ids.prompt_with_rest(input);
                TraceTokens::Known(prompt.map_err(|mistake| mistake.within(hashes))?)
            }
            None => TraceTokens::Length(require(event.input_tokens, "request.input_tokens", LENGTH_TOKENS)?),
        };
        let mut request = TraceRequest::new(line, Some(at), prompt, TraceTokens::Length(output));
        if let Some(session) = event.session {
            let end = event.end.or(event.total_time.map(|total| at + total)).unwrap_or(at);
            request.session = Some(session);
            request.turn = self.turns.next(session);
            request.think_time = self.ends.insert(session, end).map(|last_end| at.since(last_end));
        }
        Ok(request)
    }
}

/// A line, as far as it counts.
#[derive(Default)]
struct Event {
    is_request_end: bool,
    end: Option<SimTime>,
    session: Option<u64>,
    received: Option<SimTime>,
    total_time: Option<SimTime>,
    input_tokens: Option<u32>,
    output_tokens: Option<u32>,
    replay: Option<Replay>,
}

#[derive(Default)]
struct Replay {
    block_tokens: Option<u64>,
    input_length: Option<u32>,
    hashes: Option<()>,
}

impl Event {
    fn read(&mut self, hash_ids: &mut HashIds, json: &mut Json<'_>) -> Result<(), Mistake> {
        json.object(|json, name| match name {
            _ if json.null() => Ok(()),
            "event" if json.peek() == Some(b'{') => self.read(hash_ids, json),
            "event_type" => {
                self.is_request_end = json.string()? == "request_end";
                Ok(())
            }
            "event_time_unix_ms" => {
                set(&mut self.end, "event_time_unix_ms", TimeUnit::Milliseconds.read(json))
            }
            "agent_context" => json.object(|json, name| match name {
                "session_id" => set(&mut self.session, "agent_context.session_id", session_id(json)),
                _ => json.skip(),
            }),
            "request" => self.read_request(hash_ids, json),
            _ => json.skip(),
        })
    }

    fn read_request(&mut self, hash_ids: &mut HashIds, json: &mut Json<'_>) -> Result<(), Mistake> {
        json.object(|json, name| match name {
            _ if json.null() => Ok(()),
            "request_received_ms" => {
                set(&mut self.received, "request.request_received_ms", TimeUnit::Milliseconds.read(json))
            }
            "total_time_ms" => {
                set(&mut self.total_time, "request.total_time_ms", TimeUnit::Milliseconds.read(json))
            }
            "input_tokens" => set(&mut self.input_tokens, "request.input_tokens", length_tokens(json)),
            "output_tokens" => set(&mut self.output_tokens, "request.output_tokens", length_tokens(json)),
            "replay" => {
                let mut replay = Replay::default();
                replay.read(hash_ids, json)?;
                set(&mut self.replay, "request.replay", Ok(replay))
            }
            _ => json.skip(),
        })
    }
}

impl Replay {
    fn read(&mut self, hash_ids: &mut HashIds, json: &mut Json<'_>) -> Result<(), Mistake> {
        json.object(|json, name| match name {
            "trace_block_size" => {
                set(&mut self.block_tokens, "request.replay.trace_block_size", BLOCK_TOKENS.read(json))
            }
            "input_length" => set(&mut self.input_length, "request.replay.input_length", length_tokens(json)),
            "input_sequence_hashes" => {
                set(&mut self.hashes, "request.replay.input_sequence_hashes", hash_ids.read(json))
            }
            _ => json.skip(),
        })
    }
}
