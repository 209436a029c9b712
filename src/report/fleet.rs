//! What a report says of several replicas behind a router.

use std::path::Path;

use serde::Serialize;

use super::lifecycle::LifecycleSummary;
use super::pulls::PullSummary;
use super::replica_tally::{ReplicaInfo, ReplicaSummary};
use super::table_column::{Column, Kind};
use crate::simulation::router::PrefixIndexStats;
use crate::simulation::{LockstepStats, Role};

/// The columns of `replicas.csv`; the rank only where there are several, the role only where there are two,
/// the last two only where replicas come and go.
pub(super) const COLUMNS: [Column<&str>; 26] = [
    ("replica", Kind::Count),
    ("data_parallel_rank", Kind::Count),
    ("pool", Kind::Text),
    ("role", Kind::Text),
    ("gpu", Kind::Text),
    ("tensor_parallel_size", Kind::Count),
    ("num_gpus", Kind::Count),
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
    /// Or their data-parallel ranks, in the order of the simulation.
    pub replicas: Vec<ReplicaInfo>,
}

impl FleetInfo {
    /// Of each replica, over its ranks.
    pub(super) fn gpus(&self) -> Vec<u32> {
        let replicas = self.replicas.chunk_by(|a, b| a.replica == b.replica);
        replicas.map(|ranks| ranks.iter().map(|rank| rank.num_gpus).sum()).collect()
    }

    /// Some replica has several data-parallel ranks.
    pub(super) fn has_ranks(&self) -> bool {
        self.replicas.first().is_some_and(|first| first.data_parallel_rank.is_some())
    }

    /// Numbers in `replicas` of those that are of a replica.
    pub(super) fn engines(&self, replica: u32) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.replicas).filter(move |(_, info)| info.replica == replica).map(|(engine, _)| engine)
    }
}

/// Several replicas: what each did, and how evenly.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetSummary {
    /// The router's policy.
    pub router: String,
    pub num_replicas: u32,
    pub num_gpus: u32,
    /// What the router knew of the prefix caches, if it looks at prefixes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_index: Option<PrefixIndexStats>,
    /// Of those that decode, if prompts and answers are computed on different replicas.
    pub imbalance: Imbalance,
    /// And of those that prefill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_imbalance: Option<Imbalance>,
    /// If replicas come and go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<LifecycleSummary>,
    /// If prompts and answers are computed on different replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_reads: Option<PullSummary>,
    /// If data-parallel ranks run their steps together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lockstep: Option<LockstepSummary>,
    /// Or their data-parallel ranks.
    pub replicas: Vec<ReplicaSummary>,
}

/// Ranks that run their steps together, with what that costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LockstepSummary {
    #[serde(flatten)]
    pub stats: LockstepStats,
    /// Dummy batches over all batches: ranks that took part without a step.
    pub dummy_share: f64,
    /// Padding over all tokens that were computed.
    pub padding_share: f64,
    /// Of the GPU time of steps, waiting for slower ranks.
    pub waiting_share: f64,
}

impl LockstepSummary {
    fn new(stats: LockstepStats) -> Self {
        let share = |part: u64, whole: u64| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
        Self {
            dummy_share: share(stats.dummy_batches, stats.batches),
            padding_share: share(stats.padding_tokens, stats.tokens + stats.padding_tokens),
            waiting_share: share(stats.waiting_ns, stats.gpu_ns),
            stats,
        }
    }
}

/// How unevenly the replicas of a fleet, or their data-parallel ranks, were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Imbalance {
    /// Requests that finished.
    pub requests: Spread,
    pub prefill_computed_tokens: Spread,
    pub decode_computed_tokens: Spread,
    pub kv_usage_mean: Spread,
    pub gpu_busy: Spread,
}

