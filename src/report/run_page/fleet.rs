//! Several replicas: what each did, and how evenly.

use maud::{Markup, html};

use super::RunView;
use super::cache::shortened;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped};
use crate::page::{Section, count, figures, percent, sortable};
use crate::report::replica_tally::ReplicaSummary;
use crate::report::{FleetSummary, Spread};

/// Further ones are in the table.
const MAX_SHOWN: usize = 32;

/// `None` of a single replica.
pub(super) fn section(view: &RunView<'_>) -> Option<Section> {
    let fleet = view.summary.fleet.as_ref()?;
    let imbalance = &fleet.imbalance;
    let finished = match fleet.prefill_imbalance.is_some() {
        true => "Prompts or requests that finished",
        false => "Requests that finished",
    };
    let plots = [
        bars(&fleet.replicas, "Hit rate", "hit tokens, %", Some(100.0), |it| 100.0 * it.hit_rate),
        bars(&fleet.replicas, finished, "requests", None, |it| it.finished_requests as f64),
        bars(&fleet.replicas, "KV cache held on average", "blocks, %", Some(100.0), |it| {
            100.0 * it.kv_usage_mean
        }),
        bars(&fleet.replicas, "GPU busy", "of the run, %", Some(100.0), |it| 100.0 * it.gpu_busy),
    ];
    let body = html! {
        p {
            (who(fleet)) ". "
            @match &fleet.prefill_imbalance {
                None => {
                    "The busiest finished " (ratio(imbalance.requests)) " times as many requests as the mean and \
                     computed " (ratio(imbalance.prefill_computed_tokens)) " times the prefill tokens."
                }
                Some(prefill) => {
                    "Of those that prefill the busiest computed " (ratio(prefill.prefill_computed_tokens))
                    " times as many tokens as their mean; of those that decode, "
                    (ratio(imbalance.decode_computed_tokens)) " times."
                }
            }
        }
        @if let Some(lockstep) = &fleet.lockstep {
            p {
                "Ranks share the experts, so they run their steps together: " (count(lockstep.stats.passes))
                " passes in " (count(lockstep.stats.waves)) " waves. " (percent(lockstep.dummy_share))
                " of the batches were dummies of ranks without a step, " (percent(lockstep.padding_share))
                " of the tokens padding, and steps waited for slower ranks "
                (percent(lockstep.waiting_share)) " of their GPU time."
            }
        }
        (figures(&plots))
        (sortable(&table(&fleet.replicas)))
    };
    Some(Section::new("replicas", "Replicas", body))
}

fn ratio(spread: Spread) -> String {
    format!("{:.2}", spread.max_over_mean)
}

fn who(fleet: &FleetSummary) -> Markup {
    let num_ranks = fleet.replicas.len();
    let has_ranks = fleet.replicas.iter().any(|replica| replica.data_parallel_rank.is_some());
    html! {
        @match (fleet.num_replicas, has_ranks) {
            (1, true) => { "One replica of " (num_ranks) " data-parallel ranks behind vLLM's load balancer" }
            (several, true) => {
                (several) " replicas with " (num_ranks) " data-parallel ranks in all, behind the router "
                code { (fleet.router) }
            }
            (several, false) => { (several) " replicas behind the router " code { (fleet.router) } }
        }
    }
}

/// Such as `2 (decode)`, or `2.3 (decode)` of the fourth rank.
fn name(replica: &ReplicaSummary) -> String {
    let mut name = replica.replica.to_string();
    if let Some(rank) = replica.data_parallel_rank {
        name += &format!(".{rank}");
    }
    if let Some(pool) = &replica.pool {
        name += &format!(" ({pool})");
    }
    name
}

fn bars(
    replicas: &[ReplicaSummary],
    title: &str,
    axis: &str,
    max: Option<f64>,
    value: impl Fn(&ReplicaSummary) -> f64,
) -> Plot {
    let shown = &replicas[..replicas.len().min(MAX_SHOWN)];
    let names: Vec<String> = shown.iter().map(|replica| shortened(&name(replica))).collect();
    let rows = shown.iter().enumerate().map(|(index, replica)| {
        let at = index as f64;
        (at - 0.34, at + 0.34, value(replica))
    });
    let highest = shown.iter().map(&value).fold(0.0, f64::max);
    let mut data = Table::new(1, &["replica", axis]);
    shown.iter().for_each(|replica| data.push([name(replica), grouped(value(replica))]));
    Plot {
        title: title.to_owned(),
        description: "By replica.".to_owned(),
        x: max.map_or_else(|| Axis::from_zero(axis, highest), |max| Axis::exact(axis, 0.0, max)),
        y: Axis::names("", &names, MAX_SHOWN).downwards(),
        marks: vec![Mark::new(Color::Blue, Shape::Rows(rows.collect()))],
        data,
        nearest: Nearest::Row,
        size: (Plot::WIDTH, 60 + 24 * shown.len() as u32),
    }
}

fn table(replicas: &[ReplicaSummary]) -> Table {
    let mut table = Table::new(
        2,
        &[
            "replica",
            "GPU",
            "finished",
            "prefill, tokens",
            "decode, tokens",
            "hit rate, %",
            "held, mean",
            "held, peak",
            "preemptions",
            "evictions",
            "steps",
            "GPU busy",
        ],
    );
    for replica in replicas {
        table.push([
            name(replica),
            format!("{} × {}", replica.num_gpus, replica.gpu),
            count(replica.finished_requests),
            count(replica.prefill_computed_tokens),
            count(replica.decode_computed_tokens),
            format!("{:.2}", 100.0 * replica.hit_rate),
            percent(replica.kv_usage_mean),
            percent(replica.kv_usage_peak),
            count(replica.preemptions),
            count(replica.evictions),
            count(replica.steps),
            percent(replica.gpu_busy),
        ]);
    }
    table
}
