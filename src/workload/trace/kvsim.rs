//! kvsim's own format: JSON lines that can say everything that a workload can.
//!
//! The first line says what the file is, and may name tenants, repeat what was assumed when it was
//! made, and say how many tokens a hash id had (`hash_id_tokens`) where prompts were made of these; each
//! line after it is a request:
//!
//! ```text
//! {"kvsim_trace": 1, "tenants": ["shop"], "notes": ["4 characters a token"]}
//! {"at_s": 0.25, "prompt": [[0, 512], 7, 9], "output": [[9000, 40]], "tenant": "shop", "session": 3}
//! {"at_s": 1.5, "prompt_tokens": 900, "output_tokens": 20}
//! ```
//!
//! | field | unit | meaning |
//! |---|---|---|
//! | `at_s` | seconds from the start | when it is sent; left out where only the order is known |
//! | `think_time_s` | seconds | from the end of the session's answer before to this request |
//! | `prompt`, `output` | token ids | ids and `[first id, number of consecutive ids]`, below 2^63 |
//! | `prompt_tokens`, `output_tokens` | tokens | instead of these, where only the number is known |
//! | `session`, `turn` | | the conversation, a whole number or a text, and the turn in it from 0 |
//! | `tenant` | | one of the names in the first line |
//! | `priority` | | vLLM's: a lower value is served first |
//! | `skip_reading_prefix_cache` | | true: fills the prefix cache but does not look into it |
//! | `cache_salt` | | a text |
//! | `lora` | | `{"name": ..., "id": ..., "path": ...}` |
//! | `mm` | tokens | items such as images: `[{"identifier": ..., "offset_tokens": ..., "length_tokens": ...}]` |
//! | `prompt_embeds` | | `{"tokens": ...}` as in `prompt`, or `{"num_tokens": ..., "dim": ..., "start": ...}`, see [`PromptEmbeds`] |
//! | `patience` | seconds | `{"lasts_s": ..., "waits_for": "first_token"}` (or `"last_token"`): then it is aborted |
//!
//! All but a prompt and an output may be left out. A field that is not in this table is a mistake.

use super::fields::{LENGTH_TOKENS, Range, TimeUnit, length_tokens, require, set};
use super::head::Head;
use super::input::TraceInput;
use super::json::Json;
use super::mistake::Mistake;
use super::session_id::session_id;
use super::{FIRST_UNKNOWN_TOKEN, TraceReader, TraceRequest, TraceTokens};
use crate::prompt::{LoraRequest, MmItem, PromptEmbeds, PromptExtras, TokenRuns};
use crate::workload::distribution::MAX_LENGTH_TOKENS;
use crate::workload::{Patience, WaitsFor, WorkloadError};

/// The only version of the format so far.
pub(super) const VERSION: u64 = 1;

/// What the first line says beside the version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvsimHeader {
    /// The names that [`TraceRequest::tenant`] points into; empty when there is only one tenant
    /// without a name.
    pub tenants: Vec<String>,
    /// What was assumed when the trace was made: sentences for the report.
    pub notes: Vec<String>,
    /// Where prompts were made of hash ids, the tokens that one stood for: what prompts share is only
    /// known in whole ids.
    pub hash_id_tokens: Option<u32>,
}

pub(super) fn matches(head: &Head) -> bool {
    head.is_object_with(&["kvsim_trace"])
}

pub(super) struct Kvsim {
    input: TraceInput,
    header: KvsimHeader,
}

impl Kvsim {
    /// Reads the first line.
    pub fn new(mut input: TraceInput) -> Result<Self, WorkloadError> {
        let header = match input.next_line()? {
            Some((line, text)) => read_header(text).map_err(|mistake| mistake.at_line(line))?,
            None => return Err(Mistake::new("an empty file", header_expected()).at_line(1)),
        };
        Ok(Self { input, header })
    }
}

impl TraceReader for Kvsim {
    fn time_field(&self) -> &'static str {
        "at_s"
    }

    fn tenants(&self) -> &[String] {
        &self.header.tenants
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.header.hash_id_tokens
    }

    fn notes(&self) -> Vec<String> {
        self.header.notes.clone()
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some((line, text)) = self.input.next_line()? else { return Ok(None) };
        read_request(&self.header, line, text).map(Some).map_err(|mistake| mistake.at_line(line))
    }
}

