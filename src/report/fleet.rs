//! What a report says of several replicas behind a router.

use std::path::Path;

use serde::Serialize;

use super::lifecycle::LifecycleSummary;
use super::pulls::PullSummary;
use super::replica_tally::{ReplicaInfo, ReplicaSummary};
use super::table_column::{Column, Kind};
use crate::simulation::router::PrefixIndexStats;

/// The columns of `replicas.csv`; the last two only where replicas come and go.
pub(super) const COLUMNS: [Column<&str>; 23] = [
    ("replica", Kind::Count),
    ("pool", Kind::Text),
    ("gpu", Kind::Text),
    ("tensor_parallel_size", Kind::Count),
    ("finished_requests", Kind::Count),
    ("unfinished_requests", Kind::Count),
    ("prompt_tokens", Kind::Count),
    ("output_tokens", Kind::Count),
    ("prefill_computed_tokens", Kind::Count),
    ("decode_computed_tokens", Kind::Count),
    ("queries_tokens", Kind::Count),
    ("hits_tokens", Kind::Count),
    ("hit_rate", Kind::Float),
    ("num_gpu_blocks", Kind::Count),
    ("block_size_tokens", Kind::Count),
    ("kv_usage_mean", Kind::Float),
    ("kv_usage_peak", Kind::Float),
    ("preemptions", Kind::Count),
    ("evictions", Kind::Count),
    ("steps", Kind::Count),
    ("gpu_busy", Kind::Float),
    ("paid_s", Kind::Float),
    ("ready_s", Kind::Float),
];

/// Several replicas, of which the simulation does not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetInfo {
    /// The router's policy.
    pub router: String,
    /// Whether each replica is there from the start, if replicas come and go.
    pub is_there: Option<Vec<bool>>,
    pub replicas: Vec<ReplicaInfo>,
}

/// Several replicas: what each did, and how evenly.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetSummary {
    /// The router's policy.
    pub router: String,
    pub num_replicas: u32,
    /// What the router knew of the prefix caches, if it looks at prefixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_index: Option<PrefixIndexStats>,
    pub imbalance: Imbalance,
    /// If replicas come and go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<LifecycleSummary>,
    /// If prompts and answers are computed on different replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_reads: Option<PullSummary>,
    pub replicas: Vec<ReplicaSummary>,
}

/// How unevenly the replicas of a fleet were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Imbalance {
    /// Requests that finished.
    pub requests: Spread,
    pub prefill_computed_tokens: Spread,
    pub decode_computed_tokens: Spread,
    pub kv_usage_mean: Spread,
    pub gpu_busy: Spread,
}

/// Of one value for each replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub min: f64,
    pub mean: f64,
    pub max: f64,
    /// 1 when all are alike; as many as there are replicas when one does it all. 0 if nobody does
    /// anything.
    pub max_over_mean: f64,
    /// Standard deviation (of these replicas, not of a sample) over mean.
    pub coefficient_of_variation: f64,
}

impl Spread {
    fn of(replicas: &[ReplicaSummary], value: impl Fn(&ReplicaSummary) -> f64) -> Self {
        let count = replicas.len() as f64;
        let values = || replicas.iter().map(&value);
        let mean = values().sum::<f64>() / count;
        let variance = values().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let over_mean = |value: f64| if mean > 0.0 { value / mean } else { 0.0 };
        let max = values().fold(0.0, f64::max);
        Self {
            min: values().fold(f64::INFINITY, f64::min),
            mean,
            max,
            max_over_mean: over_mean(max),
            coefficient_of_variation: over_mean(variance.sqrt()),
        }
    }
}

impl FleetSummary {
    /// Of one replica or more.
    pub(super) fn new(
        router: String,
        prefix_index: Option<PrefixIndexStats>,
        lifecycle: Option<LifecycleSummary>,
        kv_reads: Option<PullSummary>,
        replicas: Vec<ReplicaSummary>,
    ) -> Self {
        Self {
            router,
            num_replicas: replicas.len() as u32,
            prefix_index,
            imbalance: Imbalance {
                requests: Spread::of(&replicas, |replica| replica.finished_requests as f64),
                prefill_computed_tokens: Spread::of(&replicas, |replica| {
                    replica.prefill_computed_tokens as f64
                }),
                decode_computed_tokens: Spread::of(&replicas, |replica| {
                    replica.decode_computed_tokens as f64
                }),
                kv_usage_mean: Spread::of(&replicas, |replica| replica.kv_usage_mean),
                gpu_busy: Spread::of(&replicas, |replica| replica.gpu_busy),
            },
            lifecycle,
            kv_reads,
            replicas,
        }
    }

    /// Such as `6 x (2 x H100-SXM)`, for each kind in order.
    pub(super) fn kinds(&self) -> Vec<String> {
        let same = |a: &ReplicaSummary, b: &ReplicaSummary| {
            (&a.pool, &a.gpu, a.tensor_parallel_size) == (&b.pool, &b.gpu, b.tensor_parallel_size)
        };
        let kind = |replicas: &[ReplicaSummary]| {
            let ReplicaSummary { pool, gpu, tensor_parallel_size, .. } = &replicas[0];
            let gpus = match tensor_parallel_size {
                1 => gpu.clone(),
                several => format!("({several} x {gpu})"),
            };
            let pool = pool.as_ref().map(|pool| format!(" ({pool})")).unwrap_or_default();
            format!("{} x {gpus}{pool}", replicas.len())
        };
        self.replicas.chunk_by(same).map(kind).collect()
    }

    /// Writes `replicas.csv`.
    pub(super) fn write(&self, path: &Path) -> csv::Result<()> {
        let mut writer = csv::Writer::from_path(path)?;
        self.replicas.iter().try_for_each(|replica| writer.serialize(replica))?;
        writer.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_that_of_the_values() {
        let replica = |finished_requests| ReplicaSummary { finished_requests, ..ReplicaSummary::default() };
        let fleet =
            FleetSummary::new("random".to_owned(), None, None, None, [2, 4, 4, 6].map(replica).to_vec());
        let requests = fleet.imbalance.requests;
        assert_eq!((requests.min, requests.mean, requests.max, requests.max_over_mean), (2.0, 4.0, 6.0, 1.5));
        assert_eq!(requests.coefficient_of_variation, 2.0_f64.sqrt() / 4.0);
        // Nobody computed anything.
        assert_eq!(fleet.imbalance.gpu_busy, Spread::default());
    }
}
