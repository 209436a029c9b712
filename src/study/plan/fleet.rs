//! How many replicas a load takes, and what they cost.

use serde::Serialize;

use super::settings::{Prices, Settings};
use crate::engine::connector::SharedBy;
use crate::scenario::{Scenario, TierSection};

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

/// The price of an hour: GPUs, and tiers as many as there are stores.
fn price_per_hour(scenario: &Scenario, prices: &Prices, replicas: u32) -> f64 {
    let engine = &scenario.file.engine;
    let gpu = prices.gpu.get(scenario.gpu.name).copied().unwrap_or(0.0);
    let on_a_node = scenario.file.cluster.as_ref().and_then(|cluster| cluster.replicas_per_node);
    let tiers = engine.kv_transfer_config.iter().flat_map(|transfer| &transfer.tiers);
    let tier = |tier: &TierSection| {
        let stores = match tier.shared {
            None => replicas,
            Some(SharedBy::Node) => replicas.div_ceil(on_a_node.unwrap_or(replicas).max(1)),
            Some(SharedBy::Cluster) => 1,
        };
        prices.tier_gib.get(&tier.kind).copied().unwrap_or(0.0) * tier.size_gib * f64::from(stores)
    };
    gpu * f64::from(engine.num_gpus()) * f64::from(replicas) + tiers.map(tier).sum::<f64>()
}

impl Fleet {
    pub fn new(counts: Counts, scenario: &Scenario, settings: &Settings, rates: TokenRates) -> Self {
        let replicas = counts.replicas();
        let cost_per_hour = price_per_hour(scenario, &settings.prices, replicas);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::connector::TierKind;
    use crate::scenario::Source;

    #[test]
    fn a_shared_tier_is_paid_for_once_for_each_store() {
        let text = "
name: tiers
model: Llama-3.1-8B
gpu: H100
engine:
  max_model_len: 4096
  kv_transfer_config:
    tiers:
      - {kind: host, size_gib: 10, read_gb_per_s: 50, write_gb_per_s: 50, latency_us: 20}
      - {kind: disk, size_gib: 50, shared: node, read_gb_per_s: 5, write_gb_per_s: 5, latency_us: 100,
         total_read_gb_per_s: 5, total_write_gb_per_s: 5}
      - {kind: remote, size_gib: 100, shared: cluster, read_gb_per_s: 25, write_gb_per_s: 25, latency_us: 400,
         total_read_gb_per_s: 25, total_write_gb_per_s: 25}
cluster: {replicas: 5, replicas_per_node: 2}
workload:
  random: {requests_per_s: 1, num_requests: 10, input_len: 100, output_len: 10}
";
        let source = Source {
            path: "tiers.yaml".into(),
            text: text.to_owned(),
            overrides: Vec::new(),
            seed: None,
            trace: None,
            skip_bad_rows: false,
        };
        let scenario = Scenario::load(source).unwrap();
        let tier_gib = [(TierKind::Host, 0.1), (TierKind::Disk, 0.02), (TierKind::Remote, 0.01)];
        let prices = Prices { gpu: [("H100-SXM".to_owned(), 2.0)].into(), tier_gib: tier_gib.into() };
        // Five GPUs, five host memories, the disks of three machines, one remote store.
        assert_eq!(price_per_hour(&scenario, &prices, 5), 10.0 + 5.0 + 3.0 + 1.0);
        assert_eq!(price_per_hour(&scenario, &prices, 1), 2.0 + 1.0 + 1.0 + 1.0);
    }
}
