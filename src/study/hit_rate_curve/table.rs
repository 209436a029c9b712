//! A curve as a table on the terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::curve::{BlockSizeCurve, Curve, Point};
use crate::chart::number;

/// Hit rates by size and block size, what marks and knees come to, and what was simulated.
pub fn terminal_table(curve: &Curve) -> String {
    let mut parts = vec![head(curve), sizes(curve)];
    if curve.block_sizes.iter().any(|it| !it.simulated.is_empty()) {
        parts.push(simulated(curve));
    }
    parts.extend(curve.notes.iter().map(|note| format!("note: {note}")));
    parts.join("\n")
}

fn head(curve: &Curve) -> String {
    let how = match curve.sampling {
        None => "exact for an LRU of whole prefixes".to_owned(),
        Some(_) => {
            let first = &curve.block_sizes[0];
            let rate = 100.0 * first.sampled_rate.unwrap_or_default();
            let widths = curve.block_sizes.iter().filter_map(BlockSizeCurve::largest_half_width);
            format!(
                "from {} sampled blocks ({}% of all): within {:.2} percentage points at 95 % confidence",
                first.sampled_blocks.unwrap_or_default(),
                number(rate),
                100.0 * widths.fold(0.0, f64::max)
            )
        }
    };
    format!("{}: {} requests on {}, {how}", curve.name, curve.requests, curve.model)
}

fn sizes(curve: &Curve) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut head: Vec<String> = ["GiB", "tokens"].map(str::to_owned).into();
    head.extend(curve.block_sizes.iter().map(|it| format!("hit %, {} tokens", it.shape.block_size_tokens)));
    head.push(String::new());
    rows.push(head);
    let rates = |point: &dyn Fn(&BlockSizeCurve) -> Point| -> Vec<String> {
        curve.block_sizes.iter().map(|it| rate(&point(it))).collect()
    };
    let first = &curve.block_sizes[0];
    let mut all: Vec<(u64, f64, Vec<String>, String)> = Vec::new();
    for (index, point) in first.points.iter().enumerate() {
        all.push((point.cache_tokens, point.cache_gib, rates(&|it| it.points[index]), String::new()));
    }
    for (index, mark) in curve.marks.iter().enumerate() {
        let rates = rates(&|it| it.at_marks[index]);
        all.push((mark.cache_tokens, mark.cache_gib, rates, format!("<- {}", mark.label)));
    }
    all.sort_by_key(|(tokens, ..)| *tokens);
    for (tokens, gib, rates, label) in all {
        let mut row = vec![number(gib), tokens.to_string()];
        row.extend(rates);
        row.push(label);
        rows.push(row);
    }
    let mut row = vec!["infinite".to_owned(), String::new()];
    row.extend(rates(&|it| it.infinite));
    row.push(format!("of {} prompt tokens", first.queries_tokens));
    rows.push(row);
    let mut lines = vec![table(&rows, 2 + curve.block_sizes.len())];
    for it in &curve.block_sizes {
        let Some(knee) = &it.knee else { continue };
        lines.push(format!(
            "knee at block size {}: {} GiB ({} tokens, {} blocks) hit {} %",
            it.shape.block_size_tokens,
            number(knee.cache_gib),
            knee.cache_tokens,
            knee.cache_blocks,
            rate(knee)
        ));
    }
    lines.join("\n")
}

fn simulated(curve: &Curve) -> String {
    let head = ["simulated GiB", "tokens", "block size", "hit %", "one pass", "preemptions", "usage %", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for it in &curve.block_sizes {
        for point in &it.simulated {
            let mut row = vec![
                number(point.cache_gib),
                point.cache_tokens.to_string(),
                it.shape.block_size_tokens.to_string(),
            ];
            match &point.run {
                Some(run) => row.extend([
                    format!("{:.2}", 100.0 * run.hit_rate),
                    format!("{:.2}", 100.0 * run.one_pass_hit_rate),
                    run.preemptions.to_string(),
                    format!("{:.1}", 100.0 * run.usage_mean),
                    String::new(),
                ]),
                None => {
                    row.extend([const { String::new() }; 4]);
                    row.push(point.error.clone().unwrap_or_default());
                }
            }
            rows.push(row);
        }
    }
    table(&rows, 7)
}

fn rate(point: &Point) -> String {
    let rate = format!("{:.2}", 100.0 * point.hit_rate);
    match point.hit_rate_half_width {
        Some(half_width) => format!("{rate} ± {:.2}", 100.0 * half_width),
        None => rate,
    }
}

/// The first columns are numbers.
fn table(rows: &[Vec<String>], num_numbers: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    for row in rows {
        table.add_row(row);
    }
    for index in 0..num_numbers {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
