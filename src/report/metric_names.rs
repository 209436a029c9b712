//! The figures of a summary by their dotted names, such as `latency.ttft.p99_ms`.

use serde_json::Value;

use super::fleet::FleetSummary;
use super::goodput::{Goodput, GoodputLimits, TenantGoodput};
use super::lifecycle::LifecycleSummary;
use super::pulls::PullSummary;
use super::replica_tally::ReplicaSummary;
use super::summary::{NamedHitRate, PrefixCache, RunSummary, SpeculativeDecoding};
use super::tenants::{Fairness, TenantSummary};
use super::tiers::{ExternalCache, ReplicaTierSummary, TierSummary};
use crate::engine::connector::TierKind;
use crate::simulation::TierEnding;
use crate::simulation::router::PrefixIndexStats;

/// What one looks at first, the most telling in front.
pub const HEADLINES: [&str; 14] = [
    "prefix_cache.hit_rate",
    "latency.ttft.p99_ms",
    "latency.tpot.p99_ms",
    "throughput.output_tokens_per_s",
    "throughput.requests_per_s",
    "latency.ttft.p50_ms",
    "latency.tpot.p50_ms",
    "latency.e2e.p99_ms",
    "requests.finished",
    "requests.preemptions",
    "kv_cache.usage_mean",
    "kv_cache.evictions",
    "steps.gpu_busy",
    "duration_s",
];

/// The names of all numbers that a summary can have. A list has one item, 0.
pub fn metric_names() -> Vec<String> {
    let full = RunSummary {
        prefix_cache: PrefixCache {
            by_turn: vec![NamedHitRate::default()],
            by_tenant: vec![NamedHitRate::default()],
            by_depth: vec![NamedHitRate::default()],
            ..PrefixCache::default()
        },
        external_cache: Some(ExternalCache {
            tiers: vec![TierSummary {
                replicas: vec![ReplicaTierSummary::default()],
                ..TierSummary::new(&TierEnding::empty(TierKind::Host, None), 0.0)
            }],
            ..ExternalCache::default()
        }),
        speculative_decoding: Some(SpeculativeDecoding::default()),
        kv_events: Some(0),
        goodput: Some(Goodput {
            limits: GoodputLimits { ttft_ms: Some(0.0), tpot_ms: Some(0.0), e2e_ms: Some(0.0) },
            by_tenant: vec![TenantGoodput::default()],
            ..Goodput::default()
        }),
        fairness: Some(Fairness { tenants: vec![TenantSummary::default()], ..Fairness::default() }),
        fleet: Some(FleetSummary {
            prefix_index: Some(PrefixIndexStats::default()),
            lifecycle: Some(LifecycleSummary::default()),
            kv_reads: Some(PullSummary::default()),
            replicas: vec![ReplicaSummary {
                paid_s: Some(0.0),
                ready_s: Some(0.0),
                ..ReplicaSummary::default()
            }],
            ..FleetSummary::default()
        }),
        ..RunSummary::default()
    };
    let mut names = Vec::new();
    collect(&serde_json::to_value(&full).unwrap_or_default(), "", &mut names);
    names
}

fn collect(value: &Value, path: &str, names: &mut Vec<String>) {
    let child = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path}.{part}") };
    match value {
        Value::Number(_) => names.push(path.to_owned()),
        Value::Object(entries) => {
            entries.iter().for_each(|(name, value)| collect(value, &child(name), names));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| collect(value, &child(&index.to_string()), names));
        }
        _ => {}
    }
}

/// The number of this name in a summary as JSON; `None` where this run has none.
pub fn number_at<'a>(summary: &'a Value, name: &str) -> Option<&'a Value> {
    let parts = name.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    let found = parts.into_iter().try_fold(summary, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => value.get(part),
    });
    found.filter(|value| value.is_number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name() {
        let names = metric_names();
        for name in HEADLINES.iter().chain(&[
            "external_cache.hit_rate",
            "external_cache.tiers.0.evicted_blocks",
            "external_cache.tiers.0.read.busy",
            "external_cache.tiers.0.replicas.0.hit_tokens_by_others",
            "prefix_cache.by_turn.0.hit_rate",
            "speculative_decoding.acceptance_rate",
            "kv_events",
            "goodput.share",
            "goodput.by_tenant.0.share",
            "fleet.imbalance.requests.max_over_mean",
            "fleet.replicas.0.hit_rate",
            "seed",
        ]) {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert!(!names.iter().any(|name| name == "model" || name == "prefix_cache"));
    }

    #[test]
    fn a_number_is_found_by_its_name() {
        let summary = serde_json::json!({"a": {"b": [{"c": 1}, {"c": 2.5}], "d": "x", "e": null}});
        let found = |name| number_at(&summary, name).cloned();
        assert_eq!(found("a.b.1.c"), Some(2.5.into()));
        assert_eq!(found("a.b[0].c"), Some(1.into()));
        for name in ["a.b.2.c", "a.b.x", "a.d", "a.e", "a", "z", ""] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
