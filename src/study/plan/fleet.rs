//! How many replicas a load takes, and what they cost.

use serde::Serialize;

use super::settings::{Prices, Settings};
use crate::scenario::Scenario;

/// A load that is this much more than whole replicas take is what they take: rounding.
const ROUNDING: f64 = 1e-9;

/// How many replicas it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// That take the load and no more.
    #[serde(rename = "replicas_at_least")]
    pub at_least: u32,
    /// That take it with headroom.
    #[serde(rename = "replicas_with_headroom")]
    pub with_headroom: u32,
    /// Of which as many as may be lost can be lost.
    #[serde(rename = "replicas_with_losses")]
    pub with_losses: u32,
}

impl Counts {
    pub fn new(at_least: u32, with_headroom: u32, lost_replicas: u32) -> Self {
        Self { at_least, with_headroom, with_losses: at_least.saturating_add(lost_replicas) }
    }

    /// Where one replica takes `capacity` of the load 1.
    pub fn of_capacity(capacity: f64, settings: &Settings) -> Self {
        let replicas = |load: f64| (load / capacity - ROUNDING).ceil().max(1.0) as u32;
        Self::new(replicas(1.0), replicas(1.0 + settings.headroom), settings.lost_replicas)
    }

    /// With headroom and with losses, whichever takes more.
    pub fn replicas(self) -> u32 {
        self.with_headroom.max(self.with_losses)
    }
}

/// Replicas of one candidate for the whole load. Costs are in the currency of the prices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    #[serde(flatten)]
    pub counts: Counts,
    pub replicas: u32,
    pub gpus: u32,
    pub cost_per_hour: f64,
    /// All of the cost over the prompt tokens of the load, over its output tokens, and over both.
    pub cost_per_million_input_tokens: f64,
    pub cost_per_million_output_tokens: f64,
    pub cost_per_million_tokens: f64,
}

/// Tokens of the whole load in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TokenRates {
    pub prompt_tokens_per_s: f64,
    pub output_tokens_per_s: f64,
}

/// The price of a replica for an hour: its GPUs and its tiers.
pub(super) fn replica_price(scenario: &Scenario, prices: &Prices) -> f64 {
    let engine = &scenario.file.engine;
    let gpu = prices.gpu.get(scenario.gpu.name).copied().unwrap_or(0.0);
    let tiers = engine.kv_transfer_config.iter().flat_map(|transfer| &transfer.tiers);
    let tier = |tier: &crate::scenario::TierSection| {
        prices.tier_gib.get(&tier.kind).copied().unwrap_or(0.0) * tier.size_gib
    };
    gpu * f64::from(engine.num_gpus()) + tiers.map(tier).sum::<f64>()
}

impl Fleet {
    pub fn new(counts: Counts, scenario: &Scenario, settings: &Settings, rates: TokenRates) -> Self {
        let replicas = counts.replicas();
        let cost_per_hour = replica_price(scenario, &settings.prices) * f64::from(replicas);
        let per_million = |tokens_per_s: f64| {
            if tokens_per_s > 0.0 { cost_per_hour / (tokens_per_s * 3600.0) * 1e6 } else { 0.0 }
        };
        Self {
            counts,
            replicas,
            gpus: replicas.saturating_mul(scenario.file.engine.num_gpus()),
            cost_per_hour,
            cost_per_million_input_tokens: per_million(rates.prompt_tokens_per_s),
            cost_per_million_output_tokens: per_million(rates.output_tokens_per_s),
            cost_per_million_tokens: per_million(rates.prompt_tokens_per_s + rates.output_tokens_per_s),
        }
    }
}