fn header_expected() -> String {
    format!("{{\"kvsim_trace\": {VERSION}}} on the first line")
}

fn read_header(text: &[u8]) -> Result<KvsimHeader, Mistake> {
    let (mut version, mut tenants, mut notes, mut hash_id_tokens) = (None, None, None, None);
    let mut json = Json::new(text);
    json.object(|json, name| match name {
        "kvsim_trace" => {
            let range = Range { what: "the version of the format,", min: VERSION, max: VERSION };
            set(&mut version, "kvsim_trace", range.read(json))
        }
        "tenants" => set(&mut tenants, "tenants", texts(json)),
        "notes" => set(&mut notes, "notes", texts(json)),
        "hash_id_tokens" => set(&mut hash_id_tokens, "hash_id_tokens", length_tokens(json)),
        name => Err(unknown(name, "kvsim_trace, tenants, notes, hash_id_tokens")),
    })?;
    json.end()?;
    require(version, "kvsim_trace", header_expected())?;
    Ok(KvsimHeader { tenants: tenants.unwrap_or_default(), notes: notes.unwrap_or_default(), hash_id_tokens })
}

const FIELDS: &str = "at_s, think_time_s, prompt, output, prompt_tokens, output_tokens, session, turn, tenant, \
                      priority, skip_reading_prefix_cache, cache_salt, lora, mm, prompt_embeds, patience";

fn read_request(header: &KvsimHeader, line: u64, text: &[u8]) -> Result<TraceRequest, Mistake> {
    let (mut prompt, mut prompt_tokens, mut output, mut output_tokens) = (None, None, None, None);
    let (mut at, mut think_time, mut session, mut turn, mut tenant) = (None, None, None, None, None);
    let (mut priority, mut skip_reading, mut salt, mut patience) = (None, None, None, None);
    let (mut lora, mut mm, mut prompt_embeds) = (None, None, None);
    let mut json = Json::new(text);
    json.object(|json, name| match name {
        "at_s" => set(&mut at, "at_s", TimeUnit::Seconds.read(json)),
        "think_time_s" => set(&mut think_time, "think_time_s", TimeUnit::Seconds.read(json)),
        "prompt" => set(&mut prompt, "prompt", tokens(json)),
        "prompt_tokens" => set(&mut prompt_tokens, "prompt_tokens", length_tokens(json)),
        "output" => set(&mut output, "output", tokens(json)),
        "output_tokens" => set(&mut output_tokens, "output_tokens", length_tokens(json)),
        "session" => set(&mut session, "session", session_id(json)),
        "turn" => set(&mut turn, "turn", TURN.read(json)),
        "tenant" => set(&mut tenant, "tenant", tenant_index(header, json)),
        "priority" => set(&mut priority, "priority", read_priority(json)),
        "skip_reading_prefix_cache" => {
            let value = json.bool().ok_or_else(|| json.unexpected("true or false"));
            set(&mut skip_reading, "skip_reading_prefix_cache", value)
        }
        "cache_salt" => set(&mut salt, "cache_salt", json.string().map(String::from)),
        "lora" => set(&mut lora, "lora", read_lora(json)),
        "mm" => set(&mut mm, "mm", read_mm(json)),
        "prompt_embeds" => set(&mut prompt_embeds, "prompt_embeds", read_prompt_embeds(json)),
        "patience" => set(&mut patience, "patience", read_patience(json)),
        name => Err(unknown(name, FIELDS)),
    })?;
    json.end()?;
    let prompt = known_or_length("prompt", prompt, prompt_tokens)?;
    let output = known_or_length("output", output, output_tokens)?;
    let extras = PromptExtras { lora, mm: mm.unwrap_or_default(), cache_salt: salt, prompt_embeds };
    check_mm(&extras.mm, prompt.len()).map_err(|mistake| mistake.within("mm"))?;
    if let Some(embeds) = &extras.prompt_embeds
        && embeds.num_tokens() != prompt.len()
    {
        let expected = format!("as many as the prompt has, {}", prompt.len());
        return Err(Mistake::new(format!("{} tokens", embeds.num_tokens()), expected).within("prompt_embeds"));
    }
    Ok(TraceRequest {
        think_time,
        extras,
        priority: priority.unwrap_or(0),
        skip_reading_prefix_cache: skip_reading.unwrap_or(false),
        patience,
        tenant: tenant.unwrap_or(0),
        session,
        turn: turn.unwrap_or(0) as u32,
        ..TraceRequest::new(line, at, prompt, output)
    })
}

