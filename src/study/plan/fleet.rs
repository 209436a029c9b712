//! How many replicas a load takes, and what they cost.

use std::fmt;

use serde::Serialize;

use super::settings::{Prices, Settings};
use crate::engine::connector::SharedBy;
use crate::scenario::{Roles, Scenario, TierSection};

/// A load that is this much more than whole replicas take is what they take: rounding.
const ROUNDING: f64 = 1e-9;

/// How many replicas a fleet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FleetSize {
    /// All of them.
    pub replicas: u32,
    /// Those that compute prompts for the others to go on from; 0 where each does everything.
    pub prefill: u32,
}

impl FleetSize {
    pub const fn alike(replicas: u32) -> Self {
        Self { replicas, prefill: 0 }
    }

    pub const fn of_roles(prefill: u32, decode: u32) -> Self {
        Self { replicas: prefill.saturating_add(decode), prefill }
    }

    /// The least that serves: one replica, or the pools with roles as the scenario has them.
    pub fn unit(scenario: &Scenario) -> Self {
        scenario.roles().map_or(Self::alike(1), |roles| {
            let count = |pool: usize| scenario.pools[pool].num_replicas;
            Self::of_roles(count(roles.prefill), count(roles.decode))
        })
    }

    pub const fn has_roles(self) -> bool {
        self.prefill > 0
    }

    pub const fn decode(self) -> u32 {
        self.replicas - self.prefill
    }

    pub const fn times(self, units: u32) -> Self {
        Self { replicas: self.replicas.saturating_mul(units), prefill: self.prefill.saturating_mul(units) }
    }

    /// With so many more, of each role.
    const fn with_spare(self, spare: u32) -> Self {
        if self.has_roles() {
            Self::of_roles(self.prefill.saturating_add(spare), self.decode().saturating_add(spare))
        } else {
            Self::alike(self.replicas.saturating_add(spare))
        }
    }

    /// Enough for both, in each role.
    fn max(self, other: Self) -> Self {
        if self.has_roles() {
            Self::of_roles(self.prefill.max(other.prefill), self.decode().max(other.decode()))
        } else {
            Self::alike(self.replicas.max(other.replicas))
        }
    }

    /// In words, to stand before what they are of.
    pub fn words(self) -> String {
        if self.has_roles() {
            format!("{} prefill + {} decode replicas", self.prefill, self.decode())
        } else {
            format!("{} {}", self.replicas, if self.replicas == 1 { "replica" } else { "replicas" })
        }
    }
}

/// `5`, or `2P+3D`.
impl fmt::Display for FleetSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_roles() {
            write!(f, "{}P+{}D", self.prefill, self.decode())
        } else {
            self.replicas.fmt(f)
        }
    }
}

/// How many replicas it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "CountsFields")]
pub struct Counts {
    /// That take the load and no more.
    pub at_least: FleetSize,
    /// That take it with headroom.
    pub with_headroom: FleetSize,
    /// Of which as many as may be lost can be lost, of each role.
    pub with_losses: FleetSize,
}

/// As they are written.
#[derive(Serialize)]
struct CountsFields {
    replicas_at_least: u32,
    replicas_with_headroom: u32,
    replicas_with_losses: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefill_replicas_at_least: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefill_replicas_with_headroom: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefill_replicas_with_losses: Option<u32>,
}

impl From<Counts> for CountsFields {
    fn from(Counts { at_least, with_headroom, with_losses }: Counts) -> Self {
        let prefill = |size: FleetSize| size.has_roles().then_some(size.prefill);
        Self {
            replicas_at_least: at_least.replicas,
            replicas_with_headroom: with_headroom.replicas,
            replicas_with_losses: with_losses.replicas,
            prefill_replicas_at_least: prefill(at_least),
            prefill_replicas_with_headroom: prefill(with_headroom),
            prefill_replicas_with_losses: prefill(with_losses),
        }
    }
}

impl Counts {
    pub fn new(at_least: FleetSize, with_headroom: FleetSize, lost_replicas: u32) -> Self {
        Self { at_least, with_headroom, with_losses: at_least.with_spare(lost_replicas) }
    }

