//! The headline figures as a table of 80 columns.

use comfy_table::{ContentArrangement, Table, presets};

use super::percentiles::LatencyMs;
use super::summary::HitRate;
use super::{FleetSummary, Imbalance, RunSummary};
use crate::simulation::Role;

/// The table that a run ends with.
pub fn terminal_table(summary: &RunSummary) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(80);
    let requests = &summary.requests;
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    match &summary.fleet {
        None => {
            row("model", format!("{} on {} x {}", summary.model, summary.num_gpus, summary.gpu));
        }
        Some(fleet) => {
            row("model", summary.model.clone());
            row("fleet", format!("{} {}", fleet.kinds().join(" + "), fleet.behind()));
        }
    }
    let workload = &summary.workload;
    if let Some(format) = workload.trace_format {
        row(
            "trace",
            std::iter::once(format)
                .chain(workload.notes.iter().map(String::as_str))
                .collect::<Vec<_>>()
                .join("; "),
        );
    }
    if let Some(first) = &workload.first_skipped_row {
        row("skipped rows", format!("{}, the first: {first}", workload.skipped_rows));
    }
    row(
        "requests",
        format!(
            "{} finished in {:.1} s ({:.2}/s), {} preemptions",
            requests.finished, summary.duration_s, summary.throughput.requests_per_s, requests.preemptions
        ),
    );
    if let Some(overload) = &summary.overload {
        row("overloaded", overload.clone());
    }
    if requests.aborted > 0 {
        row(
            "aborted",
            format!(
                "{} ({} before the first token), {} tokens in vain",
                requests.aborted,
                requests.aborted_before_first_token,
                summary.tokens.unfinished_output_tokens
            ),
        );
    }
    if requests.failed > 0 {
        row("failed", format!("{} requests", requests.failed));
    }
    row(
        "tokens",
        format!(
            "{} prompt ({:.0}/s), {} output ({:.0}/s)",
            summary.tokens.prompt_tokens,
            summary.throughput.prompt_tokens_per_s,
            summary.tokens.output_tokens,
            summary.throughput.output_tokens_per_s
        ),
    );
    row("hit rate", hit_rate(&summary.prefix_cache.total));
    if let Some(reason) = &summary.prefix_cache.zero_hits_because {
        row("why zero", reason.clone());
    }
    row("  in vLLM's log", hit_rate(&summary.prefix_cache.moving_last_1000_requests));
    if summary.prefix_cache.preempted.queries_tokens > 0 {
        row("  after preemption", hit_rate(&summary.prefix_cache.preempted));
    }
    if let Some(external) = &summary.external_cache {
        row("external hit rate", hit_rate(&external.total));
    }
    for (name, latency) in [
        ("queue", &summary.latency.queue),
        ("TTFT", &summary.latency.ttft),
        ("TPOT", &summary.latency.tpot),
        ("ITL", &summary.latency.itl),
        ("E2E", &summary.latency.e2e),
    ] {
        // Nothing finished, or no answer had a second token.
        if latency.count == 0 {
            continue;
        }
        let (unit, ms) = if latency.max_ms < 100_000.0 { ("ms", 1.0) } else { ("s", 1_000.0) };
        row(&format!("{name} {unit}"), percentiles(latency, ms));
    }
    if let Some(goodput) = &summary.goodput {
        row(
            "goodput",
            format!(
                "{:.2} requests/s: {:.2} % keep {}",
                goodput.requests_per_s,
                100.0 * goodput.share,
                goodput.promise()
            ),
        );
        if goodput.good_requests < goodput.requests {
            row("  not kept", format!("of {} requests {}", goodput.requests, goodput.misses()));
        }
    }
    let kv = &summary.kv_cache;
    row(
        "KV cache",
        format!(
            "{} blocks of {} tokens, in use {:.1} % (peak {:.1} %)",
            kv.num_gpu_blocks,
            kv.block_size_tokens,
            100.0 * kv.usage_mean,
            100.0 * kv.usage_peak
        ),
    );
    row("evictions", kv.evictions.to_string());
    let steps = &summary.steps;
    row(
        "steps",
        format!(
            "{} of {:.1} tokens and {:.2} ms on average, GPU busy {:.1} %",
            steps.count,
            steps.mean_tokens,
            steps.mean_gpu_ms,
            100.0 * steps.gpu_busy
        ),
    );
    if steps.extrapolated > 0.0 {
        row(
            "extrapolated",
            format!(
                "{:.1} % of the GPU's time: steps beyond what was measured for its profile",
                100.0 * steps.extrapolated
            ),
        );
    }
    for caveat in &summary.caveats {
        row("not measured", caveat.clone());
    }
    if let Some(spec) = &summary.speculative_decoding {
        row(
            "drafts",
            format!(
                "{} of {} tokens accepted ({:.1} %)",
                spec.accepted_tokens,
                spec.draft_tokens,
                100.0 * spec.acceptance_rate
            ),
        );
    }
    let resets = &summary.resets;
    if resets.done + resets.refused > 0 {
        row("resets", format!("{} done, {} refused", resets.done, resets.refused));
    }
    if let Some(fairness) = &summary.fairness {
        row(
            "fairness",
            format!(
                "Jain {:.3} over {} tenants, slowest {} (x {:.2})",
                fairness.jain_index,
                fairness.tenants.len(),
                fairness.worst_tenant,
                fairness.worst_slowdown
            ),
        );
    }
    if let Some(fleet) = &summary.fleet {
        fleet_rows(fleet, &mut row);
    }
    table.trim_fmt()
}

