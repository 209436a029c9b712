//! To the replica with the highest weighted sum of scores from 0 to 1 (the endpoint picker of the
//! Gateway API Inference Extension, which llm-d's router is built on).
//!
//! | score | is |
//! |---|---|
//! | `prefix`, of what was sent | matched blocks over the prompt's blocks (`prefix-cache-scorer`) |
//! | `prefix`, of KV events | among the replicas with a match, from 0 at the shortest to 1 at the longest, and 1 where all are equal; 0 without a match (`precise-prefix-cache-scorer`, `indexedScoresToNormalizedScoredPods`) |
//! | `kv_usage` | 1 less the share of blocks in use (`kv-cache-utilization-scorer`) |
//! | `queue` | from 0 at the most waiting requests to 1 at the fewest; 1 where all are equal (`queue-scorer`) |
//! | `running` | the same of requests that were sent and have not ended |
//!
//! Of equals one is drawn (`max-score-picker` shuffles before it looks for the highest).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::prefix_index::{PrefixIndex, PrefixIndexStats};
use super::{ReplicaView, Router};
use crate::engine::hash::PromptHashes;
use crate::engine::kv_events::CacheChange;
use crate::units::SimTime;
use crate::workload::{RequestSpec, rng};

/// Of each score; one that is 0 is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScoreWeights {
    pub prefix: f64,
    pub kv_usage: f64,
    pub queue: f64,
    pub running: f64,
}

impl Default for ScoreWeights {
    /// llm-d's for its precise prefix cache; the Gateway API Inference Extension had 1 for each.
    fn default() -> Self {
        Self { prefix: 3.0, kv_usage: 2.0, queue: 2.0, running: 0.0 }
    }
}

#[derive(Debug)]
pub struct Weighted {
    weights: ScoreWeights,
    /// `None` when the prefix has no weight.
    index: Option<PrefixIndex>,
    rng: ChaCha8Rng,
    /// Of one choice, kept for its memory.
    scores: Vec<f64>,
}

impl Weighted {
    pub fn new(weights: ScoreWeights, index: Option<PrefixIndex>, seed: u64) -> Self {
        Self { weights, index, rng: rng::stream(seed, "weighted router", 0), scores: Vec::new() }
    }

    fn add_prefix_scores(&mut self, now: SimTime, request: &RequestSpec, replicas: &[ReplicaView]) {
        let Some(index) = &mut self.index else { return };
        let is_precise = index.reads_events();
        let (num_blocks, matches) = index.look_up(now, request);
        let matched = || replicas.iter().zip(matches).filter(|(view, length)| view.is_ready && **length > 0);
        let (least, most) = bounds(matched().map(|(_, &length)| f64::from(length)));
        for (score, &length) in self.scores.iter_mut().zip(matches) {
            let own = match length {
                0 => 0.0,
                _ if !is_precise => f64::from(length) / f64::from(num_blocks),
                _ if least == most => 1.0,
                length => (f64::from(length) - least) / (most - least),
            };
            *score += self.weights.prefix * own;
        }
    }

    /// Fewer is better.
    fn add_scores_of_count(&mut self, weight: f64, replicas: &[ReplicaView], count: fn(&ReplicaView) -> u32) {
        if weight == 0.0 {
            return;
        }
        let ready = replicas.iter().filter(|view| view.is_ready);
        let (least, most) = bounds(ready.map(|view| f64::from(count(view))));
        for (score, view) in self.scores.iter_mut().zip(replicas) {
            let own = if least == most { 1.0 } else { (most - f64::from(count(view))) / (most - least) };
            *score += weight * own;
        }
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)))
}

impl Router for Weighted {
    fn choose(&mut self, now: SimTime, request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        self.scores.clear();
        self.scores.extend(replicas.iter().map(|view| self.weights.kv_usage * (1.0 - view.kv_usage())));
        self.add_scores_of_count(self.weights.queue, replicas, |view| view.num_waiting);
        self.add_scores_of_count(self.weights.running, replicas, |view| view.num_in_flight);
        self.add_prefix_scores(now, request, replicas);
        let ready = || self.scores.iter().zip(replicas).enumerate().filter(|(_, (_, view))| view.is_ready);
        let highest = ready().map(|(_, (&score, _))| score).fold(f64::NEG_INFINITY, f64::max);
        let best = || ready().filter(|(_, (score, _))| **score == highest).map(|(at, _)| at);
        let nth = match best().count() {
            0 | 1 => 0,
            several => self.rng.random_range(0..several),
        };
        best().nth(nth).unwrap_or(0)
    }

    fn sent(&mut self, _request: &RequestSpec, replica: usize) {
        if let Some(index) = &mut self.index {
            index.sent(replica);
        }
    }

    fn take_prompt_hashes(&mut self) -> Option<PromptHashes> {
        self.index.as_mut().and_then(PrefixIndex::take_prompt)
    }

    fn reads_events(&self) -> bool {
        self.index.as_ref().is_some_and(PrefixIndex::reads_events)
    }

    fn on_events(&mut self, now: SimTime, engine: usize, changes: &[CacheChange]) {
        if let Some(index) = &mut self.index {
            index.on_events(now, engine, changes);
        }
    }

    fn index_stats(&self) -> Option<PrefixIndexStats> {
        self.index.as_ref().map(PrefixIndex::stats)
    }
}
