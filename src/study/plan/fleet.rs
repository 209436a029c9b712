//! How many replicas a load takes, and what they cost.

use serde::Serialize;

use super::settings::{Prices, Settings};
use crate::scenario::Scenario;

/// A load that is this much more than whole replicas take is what they take: rounding.
const ROUNDING: f64 = 1e-9;

/// Replicas of one candidate for the whole load. Costs are in the currency of the prices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// That take the load and no more.
    pub replicas_at_least: u32,
    /// That take it with headroom.
    pub replicas_with_headroom: u32,
    /// Of which as many as may be lost can be lost.
    pub replicas_with_losses: u32,
    /// The larger one of the last two.
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
    /// For the load 1, of which one replica takes `capacity`.
    pub fn new(capacity: f64, scenario: &Scenario, settings: &Settings, rates: TokenRates) -> Self {
        let replicas = |load: f64| (load / capacity - ROUNDING).ceil().max(1.0) as u32;
        let replicas_at_least = replicas(1.0);
        let replicas_with_headroom = replicas(1.0 + settings.headroom);
        let replicas_with_losses = replicas_at_least.saturating_add(settings.lost_replicas);
        Self {
            replicas_at_least,
            replicas_with_headroom,
            replicas_with_losses,
            replicas: 0,
            gpus: 0,
            cost_per_hour: 0.0,
            cost_per_million_input_tokens: 0.0,
            cost_per_million_output_tokens: 0.0,
            cost_per_million_tokens: 0.0,
        }
        .with_replicas(replicas_with_headroom.max(replicas_with_losses), scenario, settings, rates)
    }

    /// The same with another number of replicas.
    pub fn with_replicas(
        self,
        replicas: u32,
        scenario: &Scenario,
        settings: &Settings,
        rates: TokenRates,
    ) -> Self {
        let cost_per_hour = replica_price(scenario, &settings.prices) * f64::from(replicas);
        let per_million = |tokens_per_s: f64| {
            if tokens_per_s > 0.0 { cost_per_hour / (tokens_per_s * 3600.0) * 1e6 } else { 0.0 }
        };
        Self {
            replicas,
            gpus: replicas.saturating_mul(scenario.file.engine.num_gpus()),
            cost_per_hour,
            cost_per_million_input_tokens: per_million(rates.prompt_tokens_per_s),
            cost_per_million_output_tokens: per_million(rates.output_tokens_per_s),
            cost_per_million_tokens: per_million(rates.prompt_tokens_per_s + rates.output_tokens_per_s),
            ..self
        }
    }
}
