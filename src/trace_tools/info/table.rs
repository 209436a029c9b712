//! The figures of a trace as tables of 100 columns.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::{Features, Percentiles, TraceInfo};

/// What `kvsim trace info` prints.
pub fn info_table(info: &TraceInfo) -> String {
    let mut out = head(info);
    lengths(&mut out, info);
    reuse(&mut out, info);
    sessions(&mut out, info);
    tenants(&mut out, info);
    out
}

fn head(info: &TraceInfo) -> String {
    let mut table = table();
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("format", info.format.to_owned());
    row("requests", grouped(info.requests));
    match &info.arrivals {
        None => row("times", "none: the scenario has to say when requests are sent".into()),
        Some(arrivals) => {
            row("time", format!("{:.1} s, from {:.1} s on", arrivals.duration_s, arrivals.first_s));
            let per_s = |total: u64| format!("{:.0}", total as f64 / arrivals.duration_s);
            let requests_per_s = format!("{:.2} requests/s", arrivals.mean_per_s);
            if info.requests_without_time > 0 {
                row("mean rate", format!("{requests_per_s} of those with a time"));
            } else if arrivals.duration_s > 0.0 {
                let prompt_per_s = per_s(info.prompt_tokens_total);
                let output_per_s = per_s(info.output_tokens_total);
                row(
                    "mean rate",
                    format!(
                        "{requests_per_s}, {prompt_per_s} prompt tokens/s, {output_per_s} output tokens/s"
                    ),
                );
            }
            row(
                "peak rate",
                format!(
                    "{} in a second, {} in a minute ({:.2}/s)",
                    requests(arrivals.peak_in_1_s),
                    arrivals.peak_in_60_s,
                    arrivals.peak_in_60_s as f64 / 60.0
                ),
            );
            let mut figures = Vec::new();
            if let Some(cv) = arrivals.gap_cv {
                figures.push(format!("{cv:.2} (coefficient of variation of gaps)"));
            }
            if let Some(dispersion) = arrivals.dispersion_in_60_s {
                figures.push(format!("{dispersion:.2} (variance/mean of requests in 60 s)"));
            }
            if !figures.is_empty() {
                row("burstiness", format!("{}; Poisson: 1", figures.join(", ")));
            }
        }
    }
    if info.requests_without_time > 0 && info.arrivals.is_some() {
        let requests = requests(info.requests_without_time);
        row("without a time", format!("{requests}, sent a think time after the answer before"));
    }
    for (name, count) in features(&info.with) {
        if count > 0 {
            row(name, requests(count));
        }
    }
    if let Some(first) = &info.first_skipped_row {
        row("rows left out", format!("{}, the first: {first}", grouped(info.skipped_rows)));
    }
    for note in &info.notes {
        row("note", note.clone());
    }
    finish(&table)
}

fn features(with: &Features) -> [(&'static str, u64); 7] {
    [
        ("with a priority", with.priority),
        ("not reading cache", with.skip_reading_prefix_cache),
        ("with a salt", with.cache_salt),
        ("with an adapter", with.lora),
        ("with images", with.mm_items),
        ("with embeddings", with.prompt_embeds),
        ("with patience", with.patience),
    ]
}

fn lengths(out: &mut String, info: &TraceInfo) {
    let mut table = table();
    table.set_header(["tokens", "total", "mean", "min", "p10", "p50", "p90", "p99", "max"]);
    for (name, total, values) in [
        ("prompt", info.prompt_tokens_total, &info.prompt_tokens),
        ("output", info.output_tokens_total, &info.output_tokens),
    ] {
        if let Some(values) = values {
            let mut cells = vec![name.to_owned(), grouped(total), mean(values.mean)];
            cells.extend(
                [values.min, values.p10, values.p50, values.p90, values.p99, values.max].map(grouped),
            );
            table.add_row(cells);
        }
    }
    section(out, "Lengths", &table);
}

fn reuse(out: &mut String, info: &TraceInfo) {
    if info.infinite_cache.is_empty() {
        let _ = writeln!(
            out,
            "\nHit rate: unknown, since the trace tells only the lengths of prompts, not what they share."
        );
        return;
    }
    let mut table = table();
    table.set_header(["block", "hit rate", "hits", "of prompt tokens", "unique blocks"]);
    for reuse in &info.infinite_cache {
        table.add_row([
            grouped(u64::from(reuse.block_size_tokens)),
            format!("{:.2} %", 100.0 * reuse.hit_rate),
            grouped(reuse.hits_tokens),
            grouped(reuse.queries_tokens),
            grouped(reuse.unique_blocks),
        ]);
    }
    section(out, "Hit rate of a cache without end, the upper bound, in tokens", &table);
    for line in caveats(info) {
        let _ = writeln!(out, "  {line}");
    }
    let Some(first) = info.infinite_cache.first() else { return };
    let mut table = percentile_table();
    if let Some(distances) = &first.reuse_distance_tokens {
        table.add_row([vec!["distance, tokens".to_owned()], cells(distances, grouped)].concat());
    }
    if let Some(times) = &first.reuse_time_s {
        table.add_row([vec!["time, s".to_owned()], cells(times, seconds)].concat());
    }
    if table.row_count() > 0 {
        let block_size = first.block_size_tokens;
        section(out, &format!("Since a block of {block_size} tokens that is found was touched last"), &table);
        let _ = writeln!(
            out,
            "  distance: distinct tokens touched since; a larger LRU cache still holds the block"
        );
    }
}

fn percentile_table() -> Table {
    let mut table = table();
    table.set_header(["", "mean", "p10", "p50", "p90", "p99", "max"]);
    table
}

fn caveats(info: &TraceInfo) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(tokens) = info.hash_id_tokens
        && tokens > 1
    {
        lines.push(format!("a hash id stands for {tokens} tokens: what prompts share of less is not known"));
    }
    if info.requests_with_unknown_prompt > 0 {
        let requests = requests(info.requests_with_unknown_prompt);
        lines.push(format!("left out, since only the length of the prompt is known: {requests}"));
    }
    if info.requests_without_time > 0 {
        let requests = requests(info.requests_without_time);
        lines.push(format!("without a time: {requests}, taken in the order of the file"));
    }
    if info.requests_with_unknown_output > 0 && info.hash_id_tokens.is_none() {
        let requests = requests(info.requests_with_unknown_output);
        lines.push(format!("which tokens the answer has is not known: {requests}"));
    }
    lines
}

