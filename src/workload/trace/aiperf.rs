//! Traces of AIPerf, and Dynamo's kindred ones: JSON lines of single requests, or of conversations.
//!
//! | field | unit | meaning |
//! |---|---|---|
//! | `timestamp` | milliseconds from the start | when it is sent |
//! | `delay`, `delay_ms` | milliseconds | from the end of the session's answer before |
//! | `session_id` | | the conversation |
//! | `output_length` | tokens | the answer |
//! | `input_length` | tokens | the prompt, with `hash_ids` of 512 tokens (`hash_id_tokens`) for it |
//! | `text_input`, `text` | | the prompt's text instead |
//! | `messages` (`tools`) | | its messages instead; with `message_mode: delta` those since the last turn |
//! | `payload` | | the body of a chat completion instead |
//! | `turns` | | a list of such objects: a conversation, each turn with what was said before |
//! | `priority` | | vLLM's |
//!
//! A prompt of `input_length` without `hash_ids` has only a length: then the scenario's `reuse` has to
//! say what prompts share. A trace without timestamps needs `arrivals` in the scenario. Other fields
//! are ignored.
//!
//! Source of the format: <https://github.com/ai-dynamo/aiperf>, `mooncake_trace`, `single_turn` and
//! `multi_turn`; <https://github.com/ai-dynamo/dynamo>, trace replay.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::fields::{LENGTH_TOKENS, TimeUnit, length_tokens, require, set};
use super::hash_ids::HashIds;
use super::head::Head;
use super::items::Items;
use super::json::Json;
use super::messages::{ChatPrompt, Message};
use super::mistake::Mistake;
use super::openai_chat::Call;
use super::session_id::session_id;
use super::text::Text;
use super::turns::Turns;
use super::{ReadOptions, TraceInput, TraceReader, TraceRequest, TraceTokens};
use crate::prompt::{PromptExtras, TokenRuns};
use crate::units::SimTime;
use crate::workload::WorkloadError;

const DEFAULT_HASH_ID_TOKENS: u32 = 512;

/// Answers that later prompts hold, and whose text is not recorded: ids from here on are given to
/// them.
const FIRST_ANSWER_TOKEN: u64 = 3 << 61;

pub(super) fn matches(head: &Head) -> bool {
    let is_mooncake = head.is_object_with(&["timestamp", "input_length", "output_length", "hash_ids"]);
    let is_session = ["session_id", "delay", "delay_ms"].into_iter().any(|name| head.is_object_with(&[name]));
    let prompts = ["input_length", "text_input", "text", "payload", "turns"];
    let has_prompt = prompts.into_iter().any(|name| head.is_object_with(&[name]));
    let has_messages = head.is_object_with(&["messages", "output_length"]);
    (has_prompt || has_messages) && (is_session || !is_mooncake)
}

pub(super) struct AiPerf {
    items: Items,
    reader: Reader,
    /// Turns of the conversation read last that have not been handed out.
    ready: VecDeque<TraceRequest>,
}

struct Reader {
    text: Text,
    hash_ids: HashIds,
    turns: Turns,
    /// What was said so far in sessions that tell only what is new.
    so_far: FxHashMap<u64, ChatPrompt>,
    num_conversations: u64,
    next_answer_token: u64,
}

impl AiPerf {
    pub fn new(input: TraceInput, options: &ReadOptions) -> Self {
        let reader = Reader {
            text: Text::new(&options.text, options.tokenizer.as_ref()),
            hash_ids: HashIds::new(options.hash_id_tokens.unwrap_or(DEFAULT_HASH_ID_TOKENS)),
            turns: Turns::default(),
            so_far: FxHashMap::default(),
            num_conversations: 0,
            next_answer_token: FIRST_ANSWER_TOKEN,
        };
        Self { items: Items::new(input), reader, ready: VecDeque::new() }
    }
}

