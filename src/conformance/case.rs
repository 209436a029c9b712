//! The case file: an engine, the requests that arrive, what the model samples (format 1).

use serde::Deserialize;
use thiserror::Error;

use crate::engine::config::{KvLoadFailurePolicy, SpeculativeConfig};
use crate::engine::hash::PrefixCachingHashAlgo;
use crate::engine::kv_cache::KvCacheSpec;
use crate::engine::scheduler::RequestError;
use crate::engine::{EngineConfig, EngineConfigError, SchedulingPolicy, SpecMethod};
use crate::prompt::{LoraRequest, MmItem, PromptEmbeds, PromptExtras, TokenRuns};

/// Tokens of all requests of a case. Hashing dominates a run, and this many take minutes.
const MAX_CASE_TOKENS: u64 = 1 << 28;
/// Elements of all prompt embeddings, which are all hashed.
const MAX_EMBEDS_ELEMENTS: u64 = 1 << 24;
/// What JSON readers agree on.
const MAX_STEP: u64 = 1 << 53;
/// Steps in a row that schedule no token or preempt somebody and end without an output. No wait
/// of a connector takes so long; a request that can never run, or that preempts itself again and
/// again, does.
pub(super) const MAX_FRUITLESS_STEPS: u64 = 1000;

#[derive(Debug, Error)]
pub enum CaseError {
    #[error("line {line}, column {column}: {message}")]
    Json { line: usize, column: usize, message: String },
    #[error("engine.{0}")]
    Engine(#[from] EngineConfigError),
    #[error("request {id:?}: {problem}")]
    Request { id: String, problem: String },
    #[error("action {index}: step {step} is too large; give at most 2^53")]
    ActionStep { index: usize, step: u64 },
    #[error("the requests have {count} {what} together; give at most {most}")]
    TooLarge { what: &'static str, count: u64, most: u64 },
    /// The engine would go on for ever, or for so long that nobody would read the log.
    #[error(
        "step {step}: {MAX_FRUITLESS_STEPS} steps brought no token; unfinished: {}; \
         raise num_gpu_blocks or max_num_batched_tokens, shorten the prompts or the waits",
        unfinished.join(", ")
    )]
    Stuck { step: u64, unfinished: Vec<String> },
}