const TURN: Range = Range { what: "a whole number", min: 0, max: u32::MAX as u64 };
const TOKEN: Range =
    Range { what: "token ids and pairs of first id and length, ids", min: 0, max: FIRST_UNKNOWN_TOKEN - 1 };
const DIM: Range = Range { what: "a whole number", min: 1, max: 1 << 20 };
const COUNT_TOKENS: Range = Range { what: "a whole number of tokens", min: 0, max: MAX_LENGTH_TOKENS as u64 };

fn unknown(name: &str, known: &str) -> Mistake {
    Mistake::new(format!("a field `{name}`"), format!("only these: {known}"))
}

fn known_or_length(
    field: &'static str,
    known: Option<TokenRuns>,
    length: Option<u32>,
) -> Result<TraceTokens, Mistake> {
    match (known, length) {
        (Some(known), None) => Ok(TraceTokens::Known(known)),
        (None, Some(length)) => Ok(TraceTokens::Length(length)),
        (None, None) => require(None, field, format!("`{field}` or `{field}_tokens`")),
        (Some(_), Some(_)) => {
            Err(Mistake::new("both tokens and their number", format!("`{field}` or `{field}_tokens`"))
                .within(field))
        }
    }
}

/// Ids and `[first id, number of ids]`.
fn tokens(json: &mut Json<'_>) -> Result<TokenRuns, Mistake> {
    let mut tokens = TokenRuns::new();
    if json.peek() != Some(b'[') {
        return Err(json.unexpected(TOKEN.to_string()));
    }
    json.list(|json| {
        let start = json.clone();
        let (first, len) = match json.pair() {
            Some(pair) => pair,
            None if json.peek() == Some(b'[') => {
                return Err(json.unexpected("a pair of first id and number of ids"));
            }
            None => (TOKEN.read(json)?, 1),
        };
        let most = u64::from(MAX_LENGTH_TOKENS - tokens.len());
        if !(1..=most).contains(&len) || first > FIRST_UNKNOWN_TOKEN - len {
            *json = start;
            let expected = format!(
                "at least one id, all below {FIRST_UNKNOWN_TOKEN}, at most {MAX_LENGTH_TOKENS} in all"
            );
            return Err(json.unexpected(expected));
        }
        tokens.push_run(first, len as u32);
        Ok(())
    })?;
    if tokens.is_empty() {
        return Err(Mistake::new("no tokens", "at least one"));
    }
    Ok(tokens)
}

fn texts(json: &mut Json<'_>) -> Result<Vec<String>, Mistake> {
    let mut texts = Vec::new();
    json.list(|json| {
        texts.push(json.string()?.into_owned());
        Ok(())
    })?;
    Ok(texts)
}

fn tenant_index(header: &KvsimHeader, json: &mut Json<'_>) -> Result<u32, Mistake> {
    let start = json.clone();
    let name = json.string()?;
    let index = header.tenants.iter().position(|tenant| *tenant == name);
    index.map(|index| index as u32).ok_or_else(|| {
        *json = start;
        json.unexpected("a name in the list `tenants` of the first line")
    })
}

/// A whole number of 32 bits with its sign.
fn read_priority(json: &mut Json<'_>) -> Result<i32, Mistake> {
    let start = json.clone();
    json.number().and_then(|text| text.parse().ok()).ok_or_else(|| {
        *json = start;
        json.unexpected(format!("a whole number from {} to {}", i32::MIN, i32::MAX))
    })
}

fn read_lora(json: &mut Json<'_>) -> Result<LoraRequest, Mistake> {
    let (mut name, mut id, mut path) = (None, None, None);
    json.object(|json, field| match field {
        "name" => set(&mut name, "lora.name", json.string().map(String::from)),
        "id" => {
            set(&mut id, "lora.id", Range { what: "a whole number", min: 1, max: u64::MAX >> 1 }.read(json))
        }
        "path" => set(&mut path, "lora.path", json.string().map(String::from)),
        field => Err(unknown(field, "name, id, path").within("lora")),
    })?;
    Ok(LoraRequest {
        name: require(name, "lora.name", "a text")?,
        id: require(id, "lora.id", "a whole number of 1 or more")?,
        path: path.unwrap_or_default(),
    })
}