    /// Where one `unit` takes `capacity` of the load 1.
    pub fn of_capacity(capacity: f64, unit: FleetSize, settings: &Settings) -> Self {
        let size = |load: f64| unit.times((load / capacity - ROUNDING).ceil().max(1.0) as u32);
        Self::new(size(1.0), size(1.0 + settings.headroom), settings.lost_replicas)
    }

    /// With headroom and with losses, whichever takes more.
    pub fn size(self) -> FleetSize {
        self.with_headroom.max(self.with_losses)
    }
}

/// Replicas of one candidate for the whole load. Costs are in the currency of the prices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    #[serde(flatten)]
    pub counts: Counts,
    pub replicas: u32,
    /// Of these, those that prefill for the others, if they have roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_replicas: Option<u32>,
    pub gpus: u32,
    pub cost_per_hour: f64,
    /// All of the cost over the prompt tokens of the load, over its output tokens, and over both.
    pub cost_per_million_input_tokens: f64,
    pub cost_per_million_output_tokens: f64,
    pub cost_per_million_tokens: f64,
    /// What a replica of each role costs in an hour, prefill first.
    #[serde(skip)]
    prices_of_roles: Option<[f64; 2]>,
}

/// Tokens of the whole load in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TokenRates {
    pub prompt_tokens_per_s: f64,
    pub output_tokens_per_s: f64,
}

/// The price of an hour of a replica of each role, prefill first. They have no tiers.
fn prices_of_roles(scenario: &Scenario, prices: &Prices) -> Option<[f64; 2]> {
    let price = |at: usize| {
        let pool = &scenario.pools[at];
        let gpu = prices.gpu.get(pool.gpu.name).copied().unwrap_or(0.0);
        gpu * f64::from(pool.section.num_gpus())
    };
    scenario.roles().map(|Roles { prefill, decode }| [price(prefill), price(decode)])
}

fn cost_of_roles([prefill, decode]: [f64; 2], size: FleetSize) -> f64 {
    prefill * f64::from(size.prefill) + decode * f64::from(size.decode())
}

/// The price of an hour of replicas that are alike: GPUs, and tiers as many as there are stores.
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
        let size = counts.size();
        let prices_of_roles = prices_of_roles(scenario, &settings.prices);
        let cost_per_hour = match prices_of_roles {
            Some(prices) => cost_of_roles(prices, size),
            None => price_per_hour(scenario, &settings.prices, size.replicas),
        };
        let gpus = match scenario.roles() {
            Some(Roles { prefill, decode }) => {
                let of = |pool: usize| scenario.pools[pool].section.num_gpus();
                let gpus = |replicas: u32, pool| replicas.saturating_mul(of(pool));
                gpus(size.prefill, prefill).saturating_add(gpus(size.decode(), decode))
            }
            None => size.replicas.saturating_mul(scenario.file.engine.num_gpus()),
        };
        let per_million = |tokens_per_s: f64| {
            if tokens_per_s > 0.0 { cost_per_hour / (tokens_per_s * 3600.0) * 1e6 } else { 0.0 }
        };
        Self {
            counts,
            replicas: size.replicas,
            prefill_replicas: size.has_roles().then_some(size.prefill),
            gpus,
            cost_per_hour,
            cost_per_million_input_tokens: per_million(rates.prompt_tokens_per_s),
            cost_per_million_output_tokens: per_million(rates.output_tokens_per_s),
            cost_per_million_tokens: per_million(rates.prompt_tokens_per_s + rates.output_tokens_per_s),
            prices_of_roles,
        }
    }

    pub fn size(&self) -> FleetSize {
        self.counts.size()
    }

    /// What another number of the same replicas costs in an hour.
    pub fn cost_of(&self, size: FleetSize) -> f64 {
        match self.prices_of_roles {
            Some(prices) => cost_of_roles(prices, size),
            None => self.cost_per_hour / f64::from(self.replicas) * f64::from(size.replicas),
        }
    }

    /// A replica that prefills costs more than one that decodes.
    pub fn is_prefill_dearer(&self) -> bool {
        self.prices_of_roles.is_some_and(|[prefill, decode]| prefill > decode)
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
