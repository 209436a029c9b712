//! A run of a real server: how it was set up, what it was asked, and what was measured.

use std::collections::BTreeMap;

use super::Metric;
use super::ladder::Ladder;
use crate::cost::{CudagraphMode, Format};
use crate::prompt::TokenRuns;
use crate::units::SimTime;

/// A run, or one stage of a load.
#[derive(Clone, Debug)]
pub struct BenchRun {
    pub id: String,
    /// Where it was published.
    pub source: String,
    pub settings: Settings,
    /// Why it cannot be simulated, or what it was asked.
    pub load: Result<Load, String>,
    pub measured: BTreeMap<Metric, f64>,
}

/// The server. `None` is not published, and takes what vLLM would choose.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub model: String,
    pub gpu: String,
    pub tensor_parallel_size: u32,
    /// Engine cores that share the experts; at least one.
    pub data_parallel_size: u32,
    pub enable_expert_parallel: bool,
    pub engine_version: String,
    pub weight_dtype: Option<String>,
    pub kv_cache_dtype: Option<String>,
    pub max_model_len: Option<u32>,
    pub max_num_seqs: Option<u32>,
    pub max_num_batched_tokens: Option<u32>,
    pub block_size: Option<u32>,
    pub async_scheduling: Option<bool>,
    pub fuse_allreduce_rms: Option<bool>,
    pub cudagraph_mode: CudagraphMode,
    pub max_cudagraph_capture_size: Option<u32>,
    pub gpu_memory_utilization: Option<f64>,
    pub num_gpu_blocks: Option<u32>,
    pub enable_prefix_caching: Option<bool>,
    /// The kernels that the experts were told to use, where that is not vLLM's choice.
    pub moe_format: Option<Format>,
    /// Requests come over HTTP; else from the server's own process.
    pub is_remote: bool,
    /// How requests find their replica, in the words of the source.
    pub routing: Option<String>,
}

/// What the server was asked.
#[derive(Clone, Debug)]
pub enum Load {
    /// Every request, at the time at which it was sent.
    Recorded(Vec<RecordedRequest>),
    ClosedLoop(ClosedLoopLoad),
    /// One stage of a ladder of rates.
    Ladder {
        ladder: Box<Ladder>,
        stage: usize,
    },
}

#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub at: SimTime,
    pub prompt: TokenRuns,
    pub num_output_tokens: u32,
}

/// Random prompts; whoever has an answer sends the next request at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoopLoad {
    pub concurrency: u32,
    pub num_requests: u32,
    pub input_tokens: u32,
    pub output_tokens: u32,
    /// Lengths are uniform between this share of the two above and the whole.
    pub range_ratio: f64,
    /// The client reads the answers in many worker processes, so that no user waits for the tokens of others.
    pub client_has_workers: bool,
}

impl ClosedLoopLoad {
    /// Users whose tokens one thread of the client reads.
    pub fn users_per_thread(&self) -> u32 {
        if self.client_has_workers { 1 } else { self.concurrency }
    }
}

impl Load {
    /// Which of the figures of its simulation are this load's: one for each stage of a ladder.
    pub(super) fn part(&self) -> usize {
        match self {
            Self::Ladder { stage, .. } => *stage,
            Self::Recorded(_) | Self::ClosedLoop(_) => 0,
        }
    }

    /// The load that is simulated for it: of a ladder the whole.
    pub(super) fn whole(&self) -> Self {
        match self {
            Self::Ladder { ladder, .. } => Self::Ladder { ladder: ladder.clone(), stage: 0 },
            other => other.clone(),
        }
    }
}

impl BenchRun {
    /// Everything that names it, in one line to search in.
    pub fn label(&self) -> String {
        let settings = &self.settings;
        format!(
            "{} {} {} {} tp{} v{} {}",
            self.id,
            self.source,
            settings.gpu,
            settings.model,
            settings.ranks(),
            settings.engine_version,
            settings.weight_dtype.as_deref().unwrap_or("bf16")
        )
    }
}

impl Settings {
    /// Such as `4`, or `2 dp2 ep`.
    pub fn ranks(&self) -> String {
        let mut text = self.tensor_parallel_size.to_string();
        if self.data_parallel_size > 1 {
            text += &format!(" dp{}", self.data_parallel_size);
        }
        if self.enable_expert_parallel {
            text += " ep";
        }
        text
    }

    /// Several ranks hold whole experts, or those of other engine cores.
    pub fn shares_experts(&self) -> bool {
        self.enable_expert_parallel || self.data_parallel_size > 1
    }

    /// `(0, 19)` of `0.19.0`, if the version is known.
    pub fn version(&self) -> Option<(u32, u32)> {
        let mut parts = self.engine_version.split('.');
        let number = |part: Option<&str>| part.and_then(|part| part.parse().ok());
        number(parts.next()).zip(number(parts.next()))
    }
}
