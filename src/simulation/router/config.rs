//! What can be set about a router.

use serde::{Deserialize, Serialize};

use super::{
    CacheAware, CacheAwareThresholds, EventSettings, KvCost, LeastKvUsage, LeastRequests, PrefixIndex,
    Random, RoundRobin, Router, RouterHash, ScoreWeights, SessionAffinity, Weighted,
};
use crate::engine::hash::{PrefixCachingHashAlgo, RequestBlockHasher};
use crate::simulation::data_parallel::Endpoints;
use crate::units::SimTime;
use crate::workload::{ConfigError, require};

/// The longest delay, and the shortest interval that is none.
const MAX_MS: f64 = 1e9;
const MIN_INTERVAL_MS: f64 = 1e-3;

/// What a policy does not use is not looked at, so that policies can be compared with one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouterConfig {
    pub policy: RouterPolicy,
    /// What is chosen from, of replicas with several data-parallel ranks.
    #[serde(skip_serializing_if = "is_default")]
    pub endpoints: Endpoints,
    /// From the router to a replica.
    pub latency_ms: f64,
    /// The replicas' metrics are read so often; 0 is at any time.
    pub metrics_interval_ms: f64,
    /// Of the blocks that the router hashes, in tokens.
    pub block_size: u32,
    /// So many blocks of a prompt are looked at. Left out: 256 of what was sent (as the Gateway API
    /// Inference Extension has it), all of KV events.
    pub max_prefix_blocks: Option<u32>,
    /// Blocks that are remembered for each replica, of what was sent.
    pub capacity_blocks: u32,
    /// How the router hashes, to look for the hashes of KV events.
    pub hash_algo: PrefixCachingHashAlgo,
    /// As `PYTHONHASHSEED`.
    pub python_hash_seed: Option<String>,
    /// From the end of a step to the router.
    pub event_delay_ms: f64,
    /// The chance of the message of a step to be lost, 0 to 1.
    pub event_loss: f64,
    /// `prefix_aware` and `kv_aware`: share of the prompt that must match.
    pub cache_threshold: f64,
    /// `prefix_aware` and `kv_aware`: in requests; with more than these and `balance_rel_threshold`
    /// times the least, load alone decides.
    pub balance_abs_threshold: u32,
    pub balance_rel_threshold: f64,
    /// `session_affinity`: no replica gets more than so many times the mean load.
    pub load_factor: Option<f64>,
    /// `kv_cost`: of a block to compute, against a block that is in use.
    pub overlap_weight: f64,
    /// `kv_cost`: 0 takes the least cost; the higher, the more is left to chance.
    pub temperature: f64,
    /// `weighted` and `kv_cost`: what the router knows of prefixes.
    pub prefix_source: PrefixSource,
    /// `weighted`: of each score.
    pub weights: ScoreWeights,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            policy: RouterPolicy::default(),
            endpoints: Endpoints::default(),
            latency_ms: 0.0,
            metrics_interval_ms: 0.0,
            block_size: 16,
            max_prefix_blocks: None,
            // `lruCapacityPerServer` of the Gateway API Inference Extension.
            capacity_blocks: 31_250,
            hash_algo: PrefixCachingHashAlgo::default(),
            python_hash_seed: None,
            event_delay_ms: 0.0,
            event_loss: 0.0,
            // Those of SGLang's router.
            cache_threshold: 0.3,
            balance_abs_threshold: 64,
            balance_rel_threshold: 1.5,
            load_factor: None,
            // Those of Dynamo.
            overlap_weight: 1.0,
            temperature: 0.0,
            prefix_source: PrefixSource::default(),
            weights: ScoreWeights::default(),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterPolicy {
    Random,
    #[default]
    RoundRobin,
    LeastRequests,
    LeastKvUsage,
    PrefixAware,
    KvAware,
    SessionAffinity,
    Weighted,
    KvCost,
}

/// What a router knows of the replicas' prefix caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixSource {
    /// What it sent itself.
    #[default]
    Sent,
    /// What the replicas' KV events tell.
    KvEvents,
}

/// What a router that reads KV events shares with the replicas.
#[derive(Clone, Debug)]
pub struct EventSource {
    /// Of the replicas without a mismatch.
    pub hasher: RequestBlockHasher,
    /// For each engine core, why its hashes can never equal the router's ([`RouterHash::mismatch`]).
    pub mismatches: Vec<Option<String>>,
    /// For each engine core, the replica behind which it stands.
    pub replica_of: Vec<usize>,
}

impl RouterPolicy {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round_robin",
            Self::LeastRequests => "least_requests",
            Self::LeastKvUsage => "least_kv_usage",
            Self::PrefixAware => "prefix_aware",
            Self::KvAware => "kv_aware",
            Self::SessionAffinity => "session_affinity",
            Self::Weighted => "weighted",
            Self::KvCost => "kv_cost",
        }
    }
}

