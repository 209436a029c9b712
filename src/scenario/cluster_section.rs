//! Several replicas behind a router, as they are typed.

use serde::{Deserialize, Serialize};

use super::file::CostSection;
use crate::simulation::router::RouterConfig;
use crate::simulation::{AutoscalerConfig, OnFailure};

/// `replicas` that are all as the scenario says, or `pools` of several kinds; one replica if neither
/// is given.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSection {
    #[serde(default)]
    pub replicas: Option<u32>,
    #[serde(default)]
    pub pools: Option<Vec<PoolSection>>,
    #[serde(default)]
    pub router: RouterConfig,
    /// What happens to replicas at given times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<ClusterEventSection>,
    /// What becomes of the requests of a replica that fails.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,
    /// `replicas` are there at first. Not with `pools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler: Option<AutoscalerConfig>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl ClusterSection {
    /// Replicas come and go.
    pub(super) fn has_lifecycle(&self) -> bool {
        !self.events.is_empty() || self.autoscaler.is_some()
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
    pub replicas: u32,
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