/// Replicas beyond these are in `replicas.csv`.
const MAX_REPLICA_ROWS: usize = 8;

/// How evenly the replicas were loaded, and what each did where there are few.
fn fleet_rows(fleet: &FleetSummary, row: &mut impl FnMut(&str, String)) {
    let Imbalance {
        requests,
        prefill_computed_tokens: prefill,
        decode_computed_tokens: decode,
        gpu_busy,
        ..
    } = &fleet.imbalance;
    let [requests, prefill, decode, gpu] = [requests, prefill, decode, gpu_busy].map(|it| it.max_over_mean);
    match &fleet.prefill_imbalance {
        None => row(
            "imbalance",
            format!(
                "max/mean: requests {requests:.2}, prefill {prefill:.2}, decode {decode:.2}, GPU {gpu:.2}"
            ),
        ),
        Some(first) => {
            row(
                "imbalance",
                format!(
                    "max/mean of those that prefill: requests {:.2}, tokens {:.2}, GPU {:.2}",
                    first.requests.max_over_mean,
                    first.prefill_computed_tokens.max_over_mean,
                    first.gpu_busy.max_over_mean
                ),
            );
            row(
                "",
                format!("of those that decode: requests {requests:.2}, tokens {decode:.2}, GPU {gpu:.2}"),
            );
        }
    }
    if let Some(reads) = &fleet.kv_reads {
        row("KV reads ms", percentiles(&reads.latency, 1.0));
    }
    if let Some(lockstep) = &fleet.lockstep {
        row(
            "lockstep",
            format!(
                "{} passes in {} {}: {:.1} % of batches dummies, {:.1} % of tokens padding, {:.1} % of GPU \
                 time waiting",
                lockstep.stats.passes,
                lockstep.stats.waves,
                if lockstep.stats.waves == 1 { "wave" } else { "waves" },
                100.0 * lockstep.dummy_share,
                100.0 * lockstep.padding_share,
                100.0 * lockstep.waiting_share
            ),
        );
    }
    if let Some(index) = &fleet.prefix_index {
        row(
            "router's match",
            format!(
                "{:.2} % ({} of {} blocks)",
                100.0 * index.match_rate,
                index.matched_blocks,
                index.queried_blocks
            ),
        );
        if let Some(reason) = &index.no_match_because {
            row("why no match", reason.clone());
        }
    }
    if let Some(lifecycle) = &fleet.lifecycle {
        row(
            "replicas",
            format!(
                "{:.2} ready on average ({} to {}), {:.0} replica-seconds paid",
                lifecycle.mean_ready_replicas,
                lifecycle.least_ready_replicas,
                lifecycle.most_ready_replicas,
                lifecycle.paid_replica_s
            ),
        );
        if lifecycle.failures > 0 {
            row(
                "  failures",
                format!(
                    "{}, {} requests and {} output tokens lost",
                    lifecycle.failures, lifecycle.lost_requests, lifecycle.lost_output_tokens
                ),
            );
        }
    }
    let few = fleet.replicas.len() <= MAX_REPLICA_ROWS;
    for replica in fleet.replicas.iter().filter(|_| few) {
        row(
            &match replica.data_parallel_rank {
                Some(rank) if fleet.num_replicas == 1 => format!("  rank {rank}"),
                Some(rank) => format!("  replica {} rank {rank}", replica.replica),
                None => format!("  replica {}", replica.replica),
            },
            format!(
                "{} {}, hits {:.1} %, KV cache {:.1} %, GPU {:.1} %",
                replica.finished_requests,
                if replica.role == Some(Role::Prefill) { "prompts" } else { "requests" },
                100.0 * replica.hit_rate,
                100.0 * replica.kv_usage_mean,
                100.0 * replica.gpu_busy
            ),
        );
    }
}

fn hit_rate(rate: &HitRate) -> String {
    format!("{:.2} % ({} of {} tokens)", 100.0 * rate.hit_rate, rate.hits_tokens, rate.queries_tokens)
}

/// In units of `ms` milliseconds.
fn percentiles(latency: &LatencyMs, ms: f64) -> String {
    format!(
        "mean {:.1}, p50 {:.1}, p90 {:.1}, p99 {:.1}",
        latency.mean_ms / ms,
        latency.p50_ms / ms,
        latency.p90_ms / ms,
        latency.p99_ms / ms
    )
}