impl RouterConfig {
    /// Checks the values; the error names the field.
    ///
    /// # Errors
    /// The first value that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (field, ms) in [("latency_ms", self.latency_ms), ("event_delay_ms", self.event_delay_ms)] {
            require((0.0..=MAX_MS).contains(&ms), field, ms, format!("a number from 0 to {MAX_MS}"))?;
        }
        let interval = self.metrics_interval_ms;
        let valid = interval == 0.0 || (MIN_INTERVAL_MS..=MAX_MS).contains(&interval);
        let expected = format!("0, or a number from {MIN_INTERVAL_MS} to {MAX_MS}");
        require(valid, "metrics_interval_ms", interval, expected)?;
        let counts = [
            ("block_size", self.block_size),
            ("capacity_blocks", self.capacity_blocks),
            ("max_prefix_blocks", self.max_prefix_blocks.unwrap_or(1)),
        ];
        for (field, count) in counts {
            require(count > 0, field, count, "a whole number of 1 or more")?;
        }
        for (field, share) in [("event_loss", self.event_loss), ("cache_threshold", self.cache_threshold)] {
            require((0.0..=1.0).contains(&share), field, share, "a number from 0 to 1")?;
        }
        let factors = [
            ("balance_rel_threshold", self.balance_rel_threshold),
            ("load_factor", self.load_factor.unwrap_or(1.0)),
        ];
        for (field, factor) in factors {
            require((1.0..=1e9).contains(&factor), field, factor, "a number of 1 or more")?;
        }
        let ScoreWeights { prefix, kv_usage, queue, running } = self.weights;
        let weights = [
            ("weights.prefix", prefix),
            ("weights.kv_usage", kv_usage),
            ("weights.queue", queue),
            ("weights.running", running),
            ("overlap_weight", self.overlap_weight),
            ("temperature", self.temperature),
        ];
        for (field, weight) in weights {
            require((0.0..=1e9).contains(&weight), field, weight, "a number of 0 or more")?;
        }
        Ok(())
    }

    /// Whether the replicas' KV events are read.
    pub fn reads_events(&self) -> bool {
        match self.policy {
            RouterPolicy::KvAware => true,
            RouterPolicy::Weighted => {
                self.weights.prefix > 0.0 && self.prefix_source == PrefixSource::KvEvents
            }
            RouterPolicy::KvCost => self.prefix_source == PrefixSource::KvEvents,
            _ => false,
        }
    }

    /// Whether a prompt's beginning plays a part.
    pub fn looks_at_prefixes(&self) -> bool {
        match self.policy {
            RouterPolicy::PrefixAware | RouterPolicy::KvAware | RouterPolicy::KvCost => true,
            RouterPolicy::Weighted => self.weights.prefix > 0.0,
            _ => false,
        }
    }

    /// How a router that reads events hashes.
    pub fn hash(&self) -> RouterHash {
        RouterHash {
            algo: self.hash_algo,
            block_size: self.block_size,
            python_hash_seed: self.python_hash_seed.clone(),
        }
    }

    /// The router of so many replicas, which draws from streams of this seed. `events` is needed if it
    /// [reads events](Self::reads_events).
    pub fn build(&self, seed: u64, num_replicas: usize, events: Option<EventSource>) -> Box<dyn Router> {
        let cache_aware = |index| {
            Box::new(CacheAware::new(
                index,
                CacheAwareThresholds {
                    cache_threshold: self.cache_threshold,
                    balance_abs_threshold: self.balance_abs_threshold,
                    balance_rel_threshold: self.balance_rel_threshold,
                },
            ))
        };
        match self.policy {
            RouterPolicy::Random => Box::new(Random::new(seed)),
            RouterPolicy::RoundRobin => Box::new(RoundRobin::default()),
            RouterPolicy::LeastRequests => Box::new(LeastRequests::default()),
            RouterPolicy::LeastKvUsage => Box::new(LeastKvUsage::default()),
            RouterPolicy::SessionAffinity => Box::new(SessionAffinity::new(seed, self.load_factor)),
            RouterPolicy::PrefixAware | RouterPolicy::KvAware => {
                cache_aware(self.index(seed, num_replicas, events))
            }
            RouterPolicy::KvCost => Box::new(KvCost::new(
                self.index(seed, num_replicas, events),
                num_replicas,
                self.block_size,
                self.overlap_weight,
                self.temperature,
                seed,
            )),
            RouterPolicy::Weighted => {
                let index = (self.weights.prefix > 0.0).then(|| self.index(seed, num_replicas, events));
                Box::new(Weighted::new(self.weights, index, seed))
            }
        }
    }

    /// Of KV events where there are some, else of what is sent.
    fn index(&self, seed: u64, num_replicas: usize, events: Option<EventSource>) -> PrefixIndex {
        let Some(EventSource { hasher, mismatches, replica_of }) = events else {
            let max_blocks = self.max_prefix_blocks.unwrap_or(256) as usize;
            return PrefixIndex::of_sent(
                num_replicas,
                self.block_size,
                max_blocks,
                self.capacity_blocks as usize,
            );
        };
        let max_blocks = self.max_prefix_blocks.map_or(usize::MAX, |blocks| blocks as usize);
        let delay = SimTime::from_secs_f64(self.event_delay_ms / 1e3);
        PrefixIndex::of_events(
            hasher,
            max_blocks,
            EventSettings { delay, loss: self.event_loss, seed, mismatches, replica_of },
        )
    }
}
