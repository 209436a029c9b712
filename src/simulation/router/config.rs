//! What can be set about a router.

use serde::{Deserialize, Serialize};

use super::{LeastKvUsage, LeastRequests, Random, RoundRobin, Router};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterConfig {
    #[serde(default)]
    pub policy: RouterPolicy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterPolicy {
    Random,
    #[default]
    RoundRobin,
    LeastRequests,
    LeastKvUsage,
}

impl RouterPolicy {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round_robin",
            Self::LeastRequests => "least_requests",
            Self::LeastKvUsage => "least_kv_usage",
        }
    }
}

impl RouterConfig {
    /// The router, which draws from streams of this seed.
    pub fn build(&self, seed: u64) -> Box<dyn Router> {
        match self.policy {
            RouterPolicy::Random => Box::new(Random::new(seed)),
            RouterPolicy::RoundRobin => Box::new(RoundRobin::default()),
            RouterPolicy::LeastRequests => Box::new(LeastRequests::default()),
            RouterPolicy::LeastKvUsage => Box::new(LeastKvUsage::default()),
        }
    }
}