impl TraceReader for AiPerf {
    fn time_field(&self) -> &'static str {
        "timestamp"
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.reader.hash_ids.id_tokens()
    }

    fn notes(&self) -> Vec<String> {
        self.reader.text.notes()
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        while self.ready.is_empty() {
            let Some((line, item)) = self.items.next_item()? else { return Ok(None) };
            self.ready = self.reader.read(line, item).map_err(|mistake| mistake.at_line(line))?;
        }
        Ok(self.ready.pop_front())
    }
}

/// One turn, as far as it tells.
#[derive(Default)]
struct Turn {
    timestamp: Option<SimTime>,
    delay: Option<SimTime>,
    session: Option<u64>,
    output_length: Option<u32>,
    input_length: Option<u32>,
    hash_ids: Option<()>,
    messages: Option<Vec<Message>>,
    tools: Option<Message>,
    payload: Option<Call>,
    is_delta: bool,
    priority: Option<i32>,
}

impl Reader {
    fn read(&mut self, line: u64, item: &[u8]) -> Result<VecDeque<TraceRequest>, Mistake> {
        let mut turn = Turn::default();
        let mut turns = None;
        let mut json = Json::new(item);
        json.object(|json, name| match name {
            _ if json.null() => Ok(()),
            "turns" => set(&mut turns, "turns", self.read_turns(json)),
            name => turn.read_field(&self.text, &mut self.hash_ids, name, json),
        })?;
        json.end()?;
        match turns {
            Some(turns) => self.conversation(line, turn.session, turns),
            None => Ok([self.request(line, turn)?].into()),
        }
    }

    fn read_turns(&mut self, json: &mut Json<'_>) -> Result<Vec<Turn>, Mistake> {
        let mut turns = Vec::new();
        json.list(|json| {
            let mut turn = Turn::default();
            json.object(|json, name| match name {
                _ if json.null() => Ok(()),
                name => turn.read_field(&self.text, &mut self.hash_ids, name, json),
            })?;
            turns.push(turn);
            Ok(())
        })?;
        Ok(turns)
    }

    /// A row of its own.
    fn request(&mut self, line: u64, mut turn: Turn) -> Result<TraceRequest, Mistake> {
        if let Some(mut call) = turn.payload.take() {
            call.session = turn.session;
            call.max_tokens = turn.output_length.or(call.max_tokens);
            let request = call.into_request(&self.text, &mut self.turns, line)?;
            return Ok(TraceRequest { at: turn.timestamp, think_time: turn.delay, ..request });
        }
        let output_length = require(turn.output_length, "output_length", LENGTH_TOKENS)?;
        let mut output = TraceTokens::Length(output_length);
        let mut extras = PromptExtras::default();
        let prompt = match (turn.messages, turn.input_length) {
            (Some(messages), None) => {
                let mut prompt = match turn.session.filter(|_| turn.is_delta) {
                    Some(session) => self.so_far.remove(&session).unwrap_or_default(),
                    None => ChatPrompt::default(),
                };
                for message in turn.tools.iter().chain(&messages) {
                    prompt.push(&self.text, message)?;
                }
                let asked = prompt.asked(&self.text)?;
                if let Some(session) = turn.session.filter(|_| turn.is_delta) {
                    let answer = self.answer(output_length);
                    output = TraceTokens::Known(answer.content.clone());
                    prompt.push(&self.text, &answer)?;
                    self.so_far.insert(session, prompt);
                }
                extras.mm = asked.mm;
                TraceTokens::Known(asked.tokens)
            }
            (None, Some(input_length)) if turn.hash_ids.is_some() => TraceTokens::Known(
                self.hash_ids.prompt_with_rest(input_length).map_err(|mistake| mistake.within("hash_ids"))?,
            ),
            (None, Some(input_length)) => TraceTokens::Length(input_length),
            (None, None) => {
                let expected = "`input_length`, `text_input`, `text`, `messages`, `payload` or `turns`";
                return Err(Mistake::new("nothing", expected).within("input_length"));
            }
            (Some(_), Some(_)) => {
                let expected = "either `input_length` or a text";
                return Err(Mistake::new("both a length and a text", expected).within("input_length"));
            }
        };
        let session = turn.session;
        Ok(TraceRequest {
            think_time: turn.delay,
            session,
            turn: session.map_or(0, |session| self.turns.next(session)),
            priority: turn.priority.unwrap_or(0),
            extras,
            ..TraceRequest::new(line, turn.timestamp, prompt, output)
        })
    }

