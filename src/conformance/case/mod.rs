//! The case file: an engine, the requests that arrive, what the model samples (format 1).

mod engine;
mod error;
mod request;

use serde::Deserialize;

use engine::EngineCase;
pub use error::CaseError;
pub(super) use error::MAX_FRUITLESS_STEPS;
pub use request::{CaseRequest, KvCase, PullCase, PullPart};
use request::{RequestCase, check_size};

use crate::engine::kv_cache::KvCacheSpec;
use crate::engine::scheduler::RequestError;
use crate::engine::{EngineConfig, EngineConfigError};

/// What JSON readers agree on.
const MAX_STEP: u64 = 1 << 53;
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

/// A case, checked and in the engine's terms.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub config: EngineConfig,
    pub python_hash_seed: Option<String>,
    pub use_int_block_hashes: bool,
    /// The connector is that of servers which read each other's blocks.
    pub is_pull: bool,
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
        let is_read = |spec: &KvCacheSpec| {
            matches!(spec, KvCacheSpec::FullAttention { .. } | KvCacheSpec::SlidingWindow { .. })
        };
        if file.engine.is_pull() && !config.kv_cache_groups.iter().all(is_read) {
            return Err(EngineConfigError {
                field: "kv_cache_groups",
                problem: "a pull connector reads blocks of full and sliding-window attention only".into(),
                hint: "leave other groups out".into(),
            }
            .into());
        }
        check_size(&file.requests)?;
        let mut names: Vec<String> = file.requests.iter().map(|request| request.id.clone()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CaseError::Request {
                id: twice[0].clone(),
                problem: "two requests have this id; give each its own".into(),
            });
        }
        if !config.can_report_cached_blocks()
            && let Some(request) = file.requests.iter().find(|request| request.reports_cached_blocks())
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
            is_pull: file.engine.is_pull(),
            python_hash_seed: file.engine.python_hash_seed,
            use_int_block_hashes: file.engine.use_int_block_hashes,
            requests,
            names,
            actions: file.actions,
            full_every: file.log.full_every.filter(|&lines| lines > 0),
        })
    }
}