fn sessions(out: &mut String, info: &TraceInfo) {
    let sessions = &info.sessions;
    let mut table = percentile_table();
    let mut row = |name: &str, cells: Option<Vec<String>>| {
        if let Some(cells) = cells {
            table.add_row([vec![name.to_owned()], cells].concat());
        }
    };
    row("turns", sessions.turns.as_ref().map(|values| cells(values, grouped)));
    row("between turns, s", sessions.time_between_turns_s.as_ref().map(|values| cells(values, seconds)));
    row("think time, s", sessions.think_time_s.as_ref().map(|values| cells(values, seconds)));
    if sessions.unknown == sessions.count {
        let _ =
            writeln!(out, "\nSessions: unknown, since the trace tells neither them nor what prompts share.");
        return;
    }
    let known = match sessions.estimated {
        0 if sessions.unknown > 0 => ", requests that belong to none included",
        0 => "",
        estimated if estimated == sessions.count => {
            ", estimated: a prompt that begins with all of an earlier one goes on from it"
        }
        _ => ", some estimated: a prompt that begins with all of an earlier one goes on from it",
    };
    section(out, &format!("Sessions: {}{known}", grouped(sessions.count)), &table);
}

fn tenants(out: &mut String, info: &TraceInfo) {
    if info.tenants.is_empty() {
        return;
    }
    let mut table = table();
    table.set_header(["", "requests", "prompt tokens", "output tokens", "hit rate", "hits", "of tokens"]);
    for tenant in &info.tenants {
        let rate = 100.0 * tenant.hits_tokens as f64 / tenant.queries_tokens.max(1) as f64;
        table.add_row([
            tenant.name.clone(),
            grouped(tenant.requests),
            grouped(tenant.prompt_tokens_total),
            grouped(tenant.output_tokens_total),
            format!("{rate:.2} %"),
            grouped(tenant.hits_tokens),
            grouped(tenant.queries_tokens),
        ]);
    }
    let block_size = info.infinite_cache.first().map_or(0, |reuse| reuse.block_size_tokens);
    section(out, &format!("Tenants, hits in blocks of {block_size} tokens"), &table);
}

fn cells<T: Copy>(values: &Percentiles<T>, text: impl Fn(T) -> String) -> Vec<String> {
    let mut cells = vec![mean(values.mean)];
    cells.extend([values.p10, values.p50, values.p90, values.p99, values.max].map(text));
    cells
}

fn mean(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1}") } else { grouped(value.round() as u64) }
}

fn seconds(value: f64) -> String {
    format!("{value:.1}")
}

fn requests(count: u64) -> String {
    format!("{} request{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// With a comma between thousands.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Numbers to the right.
fn section(out: &mut String, title: &str, table: &Table) {
    let mut table = table.clone();
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = write!(out, "\n{title}\n{}", finish(&table));
}

fn finish(table: &Table) -> String {
    format!("{}\n", table.trim_fmt())
}