    /// A row that is a whole conversation.
    fn conversation(
        &mut self,
        line: u64,
        session: Option<u64>,
        turns: Vec<Turn>,
    ) -> Result<VecDeque<TraceRequest>, Mistake> {
        let session = session.unwrap_or(self.num_conversations);
        self.num_conversations += 1;
        let mut requests = VecDeque::new();
        let mut prompt = ChatPrompt::default();
        for turn in turns {
            let output_length = require(turn.output_length, "turns.output_length", LENGTH_TOKENS)?;
            let messages = require(turn.messages, "turns.text", "the text of the turn")?;
            for message in &messages {
                prompt.push(&self.text, message)?;
            }
            let asked = prompt.asked(&self.text)?;
            let answer = self.answer(output_length);
            prompt.push(&self.text, &answer)?;
            let output = TraceTokens::Known(answer.content);
            requests.push_back(TraceRequest {
                think_time: turn.delay,
                session: Some(session),
                turn: requests.len() as u32,
                extras: PromptExtras { mm: asked.mm, ..PromptExtras::default() },
                ..TraceRequest::new(line, turn.timestamp, TraceTokens::Known(asked.tokens), output)
            });
        }
        Ok(requests)
    }

    /// An answer of which only the length is known, and which the next prompt will hold.
    fn answer(&mut self, length: u32) -> Message {
        let content = TokenRuns::from_run(self.next_answer_token, length);
        self.next_answer_token += u64::from(length);
        Message::answer(content)
    }
}

impl Turn {
    fn read_field(
        &mut self,
        text: &Text,
        hash_ids: &mut HashIds,
        name: &str,
        json: &mut Json<'_>,
    ) -> Result<(), Mistake> {
        match name {
            "timestamp" => set(&mut self.timestamp, "timestamp", TimeUnit::Milliseconds.read(json)),
            "delay" => set(&mut self.delay, "delay", TimeUnit::Milliseconds.read(json)),
            "delay_ms" => set(&mut self.delay, "delay_ms", TimeUnit::Milliseconds.read(json)),
            "session_id" => set(&mut self.session, "session_id", session_id(json)),
            "output_length" => set(&mut self.output_length, "output_length", length_tokens(json)),
            "input_length" => set(&mut self.input_length, "input_length", length_tokens(json)),
            "hash_ids" => set(&mut self.hash_ids, "hash_ids", hash_ids.read(json)),
            "text" => set(&mut self.messages, "text", read_text(text, json)),
            "text_input" => set(&mut self.messages, "text_input", read_text(text, json)),
            "messages" => set(&mut self.messages, "messages", Message::read_list(text, json)),
            "tools" => {
                let tools = json.raw();
                let tools =
                    tools.and_then(|tools| Message::of_text(text, "system", &String::from_utf8_lossy(tools)));
                set(&mut self.tools, "tools", tools)
            }
            "message_mode" => {
                self.is_delta = json.string()? == "delta";
                Ok(())
            }
            "payload" => {
                let mut call = Call::default();
                let read = call.read(text, json).map(|()| call);
                set(&mut self.payload, "payload", read)
            }
            "priority" => {
                let priority = json.number().and_then(|text| text.parse().ok());
                let priority = priority.ok_or_else(|| json.unexpected("a whole number"));
                set(&mut self.priority, "priority", priority)
            }
            _ => json.skip(),
        }
    }
}

fn read_text(text: &Text, json: &mut Json<'_>) -> Result<Vec<Message>, Mistake> {
    let content = json.string()?;
    Ok(vec![Message::of_text(text, "user", &content)?])
}
