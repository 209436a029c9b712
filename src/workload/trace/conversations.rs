//! Files of whole conversations: one JSON list, or JSON lines, of objects with a list of messages.
//!
//! [ShareGPT](SHAREGPT) and vLLM's [multi-turn benchmark](VLLM_MULTI_TURN) differ in names only. Each
//! answer of the model is a request, whose prompt is all that was said before. No times are recorded:
//! the scenario's `arrivals` say when a conversation begins, and each turn waits for the answer before.

use std::collections::VecDeque;

use super::fields::require;
use super::items::Items;
use super::json::Json;
use super::messages::{ChatPrompt, Message};
use super::mistake::Mistake;
use super::text::Text;
use super::{ReadOptions, TraceInput, TraceReader, TraceRequest, TraceTokens};
use crate::prompt::PromptExtras;
use crate::workload::WorkloadError;

pub(super) struct Conversations {
    items: Items,
    text: Text,
    /// The name of the list of messages.
    field: &'static str,
    /// Turns of the conversation read last that have not been handed out.
    turns: VecDeque<TraceRequest>,
    num_conversations: u64,
}

impl Conversations {
    pub fn new(input: TraceInput, options: &ReadOptions, field: &'static str) -> Self {
        let text = Text::new(&options.text, options.tokenizer.as_ref());
        Self { items: Items::new(input), text, field, turns: VecDeque::new(), num_conversations: 0 }
    }

    fn read(&mut self) -> Result<bool, WorkloadError> {
        let Some((line, item)) = self.items.next_item()? else { return Ok(false) };
        let session = self.num_conversations;
        self.num_conversations += 1;
        self.turns =
            read(&self.text, self.field, line, session, item).map_err(|mistake| mistake.at_line(line))?;
        Ok(true)
    }
}

impl TraceReader for Conversations {
    fn time_field(&self) -> &'static str {
        "time"
    }

    fn notes(&self) -> Vec<String> {
        self.text.notes()
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        while self.turns.is_empty() {
            if !self.read()? {
                return Ok(None);
            }
        }
        Ok(self.turns.pop_front())
    }
}

fn read(
    text: &Text,
    field: &'static str,
    line: u64,
    session: u64,
    item: &[u8],
) -> Result<VecDeque<TraceRequest>, Mistake> {
    let mut messages = None;
    let mut json = Json::new(item);
    json.object(|json, name| {
        if name == field {
            let list = Message::read_list(text, json).map_err(|mistake| mistake.within(field));
            return super::fields::set(&mut messages, field, list);
        }
        json.skip()
    })?;
    json.end()?;
    let messages = require(messages, field, "a list of messages")?;
    let mut turns = VecDeque::new();
    let mut prompt = ChatPrompt::default();
    for message in messages {
        // What the model said before anybody asked, or without a word, is no request.
        if message.is_answer() && !prompt.tokens.is_empty() && !message.content.is_empty() {
            let asked = prompt.asked(text)?;
            let output = TraceTokens::Known(message.content.clone());
            let request = TraceRequest::new(line, None, TraceTokens::Known(asked.tokens), output);
            turns.push_back(TraceRequest {
                session: Some(session),
                turn: turns.len() as u32,
                extras: PromptExtras { mm: asked.mm, ..PromptExtras::default() },
                ..request
            });
        }
        prompt.push(text, &message)?;
    }
    Ok(turns)
}
