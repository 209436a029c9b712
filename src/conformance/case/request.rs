//! The requests of a case.

use serde::Deserialize;

use super::{CaseError, MAX_STEP};
use crate::prompt::{LoraRequest, MmItem, PromptEmbeds, PromptExtras, TokenRuns};

/// Tokens of all requests of a case. Hashing dominates a run, and this many take minutes.
const MAX_CASE_TOKENS: u64 = 1 << 28;
/// Elements of all prompt embeddings, which are all hashed.
const MAX_EMBEDS_ELEMENTS: u64 = 1 << 24;
/// `[[start, len], ...]`: ids that grow by 1.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Segments(Vec<(u64, u32)>);

impl Segments {
    fn total(&self) -> u64 {
        self.0.iter().map(|&(_, len)| u64::from(len)).sum()
    }

    fn to_tokens(&self) -> TokenRuns {
        let mut tokens = TokenRuns::new();
        for &(start, len) in &self.0 {
            tokens.push_run(start, len);
        }
        tokens
    }
}

const fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoraCase {
    name: String,
    id: u64,
    path: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MmCase {
    identifier: String,
    offset: u32,
    length: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PromptEmbedsCase {
    num_tokens: u32,
    dim: u32,
    start: i64,
}

/// What an outside store does for a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvCase {
    /// Tokens from position 0 that the store holds.
    #[serde(default)]
    pub external_tokens: u32,
    #[serde(default, rename = "async")]
    pub load_async: bool,
    #[serde(default = "one")]
    pub load_steps: u32,
    /// Indices in the request's block table of blocks that fail to load.
    #[serde(default)]
    pub fail_blocks: Vec<usize>,
    #[serde(default)]
    pub fail_request: bool,
    /// Lookups that are answered with "not known yet".
    #[serde(default)]
    pub defer_lookups: u32,
    /// Keep the blocks of the finished request for so many outputs.
    pub send_steps: Option<u32>,
}

/// What a request is here for, where prompts are computed on other servers than answers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PullPart {
    /// Its blocks will be read from here.
    Prefill,
    /// They are read from elsewhere.
    Decode,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullCase {
    pub part: PullPart,
    /// Outputs until the blocks have been read.
    pub steps: u32,
    /// The read fails as a whole.
    #[serde(default)]
    pub fail: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum ReportMode {
    Full,
    Incremental,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestCase {
    pub id: String,
    arrival_step: u64,
    prompt: Segments,
    output: Segments,
    max_tokens: Option<u32>,
    #[serde(default)]
    stop_token_ids: Vec<u64>,
    #[serde(default)]
    priority: i64,
    arrival_time: Option<f64>,
    lora: Option<LoraCase>,
    cache_salt: Option<String>,
    #[serde(default)]
    mm: Vec<MmCase>,
    prompt_embeds: Option<PromptEmbedsCase>,
    #[serde(default)]
    skip_reading_prefix_cache: bool,
    kv_cache_report_mode: Option<ReportMode>,
    session_id: Option<String>,
    draft_accepts: Option<Vec<u32>>,
    draft_lens: Option<Vec<u32>>,
    kv: Option<KvCase>,
    pull: Option<PullCase>,
}

/// A request of a case. Its number is the rank of its id among all, so that numbers sort as ids do.
#[derive(Clone, Debug)]
pub struct CaseRequest {
    pub rank: u64,
    pub arrival_step: u64,
    pub prompt: TokenRuns,
    pub output: TokenRuns,
    pub max_tokens: u32,
    pub stop_token_ids: Vec<u64>,
    pub priority: i64,
    pub arrival_time: u64,
    pub extras: Option<Box<PromptExtras>>,
    pub skip_reading_prefix_cache: bool,
    pub report_cached_blocks: bool,
    pub session_id: Option<String>,
    pub draft_accepts: Vec<u32>,
    pub draft_lens: Option<Vec<u32>>,
    pub kv: Option<KvCase>,
    pub pull: Option<PullCase>,
}

impl RequestCase {
    /// It asks for events of the blocks that it hits.
    pub fn reports_cached_blocks(&self) -> bool {
        self.kv_cache_report_mode == Some(ReportMode::Full)
    }

    fn prompt_tokens(&self) -> u64 {
        self.prompt_embeds.as_ref().map_or_else(|| self.prompt.total(), |embeds| embeds.num_tokens.into())
    }

    /// The request in the engine's terms; `rank` is that of its id.
    pub fn check(self, index: usize, rank: u64) -> Result<CaseRequest, CaseError> {
        let bad =
            |problem: &str| Err(CaseError::Request { id: self.id.clone(), problem: problem.to_owned() });
        if self.prompt_tokens() == 0 {
            return bad("the prompt is empty; give at least one token");
        }
        if self.arrival_step > MAX_STEP {
            return bad("arrival_step is too large; give at most 2^53");
        }
        if self.mm.windows(2).any(|pair| pair[0].offset > pair[1].offset) {
            return bad("mm is not sorted by offset; sort it");
        }
        let max_tokens = self.max_tokens.unwrap_or(self.output.total() as u32);
        if max_tokens == 0 {
            return bad("max_tokens is 0; give 1 or more");
        }
        if self.draft_accepts.as_ref().is_some_and(Vec::is_empty) {
            return bad("draft_accepts is empty; give a number or leave it out");
        }
        if self.draft_lens.as_ref().is_some_and(Vec::is_empty) {
            return bad("draft_lens is empty; give a number or leave it out");
        }
        if self.arrival_time.is_some_and(|time| !(0.0..=1e18).contains(&time)) {
            return bad("arrival_time is not a number of 0 or more");
        }
        let report_cached_blocks = self.reports_cached_blocks();
        let prompt = match &self.prompt_embeds {
            Some(embeds) => (0..embeds.num_tokens).map(|_| 0).collect(),
            None => self.prompt.to_tokens(),
        };
        let extras = PromptExtras {
            lora: self.lora.map(|lora| LoraRequest { name: lora.name, id: lora.id, path: lora.path }),
            mm: self
                .mm
                .into_iter()
                .map(|item| MmItem {
                    identifier: item.identifier,
                    offset_tokens: item.offset,
                    length_tokens: item.length,
                })
                .collect(),
            cache_salt: self.cache_salt,
            prompt_embeds: self.prompt_embeds.map(|embeds| PromptEmbeds::Counting {
                num_tokens: embeds.num_tokens,
                dim: embeds.dim,
                start: embeds.start,
            }),
        };
        Ok(CaseRequest {
            rank,
            arrival_step: self.arrival_step,
            prompt,
            output: self.output.to_tokens(),
            max_tokens,
            stop_token_ids: self.stop_token_ids,
            priority: self.priority,
            // Not negative, so its bits order as the number does. The sum takes the sign off -0.
            arrival_time: (self.arrival_time.unwrap_or(index as f64) + 0.0).to_bits(),
            extras: (extras != PromptExtras::default()).then(|| Box::new(extras)),
            skip_reading_prefix_cache: self.skip_reading_prefix_cache,
            report_cached_blocks,
            session_id: self.session_id,
            draft_accepts: self.draft_accepts.unwrap_or_else(|| vec![0]),
            draft_lens: self.draft_lens,
            kv: self.kv,
            pull: self.pull,
        })
    }
}

/// Before anything is built from the requests.
pub(super) fn check_size(requests: &[RequestCase]) -> Result<(), CaseError> {
    let tokens = |request: &RequestCase| request.prompt_tokens().saturating_add(request.output.total());
    let elements = |request: &RequestCase| {
        request
            .prompt_embeds
            .as_ref()
            .map_or(0, |embeds| u64::from(embeds.num_tokens) * u64::from(embeds.dim.max(1)))
    };
    let sum = |of: &dyn Fn(&RequestCase) -> u64| requests.iter().map(of).fold(0, u64::saturating_add);
    for (what, count, most) in [
        ("tokens", sum(&tokens), MAX_CASE_TOKENS),
        ("elements of prompt embeddings", sum(&elements), MAX_EMBEDS_ELEMENTS),
    ] {
        if count > most {
            return Err(CaseError::TooLarge { what, count, most });
        }
    }
    Ok(())
}
