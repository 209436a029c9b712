//! The stores behind the GPUs' caches.

use maud::html;

use super::RunView;
use crate::chart::Table;
use crate::engine::connector::{SharedBy, TierKind};
use crate::page::{Section, count, percent, table};
use crate::report::tiers::TierSummary;

/// `None` without tiers.
pub(super) fn section(view: &RunView<'_>) -> Option<Section> {
    let external = view.summary.external_cache.as_ref()?;
    let is_shared = external.tiers.iter().any(|tier| tier.shared.is_some());
    let body = html! {
        p {
            "Of " (count(external.total.queries_tokens)) " tokens that were looked up behind the GPU's cache, "
            (count(external.total.hits_tokens)) " were there (" (percent(external.total.hit_rate)) ")."
        }
        @if let Some(reason) = &external.not_shared_because {
            p { strong { "Nothing is shared" } " by those that have stores in common: " (reason) "." }
        }
        (table(&tiers(&external.tiers)))
        @if is_shared {
            @for tier in external.tiers.iter().filter(|tier| !tier.replicas.is_empty()) {
                (table(&by_replica(tier)))
            }
        }
    };
    Some(Section::new("tiers", "Stores behind the GPU's cache", body))
}

fn name(tier: &TierSummary) -> String {
    let kind = match tier.kind {
        TierKind::Host => "host memory",
        TierKind::Disk => "disk",
        TierKind::Remote => "remote store",
    };
    match tier.shared {
        None => kind.to_owned(),
        Some(SharedBy::Node) => format!("{kind} of each node"),
        Some(SharedBy::Cluster) => format!("{kind} of all"),
    }
}

fn tiers(tiers: &[TierSummary]) -> Table {
    let head = [
        "store",
        "stores",
        "hit, tokens",
        "of others",
        "held, blocks",
        "evicted",
        "read, GB",
        "busy",
        "wait, ms",
        "written, GB",
        "busy",
    ];
    let mut table = Table::new(1, &head);
    for tier in tiers {
        let gb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e9);
        table.push([
            name(tier),
            count(tier.stores),
            count(tier.hit_tokens),
            count(tier.hit_tokens_of_others),
            format!("{} of {}", count(tier.held_blocks), count(tier.capacity_blocks)),
            count(tier.evicted_blocks),
            gb(tier.read.bytes),
            percent(tier.read.busy),
            format!("{:.2}", tier.read.mean_wait_ms),
            gb(tier.write.bytes),
            percent(tier.write.busy),
        ]);
    }
    table
}

fn by_replica(tier: &TierSummary) -> Table {
    let head = [
        "hits in shared blocks, tokens",
        "number of the store",
        "stored by itself",
        "stored by others",
        "of others in what it stored",
    ];
    let mut table = Table::new(1, &head);
    for replica in &tier.replicas {
        table.push([
            format!("replica {}, {}", replica.replica, name(tier)),
            replica.store.to_string(),
            count(replica.own_hit_tokens),
            count(replica.hit_tokens_of_others),
            count(replica.hit_tokens_by_others),
        ]);
    }
    table
}
