//! Several replicas behind a router, as they are typed.

use serde::{Deserialize, Serialize};

use super::file::CostSection;
use crate::engine::config::KvLoadFailurePolicy;
use crate::simulation::router::RouterConfig;
use crate::simulation::{AutoscalerConfig, OnFailure, Role};

/// `replicas` that are all as the scenario says, or `pools` of several kinds; one replica if neither
/// is given.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSection {
    #[serde(default)]
    pub replicas: Option<u32>,
    #[serde(default)]
    pub pools: Option<Vec<PoolSection>>,
    /// So many replicas of a pool, in order, are on one machine and share its tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_per_node: Option<u32>,
    #[serde(default)]
    pub router: RouterConfig,
    /// What happens to replicas at given times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<ClusterEventSection>,
    /// What becomes of the requests of a replica that fails.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,
    /// `replicas` are there at first. With `pools`, each can have its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<AutoscalerConfig>,
    /// Between pools that prefill and pools that decode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_link: Option<KvLinkSection>,
    /// Chooses among the replicas that decode; `router` then among those that prefill. As that if left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decode_router: Option<RouterConfig>,
}

/// The link of each replica over which others read its KV blocks, and it theirs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvLinkSection {
    /// Of one rank, each way, in 10^9 bytes per second.
    pub gb_per_s: f64,
    #[serde(default)]
    pub latency_us: f64,
    /// Of each read, beside the latency.
    #[serde(default)]
    pub set_up_us: f64,
    /// Blocks that nobody is there to read are kept so long (`kv_lease_duration`).
    #[serde(default = "thirty")]
    pub kv_lease_duration_s: f64,
    /// What becomes of a request whose blocks cannot be read.
    #[serde(default)]
    pub kv_load_failure_policy: KvLoadFailurePolicy,
}

const fn thirty() -> f64 {
    30.0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl ClusterSection {
    /// Replicas come and go.
    pub(super) fn has_lifecycle(&self) -> bool {
        let scales = |pool: &PoolSection| pool.autoscaler.is_some();
        !self.events.is_empty() || self.autoscaler.is_some() || self.pools.iter().flatten().any(scales)
    }
}

/// Something that happens to one replica. One kind beside the time; replicas are counted from 0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterEventSection {
    /// From the start, in seconds.
    pub at_s: f64,
    /// The replica is gone, with its requests and its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<u32>,
    /// A machine is gone, with its replicas and the tiers that they share. Counted from 0, in the order of
    /// the replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_node: Option<u32>,
    /// It begins anew with an empty cache; if it is there, it fails first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<u32>,
    /// It takes no more requests, and goes when those that it has are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<u32>,
    /// Of a restart: until it is ready, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_up_s: Option<f64>,
}

/// Replicas of one kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSection {
    pub name: String,
    /// With an autoscaler those that are there at first; its least if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<AutoscalerConfig>,
    /// Computes prompts, or goes on from there; all pools have a role, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Instead of the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas_per_node: Option<u32>,
    /// Instead of the scenario's.
    #[serde(default)]
    pub gpu: Option<String>,
    /// The options of `engine` that differ from the scenario's.
    #[serde(default)]
    pub engine: Option<serde_json::Value>,
    /// Instead of the scenario's.
    #[serde(default)]
    pub cost: Option<CostSection>,
}