impl From<serde_json::Error> for CaseError {
    fn from(error: serde_json::Error) -> Self {
        // The message ends with the position, which has its own fields here.
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        Self::Json { line: error.line(), column: error.column(), message }
    }
}

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

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Sync,
    Async,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum GroupCase {
    Full {
        block_size: Option<u32>,
    },
    SlidingWindow {
        block_size: Option<u32>,
        sliding_window: u32,
    },
    ChunkedLocal {
        block_size: Option<u32>,
        chunk_size: u32,
    },
    Mamba {
        block_size: Option<u32>,
        /// Always "align": the only mode that caches prefixes.
        #[serde(rename = "cache_mode")]
        _cache_mode: MambaCacheMode,
    },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MambaCacheMode {
    Align,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum ConnectorRole {
    #[serde(rename = "kv_both")]
    Both,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KvConnectorCase {
    #[serde(rename = "role")]
    _role: ConnectorRole,
    load_failure_policy: KvLoadFailurePolicy,
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineCase {
    mode: Mode,
    block_size: u32,
    hash_block_size: Option<u32>,
    num_gpu_blocks: u32,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    max_num_scheduled_tokens: Option<u32>,
    max_model_len: u32,
    enable_chunked_prefill: bool,
    long_prefill_token_threshold: u32,
    #[serde(default)]
    long_prefill_token_threshold_adaptive: bool,
    #[serde(default = "yes")]
    scheduler_reserve_full_isl: bool,
    #[serde(default)]
    watermark: f64,
    enable_prefix_caching: bool,
    prefix_caching_hash_algo: PrefixCachingHashAlgo,
    python_hash_seed: Option<String>,
    policy: SchedulingPolicy,
    enable_kv_cache_events: bool,
    use_int_block_hashes: bool,
    kv_cache_groups: Vec<GroupCase>,
    #[serde(default = "one")]
    dcp_world_size: u32,
    num_speculative_tokens: Option<u32>,
    spec_method: Option<SpecMethod>,
    #[serde(default = "yes")]
    lookahead_block_hashes: bool,
    kv_connector: Option<KvConnectorCase>,
    max_loras: Option<u32>,
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

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum ReportMode {
    Full,
    Incremental,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestCase {
    id: String,
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
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum When {
    #[default]
    BeforeStep,
    /// Just before the output of a step is processed.
    BeforeUpdate,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ActionKind {
    ResetPrefixCache {
        #[serde(default)]
        reset_running_requests: bool,
    },
    Abort {
        id: String,
    },
}

#[derive(Clone, Debug, Deserialize)]
pub struct Action {
    pub step: u64,
    #[serde(default)]
    pub when: When,
    #[serde(flatten)]
    pub kind: ActionKind,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogCase {
    full_every: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    name: String,
    #[serde(default, rename = "note")]
    _note: String,
    engine: EngineCase,
    requests: Vec<RequestCase>,
    #[serde(default)]
    actions: Vec<Action>,
    #[serde(default)]
    log: LogCase,
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
}

/// A case, checked and in the engine's terms.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub config: EngineConfig,
    pub python_hash_seed: Option<String>,
    pub use_int_block_hashes: bool,
    /// In order of arrival.
    pub requests: Vec<CaseRequest>,
    /// Ids by rank.
    pub names: Vec<String>,
    pub actions: Vec<Action>,
    /// Lines between two that are written whole; `None` for all.
    pub full_every: Option<u64>,
}

impl Case {
    /// # Errors
    /// Text that is no case, an engine that cannot start, a request that cannot be.
    pub fn parse(text: &str) -> Result<Self, CaseError> {
        let file: CaseFile = serde_json::from_str(text)?;
        let config = file.engine.to_config();
        config.validate()?;
        check_size(&file.requests)?;
        let mut names: Vec<String> = file.requests.iter().map(|request| request.id.clone()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CaseError::Request {
                id: twice[0].clone(),
                problem: "two requests have this id; give each its own".into(),
            });
        }
        let reports = |request: &&RequestCase| request.kv_cache_report_mode == Some(ReportMode::Full);
        if !config.can_report_cached_blocks()
            && let Some(request) = file.requests.iter().find(reports)
        {
            return Err(CaseError::Request {
                id: request.id.clone(),
                problem: RequestError::CannotReportCachedBlocks.to_string(),
            });
        }
        let requests = file
            .requests
            .into_iter()
            .enumerate()
            .map(|(index, request)| {
                let rank = names.binary_search(&request.id).unwrap_or_default() as u64;
                request.check(index, rank)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if let Some((index, action)) = file.actions.iter().enumerate().find(|(_, a)| a.step > MAX_STEP) {
            return Err(CaseError::ActionStep { index, step: action.step });
        }
        if let Some(pair) = requests.windows(2).find(|pair| pair[0].arrival_step > pair[1].arrival_step) {
            return Err(CaseError::Request {
                id: names[pair[1].rank as usize].clone(),
                problem: "arrival_step is smaller than that of the request before; sort by it".into(),
            });
        }
        Ok(Self {
            name: file.name,
            config,
            python_hash_seed: file.engine.python_hash_seed,
            use_int_block_hashes: file.engine.use_int_block_hashes,
            requests,
            names,
            actions: file.actions,
            full_every: file.log.full_every.filter(|&lines| lines > 0),
        })
    }
}

/// Before anything is built from the requests.
fn check_size(requests: &[RequestCase]) -> Result<(), CaseError> {
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

impl EngineCase {
    fn to_config(&self) -> EngineConfig {
        let spec = |group: &GroupCase| {
            let size = |block_size: &Option<u32>| block_size.unwrap_or(self.block_size);
            match group {
                GroupCase::Full { block_size } => KvCacheSpec::full(size(block_size)),
                GroupCase::SlidingWindow { block_size, sliding_window } => KvCacheSpec::SlidingWindow {
                    block_size: size(block_size),
                    sliding_window: *sliding_window,
                },
                GroupCase::ChunkedLocal { block_size, chunk_size } => KvCacheSpec::ChunkedLocalAttention {
                    block_size: size(block_size),
                    attention_chunk_size: *chunk_size,
                },
                GroupCase::Mamba { block_size, .. } => KvCacheSpec::Mamba { block_size: size(block_size) },
            }
        };
        EngineConfig {
            async_scheduling: self.mode == Mode::Async,
            block_size: self.block_size,
            prefix_match_unit: self.hash_block_size,
            num_gpu_blocks: self.num_gpu_blocks,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            max_num_scheduled_tokens: self.max_num_scheduled_tokens,
            max_model_len: self.max_model_len,
            enable_chunked_prefill: self.enable_chunked_prefill,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            long_prefill_token_threshold_adaptive: self.long_prefill_token_threshold_adaptive,
            scheduler_reserve_full_isl: self.scheduler_reserve_full_isl,
            watermark: self.watermark,
            enable_prefix_caching: self.enable_prefix_caching,
            prefix_caching_hash_algo: self.prefix_caching_hash_algo,
            policy: self.policy,
            enable_kv_cache_events: self.enable_kv_cache_events,
            kv_cache_groups: self.kv_cache_groups.iter().map(spec).collect(),
            decode_context_parallel_size: self.dcp_world_size,
            speculative: self.num_speculative_tokens.map(|num_speculative_tokens| SpeculativeConfig {
                method: self.spec_method.unwrap_or(SpecMethod::Eagle),
                num_speculative_tokens,
                disable_lookahead_block_hashes: !self.lookahead_block_hashes,
            }),
            max_loras: self.max_loras,
            kv_connector: self.kv_connector.as_ref().map(|connector| connector.load_failure_policy),
            kv_cache_metrics: false,
        }
    }
}

impl RequestCase {
    fn prompt_tokens(&self) -> u64 {
        self.prompt_embeds.as_ref().map_or_else(|| self.prompt.total(), |embeds| embeds.num_tokens.into())
    }

    fn check(self, index: usize, rank: u64) -> Result<CaseRequest, CaseError> {
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
            report_cached_blocks: self.kv_cache_report_mode == Some(ReportMode::Full),
            session_id: self.session_id,
            draft_accepts: self.draft_accepts.unwrap_or_else(|| vec![0]),
            draft_lens: self.draft_lens,
            kv: self.kv,
        })
    }
}
