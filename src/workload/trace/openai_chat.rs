//! Logs of chat completions in OpenAI's fields, as JSON lines.
//!
//! There is no one such format: logs keep the request's body, the response's, or both, beside fields
//! of their own. These are read wherever they stand, at the top or in `request`, `body` or `response`:
//!
//! | field | unit | meaning |
//! |---|---|---|
//! | `messages` (or `prompt`) | | the prompt; a last message of the assistant is the answer |
//! | `tools` | | definitions of tools, which templates put in front |
//! | `choices` | | the answer, the first one |
//! | `usage.completion_tokens` | tokens | the answer's length, where its text is not logged |
//! | `max_completion_tokens`, `max_tokens` | tokens | the same, where there is no usage either |
//! | `timestamp`, `created`, `created_at` | seconds or a date and time | when it was sent; the first counts as the start |
//! | `timestamp_ms` | milliseconds | the same |
//! | `session_id`, `conversation_id` | | the conversation |
//! | `priority`, `cache_salt` | | as vLLM takes them |
//!
//! Lines may be out of order by `sort_window_s`, since logs are written when the answer ends. A log
//! without times needs `arrivals` in the scenario.
//!
//! Source of the fields: <https://platform.openai.com/docs/api-reference/chat>, and of its batch API.

use super::date_time::parse_date_time;
use super::fields::{TimeUnit, length_tokens, set};
use super::head::Head;
use super::items::Items;
use super::json::Json;
use super::messages::{ChatPrompt, Message};
use super::mistake::Mistake;
use super::session_id::session_id;
use super::text::Text;
use super::turns::Turns;
use super::{ReadOptions, TraceInput, TraceReader, TraceRequest, TraceTokens};
use crate::prompt::{PromptExtras, TokenRuns};
use crate::units::SimTime;
use crate::workload::WorkloadError;

pub(super) fn matches(head: &Head) -> bool {
    ["messages", "request", "body"].into_iter().any(|name| head.is_object_with(&[name]))
}

pub(super) struct OpenAiChat {
    items: Items,
    text: Text,
    turns: Turns,
}

impl OpenAiChat {
    pub fn new(input: TraceInput, options: &ReadOptions) -> Self {
        let text = Text::new(&options.text, options.tokenizer.as_ref());
        Self { items: Items::new(input), text, turns: Turns::default() }
    }
}

impl TraceReader for OpenAiChat {
    fn time_field(&self) -> &'static str {
        "timestamp"
    }

    fn notes(&self) -> Vec<String> {
        self.text.notes()
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some((line, item)) = self.items.next_item()? else { return Ok(None) };
        let at_line = |mistake: Mistake| mistake.at_line(line);
        let mut json = Json::new(item);
        let mut call = Call::default();
        call.read(&self.text, &mut json).and_then(|()| json.end()).map_err(at_line)?;
        call.into_request(&self.text, &mut self.turns, line).map(Some).map_err(at_line)
    }
}

/// What one line says, wherever it says it.
#[derive(Default)]
pub(super) struct Call {
    messages: Option<Vec<Message>>,
    tools: Option<Message>,
    answer: Option<TokenRuns>,
    completion_tokens: Option<u32>,
    pub max_tokens: Option<u32>,
    timestamp: Option<SimTime>,
    created: Option<SimTime>,
    pub session: Option<u64>,
    priority: Option<i32>,
    cache_salt: Option<String>,
}

impl Call {
    pub fn read(&mut self, text: &Text, json: &mut Json<'_>) -> Result<(), Mistake> {
        json.object(|json, name| {
            // Logs write what was not given as null.
            if json.null() { Ok(()) } else { self.read_field(text, name, json) }
        })
    }

