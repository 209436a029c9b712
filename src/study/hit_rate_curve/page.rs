//! `report.html` of a curve.

use maud::html;

use super::curve::{Curve, Point};
use super::plot;
use crate::chart::{Table, grouped};
use crate::page::{Headline, Page, Section, count, figure, figures, percent, sortable, table};

pub(super) fn page(curve: &Curve) -> String {
    let about = format!(
        "{} on {} × {}: {} requests, seed {}.",
        curve.model,
        curve.num_gpus,
        curve.gpu,
        count(curve.requests),
        curve.seed
    );
    let accuracy = match &curve.sampling {
        None => {
            "Every block was looked at: the one pass is exact for an LRU cache of whole prefixes.".to_owned()
        }
        Some(_) => "From a sample of the blocks; ± is the 95 % interval.".to_owned(),
    };
    let page = Page {
        kind: "hit-rate curve",
        title: curve.name.clone(),
        about: html! { p { (about) } p { (accuracy) } },
        notice: None,
        headlines: headlines(curve),
        sections: sections(curve),
    };
    page.html()
}

/// Of the first block size.
fn headlines(curve: &Curve) -> Vec<Headline> {
    let first = &curve.block_sizes[0];
    let headline = |name: String, point: &Point, note: String| Headline {
        name,
        value: format!("{:.1}", 100.0 * point.hit_rate),
        unit: "%".to_owned(),
        note,
    };
    let size =
        |point: &Point| format!("{} GiB, {} tokens", grouped(point.cache_gib), count(point.cache_tokens));
    let marks = curve.marks.iter().zip(&first.at_marks);
    let knee = first.knee.iter().map(|knee| headline("At the knee".to_owned(), knee, size(knee)));
    let end =
        headline("Without end".to_owned(), &first.infinite, format!("enough: {}", size(&first.infinite)));
    marks
        .map(|(mark, point)| headline(mark.label.replace(" x ", " × "), point, size(point)))
        .chain(knee)
        .chain([end])
        .collect()
}

fn sections(curve: &Curve) -> Vec<Section> {
    let main = html! {
        p {
            "Headlines are of blocks of " (curve.block_sizes[0].shape.block_size_tokens) " tokens. Up to the knee \
            memory brings more hits than on average, and less from there on."
        }
        div.wide { (figure(&plot::over_size(curve))) }
        (table(&at_marks(curve)))
        @if !curve.notes.is_empty() { ul.notes { @for note in &curve.notes { li { (note) } } } }
    };
    let mut sections = vec![Section::new("curve", "Over the size of the cache", main)];
    let breakdown = &curve.block_sizes[0].breakdown;
    if !breakdown.time.is_empty() {
        let mut plots = vec![plot::over_time(breakdown)];
        plots.extend(plot::by_turn_and_depth(breakdown));
        plots.extend(plot::by_tenant(breakdown));
        sections.push(Section::new("breakdown", "Over time, by turn, by depth", figures(&plots)));
    }
    if let Some(runs) = simulated(curve) {
        let body = html! {
            p { "The engine with its admission, preemption and concurrency, beside the one pass." }
            (sortable(&runs))
        };
        sections.push(Section::new("simulated", "Full simulations", body));
    }
    let files = html! {
        dl.definitions.files {
            @for (name, holds) in [
                ("curve.csv", "a row for each size, mark, knee and simulation"),
                ("breakdown.csv", "hits over time, by tenant, turn and depth"),
                ("curve.json", "all of it"),
                ("curve.svg", "the plot"),
                ("manifest.json", "version, scenario, seed, checksum of the trace"),
            ] {
                div { dt { a href=(name) { (name) } } dd { (holds) } }
            }
        }
    };
    sections.push(Section::new("files", "Files", files));
    sections
}

/// What each machine finds, at each block size.
fn at_marks(curve: &Curve) -> Table {
    let mut head = vec!["hit rate, %".to_owned(), "cache, GiB".to_owned()];
    head.extend(curve.block_sizes.iter().map(|it| format!("{} tokens a block", it.shape.block_size_tokens)));
    let mut table = Table { head, rows: Vec::new(), text_columns: 1 };
    for (index, mark) in curve.marks.iter().enumerate() {
        let rates = curve.block_sizes.iter().map(|it| rate(it.at_marks.get(index)));
        table.push([mark.label.replace(" x ", " × "), grouped(mark.cache_gib)].into_iter().chain(rates));
    }
    let knees = curve.block_sizes.iter().map(|it| match &it.knee {
        Some(knee) => format!("{:.2} at {} GiB", 100.0 * knee.hit_rate, grouped(knee.cache_gib)),
        None => "–".to_owned(),
    });
    table.push(["knee".to_owned(), "–".to_owned()].into_iter().chain(knees));
    let ends = curve.block_sizes.iter().map(|it| rate(Some(&it.infinite)));
    table.push(["without end".to_owned(), "–".to_owned()].into_iter().chain(ends));
    table
}

fn rate(point: Option<&Point>) -> String {
    match point {
        Some(Point { hit_rate, hit_rate_half_width: Some(half_width), .. }) => {
            format!("{:.2} ± {:.2}", 100.0 * hit_rate, 100.0 * half_width)
        }
        Some(point) => format!("{:.2}", 100.0 * point.hit_rate),
        None => "–".to_owned(),
    }
}

fn simulated(curve: &Curve) -> Option<Table> {
    let mut table = Table::new(
        0,
        &[
            "tokens a block",
            "cache, GiB",
            "hit rate, %",
            "one pass, %",
            "preemptions",
            "KV cache held",
            "TTFT p99, ms",
            "error",
        ],
    );
    for it in &curve.block_sizes {
        for point in &it.simulated {
            let begin = [it.shape.block_size_tokens.to_string(), grouped(point.cache_gib)];
            let end = match &point.run {
                Some(run) => [
                    format!("{:.2}", 100.0 * run.hit_rate),
                    format!("{:.2}", 100.0 * run.one_pass_hit_rate),
                    count(run.preemptions),
                    percent(run.usage_mean),
                    grouped(run.ttft_p99_ms),
                    String::new(),
                ],
                None => {
                    ["–", "–", "–", "–", "–", point.error.as_deref().unwrap_or_default()].map(str::to_owned)
                }
            };
            table.push(begin.into_iter().chain(end));
        }
    }
    let has_errors = curve.block_sizes.iter().any(|it| it.simulated.iter().any(|point| point.run.is_none()));
    if !has_errors {
        table.head.pop();
        table.rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    (!table.rows.is_empty()).then_some(table)
}
