//! Prompts on some replicas and answers on others: what each role did, and the reads between them.

use maud::html;

use super::RunView;
use super::time_axis::TimeAxis;
use crate::chart::{Axis, Color, Nearest, Plot, Table, tick};
use crate::page::{Section, count, figures, percent, table};
use crate::report::percentiles::LatencyMs;
use crate::report::pulls::{PullSummary, ReadBin};
use crate::report::replica_tally::ReplicaSummary;

/// `None` without reads between replicas.
pub(super) fn section(view: &RunView<'_>) -> Option<Section> {
    let fleet = view.summary.fleet.as_ref()?;
    let reads = fleet.kv_reads.as_ref()?;
    let bins = view.pulls.bins(view.series.width_s(), view.series.bins().len());
    let share = if reads.latency.mean_ms > 0.0 { reads.queue.mean_ms / reads.latency.mean_ms } else { 0.0 };
    let body = html! {
        p {
            (count(reads.latency.count)) " reads of " (count(reads.blocks)) " blocks, "
            (format!("{:.1} GB", reads.bytes as f64 / 1e9)) " over the links of one rank. A read took "
            (format!("{:.1} ms", reads.latency.mean_ms)) " on average; " (percent(share))
            " of that it waited for links that were busy with others."
        }
        @if reads.failed_reads + reads.expired_leases + reads.reads_after_expiry > 0 {
            p {
                "Reads that failed because their source had gone: " (count(reads.failed_reads))
                ". Prompts whose blocks were given up before they had been read: " (count(reads.expired_leases))
                ", and of these read nevertheless: " (count(reads.reads_after_expiry)) "."
            }
        }
        (figures(&[bytes(view, &bins), waits(view, &bins)]))
        (table(&latencies(reads)))
        (table(&by_pool(&fleet.replicas)))
    };
    Some(Section::new("roles", "Prompts here, answers there", body))
}

fn bytes(view: &RunView<'_>, bins: &[ReadBin]) -> Plot {
    let time = TimeAxis::of(view);
    let gb = |bin: &ReadBin| bin.bytes as f64 / 1e9;
    let name = format!("GB in {} s", tick(view.series.width_s()));
    Plot {
        title: "Blocks read from other replicas".to_owned(),
        description: "By the time at which a read ended; of one rank.".to_owned(),
        x: time.axis.clone(),
        y: Axis::from_zero(&name, bins.iter().map(gb).fold(0.0, f64::max)),
        marks: vec![time.steps_of(Color::Sky, bins.iter().map(gb))],
        data: time.table_of(&[&name, "reads"], bins, |bin| vec![format!("{:.3}", gb(bin)), count(bin.reads)]),
        nearest: Nearest::X,
        size: Plot::SIZE,
    }
}

fn waits(view: &RunView<'_>, bins: &[ReadBin]) -> Plot {
    let time = TimeAxis::of(view);
    let mean = |ns: u64, bin: &ReadBin| if bin.reads > 0 { ns as f64 / bin.reads as f64 / 1e6 } else { 0.0 };
    let latency = |bin: &ReadBin| mean(bin.latency_ns, bin);
    let queue = |bin: &ReadBin| mean(bin.queue_ns, bin);
    Plot {
        title: "Time of a read".to_owned(),
        description:
            "Mean of the reads that ended in a bin: in all, and in front of it what they waited for \
                      links that were busy."
                .to_owned(),
        x: time.axis.clone(),
        y: Axis::from_zero("ms", bins.iter().map(latency).fold(0.0, f64::max)),
        marks: vec![
            time.steps_of(Color::Sky, bins.iter().map(latency)),
            time.steps_of(Color::Orange, bins.iter().map(queue)),
        ],
        data: time.table_of(&["mean, ms", "of that waited, ms"], bins, |bin| {
            vec![format!("{:.2}", latency(bin)), format!("{:.2}", queue(bin))]
        }),
        nearest: Nearest::X,
        size: Plot::SIZE,
    }
}

fn latencies(reads: &PullSummary) -> Table {
    let mut table = Table::new(1, &["reads", "mean, ms", "p50", "p90", "p99", "max"]);
    let mut push = |name: &str, latency: &LatencyMs| {
        let LatencyMs { mean_ms, p50_ms, p90_ms, p99_ms, max_ms, .. } = *latency;
        let cells = [mean_ms, p50_ms, p90_ms, p99_ms, max_ms].map(|ms| format!("{ms:.2}"));
        table.push(std::iter::once(name.to_owned()).chain(cells));
    };
    push("from the plan to the end", &reads.latency);
    push("of that waited for links", &reads.queue);
    table
}

/// What the replicas of each pool did together.
fn by_pool(replicas: &[ReplicaSummary]) -> Table {
    let head =
        ["pool", "replicas", "prefill, tokens", "decode, tokens", "hit rate, %", "held, mean", "GPU busy"];
    let mut table = Table::new(1, &head);
    for pool in replicas.chunk_by(|a, b| a.pool == b.pool) {
        let mean =
            |value: fn(&ReplicaSummary) -> f64| pool.iter().map(value).sum::<f64>() / pool.len() as f64;
        let sum = |value: fn(&ReplicaSummary) -> u64| pool.iter().map(value).sum::<u64>();
        let (queries, hits) = (sum(|it| it.queries_tokens), sum(|it| it.hits_tokens));
        let hit_rate = if queries > 0 { 100.0 * hits as f64 / queries as f64 } else { 0.0 };
        table.push([
            pool[0].pool.clone().unwrap_or_default(),
            pool.len().to_string(),
            count(sum(|it| it.prefill_computed_tokens)),
            count(sum(|it| it.decode_computed_tokens)),
            format!("{hit_rate:.2}"),
            percent(mean(|it| it.kv_usage_mean)),
            percent(mean(|it| it.gpu_busy)),
        ]);
    }
    table
}
