//! What was simulated, what came of it, and the files beside the page.

use maud::html;
use serde_json::Value;

use super::RunView;
use crate::chart::grouped;
use crate::page::{Headline, Section, count, definitions, percent, seconds};
use crate::report::RunSummary;
use crate::report::percentiles::LatencyMs;

/// The GPUs of the server, or of all of them.
fn servers(view: &RunView<'_>) -> String {
    match &view.summary.fleet {
        Some(fleet) => format!("{} {}", fleet.kinds().join(" + "), fleet.behind()),
        None => format!("{} × {}", view.summary.num_gpus, view.summary.gpu),
    }
}

pub(super) fn about(view: &RunView<'_>) -> String {
    let summary = view.summary;
    let requests = summary.requests;
    let mut text = format!(
        "{} on {}: {} requests finished in {} of simulated time.",
        summary.model,
        servers(view),
        count(requests.finished),
        seconds(summary.duration_s)
    );
    if requests.aborted > 0 {
        text += &format!(" {} clients went away before their answer was whole.", count(requests.aborted));
    }
    if requests.failed > 0 {
        text += &format!(" {} requests failed.", count(requests.failed));
    }
    text
}

/// What one has to know before all else.
pub(super) fn notice(summary: &RunSummary) -> Option<String> {
    let sentences: Vec<String> = [
        summary.overload.as_ref().map(|overload| format!("Overloaded: {overload}.")),
        summary.prefix_cache.zero_hits_because.as_ref().map(|reason| format!("Nothing was hit: {reason}.")),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

pub(super) fn headlines(view: &RunView<'_>) -> Vec<Headline> {
    let summary = view.summary;
    let headline = |name: &str, value: String, unit: &str, note: String| Headline {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        note,
    };
    let latency = |name: &str, latency: &LatencyMs| {
        let (value, unit) = ms(latency.p50_ms);
        headline(name, value, unit, format!("p99 {}", seconds(latency.p99_ms / 1e3)))
    };
    let rate = |name: &str, per_s: f64, unit: &str, note: String| {
        headline(name, grouped((10.0 * per_s).round() / 10.0), unit, note)
    };
    let hits = &summary.prefix_cache.total;
    let kv = &summary.kv_cache;
    vec![
        headline(
            "Prefix cache hit rate",
            format!("{:.1}", 100.0 * hits.hit_rate),
            "%",
            format!("{} of {} tokens", count(hits.hits_tokens), count(hits.queries_tokens)),
        ),
        latency("TTFT, median", &summary.latency.ttft),
        latency("TPOT, median", &summary.latency.tpot),
        latency("End to end, median", &summary.latency.e2e),
        rate(
            "Output",
            summary.throughput.output_tokens_per_s,
            "tokens/s",
            format!("{:.2} requests/s", summary.throughput.requests_per_s),
        ),
        headline(
            "KV cache held",
            format!("{:.1}", 100.0 * kv.usage_mean),
            "%",
            format!("peak {} of {} blocks", percent(kv.usage_peak), count(u64::from(kv.num_gpu_blocks))),
        ),
        headline(
            "Preemptions",
            count(summary.requests.preemptions),
            "",
            format!("{} evictions", count(kv.evictions)),
        ),
        headline(
            "GPU busy",
            format!("{:.1}", 100.0 * summary.steps.gpu_busy),
            "%",
            format!("{} steps", count(summary.steps.count)),
        ),
    ]
}

/// Three digits or so in the unit that suits it.
fn ms(ms: f64) -> (String, &'static str) {
    let (value, unit) = if ms < 1_000.0 { (ms, "ms") } else { (ms / 1e3, "s") };
    let text = if value >= 100.0 { grouped(value.round()) } else { format!("{value:.1}") };
    (text, unit)
}

pub(super) fn section(view: &RunView<'_>) -> Section {
    let (info, summary) = (view.info, view.summary);
    let scenario = view.scenario();
    let mut rows = vec![
        ("Model", summary.model.clone()),
        ("GPU", servers(view)),
        ("Workload", workload(view, &scenario)),
        ("Seed", summary.seed.to_string()),
        (
            "KV cache",
            format!(
                "{} blocks of {} tokens",
                count(u64::from(summary.kv_cache.num_gpu_blocks)),
                info.block_size_tokens
            ),
        ),
        ("Prefix caching", if info.enable_prefix_caching { "on" } else { "off" }.to_owned()),
        ("kvsim", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    if let Some(trace) = view.trace() {
        rows.push(("Trace", trace.file_name.clone()));
        rows.push(("SHA-256 of the trace", trace.sha256.chars().take(16).collect::<String>() + "…"));
    }
    let notes = &summary.workload;
    if let Some(first) = &notes.first_skipped_row {
        rows.push(("Rows left out", format!("{}, the first: {first}", count(notes.skipped_rows))));
    }
    let engine: Vec<(String, String)> = scenario.get("engine").map(settings).unwrap_or_default();
    let engine: Vec<(&str, String)> =
        engine.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let body = html! {
        (definitions(&rows))
        @if !notes.notes.is_empty() {
            ul.notes { @for note in &notes.notes { li { (note) } } }
        }
        @if !summary.caveats.is_empty() {
            p { "What the predictions rest on where nothing was measured:" }
            ul.notes { @for caveat in &summary.caveats { li { (caveat) } } }
        }
        @if !engine.is_empty() {
            details {
                summary { "Engine settings that the scenario gives" }
                (definitions(&engine))
            }
        }
        details {
            summary { "The whole scenario" }
            pre.scroll tabindex="0" { (serde_json::to_string_pretty(&scenario).unwrap_or_default()) }
        }
    };
    Section::new("scenario", "What was simulated", body)
}

fn workload(view: &RunView<'_>, scenario: &Value) -> String {
    let kinds: Vec<&str> = match scenario.get("workload") {
        Some(Value::Object(kinds)) => kinds.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let kind = kinds.join(", ");
    match view.summary.workload.trace_format {
        Some(format) => format!("{kind} ({format})"),
        None => kind,
    }
}

/// What is not null, by its path.
fn settings(value: &Value) -> Vec<(String, String)> {
    fn collect(value: &Value, path: &str, settings: &mut Vec<(String, String)>) {
        let child = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path}.{part}") };
        match value {
            Value::Null => {}
            Value::Object(entries) => {
                entries.iter().for_each(|(name, value)| collect(value, &child(name), settings));
            }
            Value::Array(items) => items
                .iter()
                .enumerate()
                .for_each(|(index, value)| collect(value, &child(&index.to_string()), settings)),
            Value::String(text) => settings.push((path.to_owned(), text.clone())),
            other => settings.push((path.to_owned(), other.to_string())),
        }
    }
    let mut all = Vec::new();
    collect(value, "", &mut all);
    all
}

/// The files of the report.
pub(super) fn files(view: &RunView<'_>) -> Section {
    let mut files = vec![
        ("summary.json", "every figure of this page, with its unit in its name"),
        ("requests.csv", "a row for each request: times, tokens, hits, preemptions"),
        ("timeseries.csv", "a row for each second or more: tokens, hits, evictions, queues, blocks in use"),
        ("manifest.json", "version, scenario, seed, checksum of the trace: enough to run it again"),
        ("hit_rate.svg", "the hit rate over time"),
        ("kv_usage.svg", "blocks in use, running and waiting requests over time"),
    ];
    if view.info.blocks {
        files.insert(3, ("blocks.csv", "a row for each eviction: when, age, idle time, hits"));
    }
    if view.info.kv_events {
        files.push(("kv_events.jsonl", "what a router would have been told"));
    }
    if view.info.fleet.is_some() {
        files.push((
            "replicas.csv",
            "a row for each replica: requests, tokens, hits, blocks in use, busy time",
        ));
    }
    files.extend(&view.more_files);
    let body = html! {
        p {
            "Beside this page, in the same folder"
            @if cfg!(feature = "parquet") { "; each table is there as Parquet too, with the same rows" }
            ":"
        }
        dl.definitions.files {
            @for (name, holds) in files {
                div { dt { a href=(name) { (name) } } dd { (holds) } }
            }
        }
    };
    Section::new("files", "Files", body)
}
