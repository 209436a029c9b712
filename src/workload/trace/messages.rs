//! Messages of a chat, and the prompts made of them.

use xxhash_rust::xxh3::xxh3_64;

use super::fields::set;
use super::json::Json;
use super::mistake::Mistake;
use super::text::{Text, push_run};
use crate::prompt::{MmItem, TokenRuns};

/// Placeholders of all images are the same tokens; what tells images apart is their identifier.
const FIRST_PLACEHOLDER_TOKEN: u64 = 1 << 61;

/// One message: its tokens without those of the chat template.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    /// `user`, `assistant`, `system`, `tool`.
    pub role: String,
    pub content: TokenRuns,
    /// Offsets count from the start of the content.
    images: Vec<MmItem>,
}

impl Message {
    /// Reads a message in the fields of OpenAI (`role`, `content`) or of ShareGPT (`from`, `value`).
    pub fn read(text: &Text, json: &mut Json<'_>) -> Result<Self, Mistake> {
        let (mut role, mut message) = (None, None);
        let mut calls = None;
        json.object(|json, name| match name {
            "role" => set(&mut role, "role", json.string().map(|role| normal(&role))),
            "from" => set(&mut role, "from", json.string().map(|role| normal(&role))),
            "content" => set(&mut message, "content", read_content(text, json)),
            "value" => set(&mut message, "value", read_content(text, json)),
            // Models write calls as text; their JSON is about as long.
            "tool_calls" if !json.null() => set(&mut calls, "tool_calls", json.raw()),
            _ => json.skip(),
        })?;
        let mut message: Self = message.unwrap_or_default();
        message.role = super::fields::require(role, "role", "`user`, `assistant`, `system` or `tool`")?;
        if let Some(calls) = calls {
            text.push(&mut message.content, &String::from_utf8_lossy(calls))?;
        }
        Ok(message)
    }

    /// Reads a list of messages.
    pub fn read_list(text: &Text, json: &mut Json<'_>) -> Result<Vec<Self>, Mistake> {
        let mut messages = Vec::new();
        json.list(|json| {
            messages.push(Self::read(text, json)?);
            Ok(())
        })?;
        Ok(messages)
    }

    /// A message that is a text.
    pub fn of_text(text: &Text, role: &str, content: &str) -> Result<Self, Mistake> {
        let mut message = Self { role: role.to_owned(), ..Self::default() };
        text.push(&mut message.content, content)?;
        Ok(message)
    }

    /// What the model said.
    pub fn answer(content: TokenRuns) -> Self {
        Self { role: "assistant".into(), content, images: Vec::new() }
    }

    pub fn is_answer(&self) -> bool {
        self.role == "assistant"
    }
}

/// The names that data sets give to the same roles.
fn normal(role: &str) -> String {
    match role {
        "human" | "prompter" => "user",
        "gpt" | "chatgpt" | "bard" | "bing" | "model" | "ai" => "assistant",
        role => role,
    }
    .to_owned()
}

/// A text, nothing, or a list of parts.
fn read_content(text: &Text, json: &mut Json<'_>) -> Result<Message, Mistake> {
    let mut message = Message::default();
    match json.peek() {
        Some(b'"') => text.push(&mut message.content, &json.string()?)?,
        Some(b'[') => json.list(|json| read_part(text, &mut message, json))?,
        _ if json.null() => {}
        _ => return Err(json.unexpected("a text or a list of parts")),
    }
    Ok(message)
}

fn read_part(text: &Text, message: &mut Message, json: &mut Json<'_>) -> Result<(), Mistake> {
    let (mut kind, mut content, mut image) = (None, None, None);
    json.object(|json, name| match name {
        "type" => set(&mut kind, "type", json.string()),
        "text" => set(&mut content, "text", json.string()),
        "image_url" | "image" => set(&mut image, "image_url", json.raw()),
        _ => json.skip(),
    })?;
    if let Some(content) = content {
        return text.push(&mut message.content, &content);
    }
    if let Some(image) = image {
        let length_tokens = text.image_tokens().ok_or_else(|| {
            let expected = "`image_tokens` in the scenario's `text`: the placeholder tokens of an image";
            Mistake::new("an image", expected).within("content")
        })?;
        let offset_tokens = message.content.len();
        push_run(&mut message.content, FIRST_PLACEHOLDER_TOKEN, length_tokens)?;
        let identifier = format!("{:016x}", xxh3_64(image));
        message.images.push(MmItem { identifier, offset_tokens, length_tokens });
        return Ok(());
    }
    let kind = kind.map_or_else(|| "no type".to_owned(), |kind| format!("the type `{kind}`"));
    Err(Mistake::new(format!("a part with {kind}"), "parts of `text` and `image_url`").within("content"))
}

/// A prompt as it grows, message by message.
#[derive(Clone, Debug, Default)]
pub(super) struct ChatPrompt {
    pub tokens: TokenRuns,
    pub mm: Vec<MmItem>,
}

impl ChatPrompt {
    /// Appends a message with the tokens of the template in front of it.
    pub fn push(&mut self, text: &Text, message: &Message) -> Result<(), Mistake> {
        text.push_template(&mut self.tokens, &message.role)?;
        let start = self.tokens.len();
        for run in message.content.runs() {
            push_run(&mut self.tokens, run.start, run.len)?;
        }
        let placed = |item: &MmItem| MmItem { offset_tokens: start + item.offset_tokens, ..item.clone() };
        self.mm.extend(message.images.iter().map(placed));
        Ok(())
    }

    /// The prompt to which the model answers: all so far, and the template in front of the answer.
    pub fn asked(&self, text: &Text) -> Result<Self, Mistake> {
        let mut asked = self.clone();
        text.push_template(&mut asked.tokens, "assistant")?;
        if asked.tokens.is_empty() {
            return Err(Mistake::new("an empty prompt", "at least one token"));
        }
        Ok(asked)
    }
}
