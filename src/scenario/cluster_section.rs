//! Several replicas behind a router, as they are typed.

use serde::{Deserialize, Serialize};

use super::file::CostSection;
use crate::simulation::router::RouterConfig;

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