/// Of one value for each replica or rank.
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
    fn of(replicas: &[&ReplicaSummary], value: impl Fn(&ReplicaSummary) -> f64) -> Self {
        let count = replicas.len() as f64;
        let values = || replicas.iter().map(|replica| value(replica));
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

impl Imbalance {
    fn of(replicas: &[&ReplicaSummary]) -> Self {
        let of = |value: fn(&ReplicaSummary) -> f64| Spread::of(replicas, value);
        Self {
            requests: of(|replica| replica.finished_requests as f64),
            prefill_computed_tokens: of(|replica| replica.prefill_computed_tokens as f64),
            decode_computed_tokens: of(|replica| replica.decode_computed_tokens as f64),
            kv_usage_mean: of(|replica| replica.kv_usage_mean),
            gpu_busy: of(|replica| replica.gpu_busy),
        }
    }
}

impl FleetSummary {
    /// Of one replica or more, of each role if there are roles.
    pub(super) fn new(
        router: String,
        prefix_index: Option<PrefixIndexStats>,
        lifecycle: Option<LifecycleSummary>,
        kv_reads: Option<PullSummary>,
        replicas: Vec<ReplicaSummary>,
    ) -> Self {
        let (prefill, others): (Vec<_>, Vec<_>) =
            replicas.iter().partition(|replica| replica.role == Some(Role::Prefill));
        Self {
            router,
            num_replicas: replicas.last().map_or(0, |last| last.replica + 1),
            num_gpus: replicas.iter().map(|replica| replica.num_gpus).sum(),
            prefix_index,
            imbalance: Imbalance::of(&others),
            prefill_imbalance: (!prefill.is_empty()).then(|| Imbalance::of(&prefill)),
            lifecycle,
            kv_reads,
            lockstep: None,
            replicas,
        }
    }

    pub(super) fn with_lockstep(self, stats: Option<LockstepStats>) -> Self {
        Self { lockstep: stats.map(LockstepSummary::new), ..self }
    }

    /// Such as `6 x (2 x H100-SXM)` or `2 x (4 ranks of 2 x H100-SXM)`, for each kind in order.
    pub(super) fn kinds(&self) -> Vec<String> {
        let whole = |ranks: &[ReplicaSummary]| {
            let ReplicaSummary { pool, gpu, num_gpus, data_parallel_rank, .. } = &ranks[0];
            let gpus = match (data_parallel_rank, num_gpus) {
                (None, 1) => gpu.clone(),
                (None, several) => format!("({several} x {gpu})"),
                (Some(_), _) => format!("({} ranks of {num_gpus} x {gpu})", ranks.len()),
            };
            let pool = pool.as_ref().map(|pool| format!(" ({pool})")).unwrap_or_default();
            gpus + &pool
        };
        let replicas: Vec<String> =
            self.replicas.chunk_by(|a, b| a.replica == b.replica).map(whole).collect();
        let kinds = replicas.chunk_by(|a, b| a == b);
        kinds.map(|alike| format!("{} x {}", alike.len(), alike[0])).collect()
    }

    /// What shares out the requests, as the last part of a sentence about replicas.
    pub(super) fn behind(&self) -> String {
        if self.num_replicas == 1 && self.replicas.len() > 1 {
            return "behind vLLM's load balancer".to_owned();
        }
        format!("behind {}", self.router)
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

    #[test]
    fn roles_are_compared_among_themselves() {
        let replica = |role, finished_requests, prefill_computed_tokens| ReplicaSummary {
            role: Some(role),
            finished_requests,
            prefill_computed_tokens,
            ..ReplicaSummary::default()
        };
        let replicas = vec![
            replica(Role::Prefill, 3, 300),
            replica(Role::Prefill, 1, 100),
            replica(Role::Decode, 2, 0),
            replica(Role::Decode, 2, 0),
        ];
        let fleet = FleetSummary::new("random".to_owned(), None, None, None, replicas);
        assert_eq!(fleet.imbalance.requests.max_over_mean, 1.0);
        let prefill = fleet.prefill_imbalance.unwrap();
        assert_eq!(
            (prefill.requests.max_over_mean, prefill.prefill_computed_tokens.max_over_mean),
            (1.5, 1.5)
        );
    }

    #[test]
    fn kinds_count_all_gpus_of_a_replica() {
        let rank = |replica, data_parallel_rank, num_gpus, gpu: &str| ReplicaSummary {
            replica,
            data_parallel_rank,
            num_gpus,
            gpu: gpu.to_owned(),
            ..ReplicaSummary::default()
        };
        let fleet = |replicas| FleetSummary::new("random".to_owned(), None, None, None, replicas);
        let alone = fleet(vec![rank(0, None, 1, "L4"), rank(1, None, 1, "L4"), rank(2, None, 4, "H100")]);
        assert_eq!(alone.kinds(), ["2 x L4", "1 x (4 x H100)"]);
        assert_eq!((alone.num_replicas, alone.num_gpus), (3, 6));
        let ranks = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(replica, at)| rank(replica, Some(at), 2, "H100"));
        let ranks = fleet(ranks.to_vec());
        assert_eq!(ranks.kinds(), ["2 x (2 ranks of 2 x H100)"]);
        assert_eq!((ranks.num_replicas, ranks.num_gpus), (2, 8));
        assert_eq!(fleet(vec![rank(0, Some(0), 1, "H100"); 2]).behind(), "behind vLLM's load balancer");
    }
}