    fn read_field(&mut self, text: &Text, name: &str, json: &mut Json<'_>) -> Result<(), Mistake> {
        match name {
            "request" | "body" | "response" if json.peek() == Some(b'{') => self.read(text, json),
            "messages" => {
                let messages = Message::read_list(text, json);
                set(&mut self.messages, "messages", messages)
            }
            "prompt" => {
                let prompt = json.string().and_then(|prompt| Message::of_text(text, "user", &prompt));
                set(&mut self.messages, "prompt", prompt.map(|message| vec![message]))
            }
            "tools" => {
                let tools = json
                    .raw()
                    .and_then(|tools| Message::of_text(text, "system", &String::from_utf8_lossy(tools)));
                set(&mut self.tools, "tools", tools)
            }
            "choices" => set(&mut self.answer, "choices", read_choices(text, json)),
            "response" => {
                let answer = json.string().and_then(|answer| Message::of_text(text, "assistant", &answer));
                set(&mut self.answer, "response", answer.map(|message| message.content))
            }
            "usage" => json.object(|json, name| match name {
                "completion_tokens" => {
                    set(&mut self.completion_tokens, "usage.completion_tokens", length_tokens(json))
                }
                _ => json.skip(),
            }),
            "max_completion_tokens" | "max_tokens" => {
                self.max_tokens = Some(length_tokens(json).map_err(|mistake| mistake.within("max_tokens"))?);
                Ok(())
            }
            "timestamp" => set(&mut self.timestamp, "timestamp", read_time(json)),
            "timestamp_ms" => set(&mut self.timestamp, "timestamp_ms", TimeUnit::Milliseconds.read(json)),
            // A response has one too, of its own beginning.
            "created" | "created_at" => {
                let created = read_time(json).map_err(|mistake| mistake.within("created"))?;
                self.created.get_or_insert(created);
                Ok(())
            }
            "session_id" => set(&mut self.session, "session_id", session_id(json)),
            "conversation_id" => set(&mut self.session, "conversation_id", session_id(json)),
            "priority" => {
                let priority = json.number().and_then(|text| text.parse().ok());
                let priority = priority.ok_or_else(|| json.unexpected("a whole number"));
                set(&mut self.priority, "priority", priority)
            }
            "cache_salt" => set(&mut self.cache_salt, "cache_salt", json.string().map(String::from)),
            _ => json.skip(),
        }
    }

    pub fn into_request(
        mut self,
        text: &Text,
        turns: &mut Turns,
        line: u64,
    ) -> Result<TraceRequest, Mistake> {
        let mut messages = super::fields::require(self.messages, "messages", "a list of messages")?;
        if self.answer.is_none()
            && let Some(answer) = messages.pop_if(|message| message.is_answer())
        {
            self.answer = Some(answer.content);
        }
        let mut prompt = ChatPrompt::default();
        for message in self.tools.iter().chain(&messages) {
            prompt.push(text, message)?;
        }
        let prompt = prompt.asked(text)?;
        let length = self.completion_tokens.or(self.max_tokens);
        let output = match (self.answer.filter(|answer| !answer.is_empty()), length) {
            (Some(answer), _) => TraceTokens::Known(answer),
            (None, Some(length)) => TraceTokens::Length(length),
            (None, None) => {
                let expected = "an answer: `choices`, a last message of the assistant, or its length in \
                                `usage.completion_tokens` or `max_tokens`";
                return Err(Mistake::new("nothing", expected).within("choices"));
            }
        };
        let turn = self.session.map_or(0, |session| turns.next(session));
        let request = TraceRequest::new(
            line,
            self.timestamp.or(self.created),
            TraceTokens::Known(prompt.tokens),
            output,
        );
        Ok(TraceRequest {
            session: self.session,
            turn,
            priority: self.priority.unwrap_or(0),
            extras: PromptExtras { mm: prompt.mm, cache_salt: self.cache_salt, ..PromptExtras::default() },
            ..request
        })
    }
}

/// The first answer, of a chat or of a completion.
fn read_choices(text: &Text, json: &mut Json<'_>) -> Result<TokenRuns, Mistake> {
    let mut first = None;
    json.list(|json| {
        if first.is_some() {
            return json.skip();
        }
        let mut answer = Message::default();
        json.object(|json, name| match name {
            "message" => {
                answer = Message::read(text, json)?;
                Ok(())
            }
            "text" if !json.null() => {
                answer = Message::of_text(text, "assistant", &json.string()?)?;
                Ok(())
            }
            _ => json.skip(),
        })?;
        first = Some(answer.content);
        Ok(())
    })?;
    Ok(first.unwrap_or_default())
}

fn read_time(json: &mut Json<'_>) -> Result<SimTime, Mistake> {
    if json.peek() != Some(b'"') {
        return TimeUnit::Seconds.read(json);
    }
    let start = json.clone();
    let text = json.string()?;
    parse_date_time(&text).or_else(|| TimeUnit::Seconds.parse(&text)).ok_or_else(|| {
        *json = start;
        json.unexpected("seconds, or a date and time such as 2024-05-10T00:00:00Z")
    })
}
