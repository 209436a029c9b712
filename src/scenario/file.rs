//! What is typed in a scenario. Field names and defaults of the engine are vLLM's.

use serde::{Deserialize, Serialize};

use super::cluster_section::ClusterSection;
use super::engine_section::EngineSection;
use crate::report::GoodputLimits;
use crate::workload::WorkloadConfig;

/// A whole scenario file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// Names the report's folder: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// What a reader should know of it.
    #[serde(default)]
    pub description: String,
    #[serde(default = "one")]
    pub seed: u64,
    /// A built-in model, or the path of a Hugging Face `config.json` relative to this file.
    pub model: String,
    /// A GPU of the catalogue.
    pub gpu: String,
    #[serde(default)]
    pub engine: EngineSection,
    pub workload: WorkloadConfig,
    /// The GPU's built-in profile if left out.
    #[serde(default)]
    pub cost: Option<CostSection>,
    /// One replica if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterSection>,
    /// The host's time to hash blocks: measured unless the cost is constant.
    #[serde(default)]
    pub block_hashing: Option<HashingSection>,
    /// What users are promised: how many requests keep it is then part of the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<GoodputLimits>,
    /// What is done to the servers while they run.
    #[serde(default)]
    pub actions: Vec<ActionSection>,
}

const fn one() -> u64 {
    1
}

/// A cost model other than the GPU's built-in profile.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSection {
    /// A file that `kvsim calibrate` wrote, relative to this one.
    Profile(String),
    /// So much for each step and each of its tokens.
    Constant(ConstantSection),
}

/// How long hashing blocks takes the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HashingSection {
    /// No time at all.
    Free,
    /// As measured with vLLM's own functions on one CPU, by `prefix_caching_hash_algo`.
    Measured,
    /// A file that `kvsim calibrate hashing` wrote, relative to this one.
    Profile(String),
    /// So much for each block and each of its tokens.
    Constant(HashingConstant),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashingConstant {
    pub block_ns: f64,
    #[serde(default)]
    pub token_ns: f64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstantSection {
    pub step_ns: u64,
    #[serde(default)]
    pub per_token_ns: u64,
}

/// Something that happens at a given time. One kind beside the time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionSection {
    /// From the start, in seconds.
    pub at_s: f64,
    /// `POST /reset_prefix_cache`.
    pub reset_prefix_cache: ResetSection,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetSection {
    /// Preempt the running requests first, so that the reset cannot fail.
    #[serde(default)]
    pub reset_running_requests: bool,
    /// Empty the tiers behind the GPU's cache too.
    #[serde(default)]
    pub reset_external: bool,
}
