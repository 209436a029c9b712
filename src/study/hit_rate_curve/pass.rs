//! One pass over the requests, for all block sizes at once.

use serde::Serialize;

use super::breakdown::{Breakdown, Grouper};
use crate::prompt::TokenRuns;
use crate::reuse::{ComputedTokens, DistanceCounts, Lookups, NUM_PARTS, Shards, TooManyBlocks};
use crate::study::statistics::Estimate;
use crate::workload::trace::TraceRequest;

/// The confidence of the interval around a sampled hit rate.
pub(super) const CONFIDENCE: f64 = 0.95;

/// SHARDS instead of all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sampling {
    /// The share of the blocks to begin with, above 0 and at most 1.
    pub rate: f64,
    /// The rate is halved whenever more blocks are sampled.
    pub max_blocks: Option<usize>,
}

/// Follows requests.
pub struct Pass {
    computed: ComputedTokens,
    lanes: Vec<Lane>,
    requests: u64,
}

/// One block size.
pub(super) enum Lane {
    Exact(Box<Exact>),
    Sampled(Box<Sampled>),
}

/// A sample of the blocks.
pub(super) struct Sampled {
    shards: Shards,
    groups: Grouper,
}

/// All blocks.
pub(super) struct Exact {
    lookups: Lookups,
    distances: DistanceCounts,
    groups: Grouper,
}

/// A cache's hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hits {
    pub hit_rate: f64,
    /// Of the interval around a sampled rate.
    pub half_width: Option<f64>,
}

impl Pass {
    /// Block sizes in tokens, each with the sizes in blocks of the caches at which groups are told.
    ///
    /// # Panics
    /// When a block size is 0.
    pub fn new(block_sizes: &[(u32, Vec<u64>)], sampling: Option<Sampling>) -> Self {
        let lane = |(block_size, capacities): &(u32, Vec<u64>)| match sampling {
            None => Lane::Exact(Box::new(Exact {
                lookups: Lookups::new(*block_size),
                distances: DistanceCounts::default(),
                groups: Grouper::new(*block_size, capacities.clone(), 1),
            })),
            Some(Sampling { rate, max_blocks }) => Lane::Sampled(Box::new(Sampled {
                shards: Shards::new(*block_size, rate, max_blocks),
                groups: Grouper::new(*block_size, capacities.clone(), NUM_PARTS),
            })),
        };
        Self {
            computed: ComputedTokens::default(),
            lanes: block_sizes.iter().map(lane).collect(),
            requests: 0,
        }
    }

    /// Takes the next request. One of which only the prompt's length is known is left out.
    ///
    /// # Errors
    /// There are too many blocks.
    pub fn add(&mut self, request: &TraceRequest) -> Result<(), TooManyBlocks> {
        self.requests += 1;
        let Some(computed) = self.computed.of(request) else { return Ok(()) };
        self.lanes.iter_mut().try_for_each(|lane| lane.add(request, &computed))
    }

    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// In the order of the block sizes.
    pub(super) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Hits in tokens of LRU caches of so many blocks, rising, at the block size with an index; for
    /// tests and benches.
    pub fn hits_tokens(&self, index: usize, cache_blocks: &[u64]) -> Vec<f64> {
        let lane = &self.lanes[index];
        let queries_tokens = lane.queries_tokens() as f64;
        lane.hits(cache_blocks).iter().map(|hits| hits.hit_rate * queries_tokens).collect()
    }
}

impl Lane {
    fn add(&mut self, request: &TraceRequest, computed: &TokenRuns) -> Result<(), TooManyBlocks> {
        match self {
            Self::Exact(exact) => {
                let Exact { lookups, distances, groups } = &mut **exact;
                let queries_tokens = lookups.add(request, computed, |found| {
                    distances.add(found.reuse.distance_blocks, found.len);
                    groups.found(found);
                })?;
                groups.request(request, queries_tokens);
            }
            Self::Sampled(sampled) => {
                let Sampled { shards, groups } = &mut **sampled;
                let queries_before = shards.queries_tokens();
                shards.add(request, computed, |block| groups.sampled(block));
                groups.request(request, shards.queries_tokens() - queries_before);
            }
        }
        Ok(())
    }

    pub fn queries_tokens(&self) -> u64 {
        match self {
            Self::Exact(exact) => exact.lookups.queries_tokens(),
            Self::Sampled(sampled) => sampled.shards.queries_tokens(),
        }
    }

    pub fn unique_blocks(&self) -> u64 {
        match self {
            Self::Exact(exact) => exact.lookups.unique_blocks(),
            Self::Sampled(sampled) => sampled.shards.unique_blocks(),
        }
    }

    /// The smallest cache that finds all that can be found, in blocks.
    pub fn enough_blocks(&self) -> u64 {
        match self {
            Self::Exact(exact) => exact.distances.end(),
            Self::Sampled(sampled) => sampled.shards.enough_blocks(),
        }
    }

    /// Of LRU caches of so many blocks, rising.
    pub fn hits(&self, cache_blocks: &[u64]) -> Vec<Hits> {
        match self {
            Self::Exact(exact) => {
                let hits = |blocks| Hits { hit_rate: rate_of(&exact.lookups, blocks), half_width: None };
                exact.distances.num_below(cache_blocks).into_iter().map(hits).collect()
            }
            Self::Sampled(sample) => {
                let rates = |&blocks: &u64| sampled(&sample.shards.hit_rates(blocks));
                cache_blocks.iter().map(rates).collect()
            }
        }
    }

    /// Of a cache without end.
    pub fn infinite(&self) -> Hits {
        match self {
            Self::Exact(exact) => {
                Hits { hit_rate: rate_of(&exact.lookups, exact.distances.total()), half_width: None }
            }
            Self::Sampled(sample) => sampled(&sample.shards.infinite_hit_rates()),
        }
    }

    pub fn breakdown(&self, sizes: Vec<String>, tenants: &[String]) -> Breakdown {
        match self {
            Self::Exact(exact) => exact.groups.breakdown(sizes, tenants, &[]),
            Self::Sampled(sample) => sample.groups.breakdown(sizes, tenants, &sample.shards.weights()),
        }
    }

    /// The blocks in the sample and their share of all, if this is one.
    pub fn sample(&self) -> Option<(u64, f64)> {
        match self {
            Self::Exact(_) => None,
            Self::Sampled(sample) => Some((sample.shards.sampled_blocks(), sample.shards.rate())),
        }
    }
}

fn rate_of(lookups: &Lookups, hit_blocks: u64) -> f64 {
    let hits_tokens = hit_blocks * u64::from(lookups.block_size());
    if hits_tokens > 0 { hits_tokens as f64 / lookups.queries_tokens() as f64 } else { 0.0 }
}

fn sampled(rates: &[f64]) -> Hits {
    let estimate = Estimate::of(rates, CONFIDENCE);
    Hits {
        hit_rate: estimate.map_or(0.0, |estimate| estimate.mean.clamp(0.0, 1.0)),
        half_width: estimate.and_then(|estimate| estimate.half_width),
    }
}