fn read_mm(json: &mut Json<'_>) -> Result<Vec<MmItem>, Mistake> {
    let mut items = Vec::new();
    json.list(|json| {
        let (mut identifier, mut offset, mut length) = (None, None, None);
        json.object(|json, field| match field {
            "identifier" => set(&mut identifier, "mm.identifier", json.string().map(String::from)),
            "offset_tokens" => set(&mut offset, "mm.offset_tokens", COUNT_TOKENS.read(json)),
            "length_tokens" => set(&mut length, "mm.length_tokens", length_tokens(json)),
            field => Err(unknown(field, "identifier, offset_tokens, length_tokens").within("mm")),
        })?;
        items.push(MmItem {
            identifier: require(identifier, "mm.identifier", "a text")?,
            offset_tokens: require(offset, "mm.offset_tokens", COUNT_TOKENS)? as u32,
            length_tokens: require(length, "mm.length_tokens", LENGTH_TOKENS)?,
        });
        Ok(())
    })?;
    Ok(items)
}

/// Items lie within the prompt, in order and apart.
fn check_mm(items: &[MmItem], prompt_tokens: u32) -> Result<(), Mistake> {
    let mut free_from = 0;
    for item in items {
        let end = u64::from(item.offset_tokens) + u64::from(item.length_tokens);
        if u64::from(item.offset_tokens) < free_from || end > u64::from(prompt_tokens) {
            return Err(Mistake::new(
                format!("an item at the tokens {} to {end}", item.offset_tokens),
                format!("items in order, none in another, within the {prompt_tokens} tokens of the prompt"),
            ));
        }
        free_from = end;
    }
    Ok(())
}

fn read_prompt_embeds(json: &mut Json<'_>) -> Result<PromptEmbeds, Mistake> {
    let (mut known, mut num_tokens, mut dim, mut start) = (None, None, None, None);
    json.object(|json, field| match field {
        "tokens" => set(&mut known, "prompt_embeds.tokens", tokens(json)),
        "num_tokens" => set(&mut num_tokens, "prompt_embeds.num_tokens", length_tokens(json)),
        "dim" => set(&mut dim, "prompt_embeds.dim", DIM.read(json)),
        "start" => {
            let value = json.number().and_then(|text| text.parse().ok());
            let value = value.ok_or_else(|| Mistake::new("no whole number", "one of 64 bits"));
            set(&mut start, "prompt_embeds.start", value)
        }
        field => Err(unknown(field, "tokens, or num_tokens, dim, start").within("prompt_embeds")),
    })?;
    if let (Some(known), None, None, None) = (&known, num_tokens, dim, start) {
        return Ok(PromptEmbeds::OfTokens(known.clone()));
    }
    if known.is_some() {
        return Err(
            Mistake::new("both forms", "either tokens, or num_tokens, dim and start").within("prompt_embeds")
        );
    }
    Ok(PromptEmbeds::Counting {
        num_tokens: require(num_tokens, "prompt_embeds.num_tokens", LENGTH_TOKENS)?,
        dim: require(dim, "prompt_embeds.dim", DIM)? as u32,
        start: require(start, "prompt_embeds.start", "a whole number of 64 bits")?,
    })
}

fn read_patience(json: &mut Json<'_>) -> Result<Patience, Mistake> {
    let (mut lasts, mut waits_for) = (None, None);
    json.object(|json, field| match field {
        "lasts_s" => set(&mut lasts, "patience.lasts_s", TimeUnit::Seconds.read(json)),
        "waits_for" => {
            let start = json.clone();
            let value = match json.string()?.as_ref() {
                "first_token" => Ok(WaitsFor::FirstToken),
                "last_token" => Ok(WaitsFor::LastToken),
                _ => {
                    *json = start;
                    Err(json.unexpected("\"first_token\" or \"last_token\""))
                }
            };
            set(&mut waits_for, "patience.waits_for", value)
        }
        field => Err(unknown(field, "lasts_s, waits_for").within("patience")),
    })?;
    Ok(Patience {
        lasts: require(lasts, "patience.lasts_s", TimeUnit::Seconds)?,
        waits_for: waits_for.unwrap_or_default(),
    })
}
