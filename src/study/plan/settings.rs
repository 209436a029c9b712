//! What a plan decides by.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::targets::Target;
use crate::engine::connector::TierKind;
use crate::simulation::router::RouterConfig;

/// Prices of an hour, in the currency of the reader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// By the GPU's name in the catalogue.
    pub gpu: BTreeMap<String, f64>,
    /// Of a GiB of a tier behind the GPU's cache; a kind that is left out costs nothing.
    #[serde(default)]
    pub tier_gib: BTreeMap<TierKind, f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub targets: Vec<Target>,
    pub prices: Prices,
    /// More than the load, as a share of it, that the fleet can take.
    pub headroom: f64,
    /// Fleets that cost more than this share above one that is as fast are not simulated.
    pub reach: f64,
    /// Replicas that may be lost without a target being missed at the load.
    pub lost_replicas: u32,
    /// Of each interval that decides.
    pub confidence: f64,
    /// How much higher than the load that was found the next one may be, as a share.
    pub precision: f64,
    /// Runs of a load, with seeds from the scenario's own upwards.
    pub max_replications: u32,
    /// The share of the time in which sessions start that does not count.
    pub warmup: f64,
    /// Behind which fleets are tried.
    pub routers: Vec<RouterConfig>,
}
