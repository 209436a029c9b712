//! Two sides on one page.

use maud::html;
use serde_json::Value;

use super::{Comparison, Method, Metric, Subject};
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped, interval, number, signed};
use crate::page::{Page, Section, figure, sortable, table};

/// Larger changes are at the edge of the plot, and in the table.
const MOST_PERCENT: f64 = 200.0;

/// The page of a comparison of `a` and `b` with intervals of this confidence.
pub fn page(a: &Subject, b: &Subject, comparison: &Comparison, confidence: f64) -> String {
    let method = match comparison.method {
        Method::SingleRuns => {
            "One run on a side: there is no interval. Replications in a sweep tell whether a difference is more \
             than chance."
                .to_owned()
        }
        Method::Paired => format!(
            "{} seeds, the same on both sides: differences are between runs with the same seed. ± is the {} % \
             interval.",
            a.seeds.len(),
            grouped(100.0 * confidence)
        ),
        Method::Independent => format!(
            "{} and {} runs with different seeds. ± is Welch's {} % interval.",
            a.seeds.len(),
            b.seeds.len(),
            grouped(100.0 * confidence)
        ),
    };
    let mut sections = vec![Section::new("settings", "What is different", settings(comparison))];
    if let Some(plot) = changes(comparison) {
        sections.push(Section::new("changes", "Changes", html! { div.wide { (figure(&plot)) } }));
    }
    sections.push(Section::new("metrics", "Figures", sortable(&metrics(comparison))));
    let page = Page {
        kind: "comparison",
        title: format!("{} against {}", b.name, a.name),
        about: html! { p { "A is " b { (a.name) } ", B is " b { (b.name) } "." } p { (method) } },
        notice: None,
        headlines: Vec::new(),
        sections,
    };
    page.html()
}

fn settings(comparison: &Comparison) -> maud::Markup {
    if comparison.settings.is_empty() {
        return html! { p { "The scenarios are the same." } };
    }
    let text = |value: &Option<Value>| match value {
        None => "not given".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let mut rows = Table::new(3, &["setting", "A", "B"]);
    for setting in &comparison.settings {
        rows.push([setting.field.clone(), text(&setting.a), text(&setting.b)]);
    }
    table(&rows)
}

/// In per cent of A; `None` from nothing.
fn percent_of(metric: &Metric, value: f64) -> Option<f64> {
    (metric.a.mean != 0.0).then(|| 100.0 * value / metric.a.mean.abs())
}

/// Each metric's change, in the order of the table.
fn changes(comparison: &Comparison) -> Option<Plot> {
    const MOST_ROWS: usize = 40;
    let rows: Vec<(&Metric, f64, f64)> = comparison
        .metrics
        .iter()
        .filter_map(|metric| {
            let half_width = percent_of(metric, metric.difference.half_width.unwrap_or(0.0))?;
            Some((metric, percent_of(metric, metric.difference.mean)?, half_width))
        })
        .take(MOST_ROWS)
        .collect();
    let ends = rows.iter().flat_map(|&(_, mean, half_width)| [mean - half_width, mean + half_width]);
    let (low, high) = ends.fold((0.0_f64, 0.0_f64), |(low, high), end| (low.min(end), high.max(end)));
    if rows.is_empty() {
        return None;
    }
    let (low, high) = (low.max(-MOST_PERCENT), high.min(MOST_PERCENT));
    let room = 0.06 * (high - low).max(1.0);
    let names: Vec<String> = rows.iter().map(|(metric, _, _)| metric.name.clone()).collect();
    let mut data = Table::new(1, &["figure", "change, %", "±"]);
    let mut spans = [Vec::new(), Vec::new()];
    let mut dots = [Vec::new(), Vec::new()];
    for (index, &(metric, mean, half_width)) in rows.iter().enumerate() {
        let y = index as f64;
        // Differences that may be chance are in grey.
        let kind = usize::from(metric.difference.is_significant() || metric.difference.half_width.is_none());
        spans[kind].push((mean - half_width, mean + half_width, y));
        dots[kind].push((mean, y));
        data.push([metric.name.clone(), format!("{mean:+.2}"), format!("{half_width:.2}")]);
    }
    let [chance, certain] = spans;
    let [chance_dots, certain_dots] = dots;
    Some(Plot {
        title: "B against A, in per cent of A".to_owned(),
        description:
            "Where there are intervals, differences that may be chance are grey. Which direction is better \
                      depends on the figure."
                .to_owned(),
        x: Axis::exact("change, %", low - room, high + room),
        y: Axis::names("", &names, MOST_ROWS).downwards(),
        marks: vec![
            Mark::new(Color::Muted, Shape::Upright(0.0)),
            Mark::new(Color::Grey, Shape::Spans(chance)),
            Mark::new(Color::Grey, Shape::Dots(chance_dots)),
            Mark::new(Color::Blue, Shape::Spans(certain)),
            Mark::new(Color::Blue, Shape::Dots(certain_dots)),
        ],
        data,
        nearest: Nearest::Row,
        size: (Plot::WIDE, 60 + 24 * rows.len() as u32),
    })
}

fn metrics(comparison: &Comparison) -> Table {
    let mut table = Table::new(1, &["figure", "A", "B", "B − A", "change, %", "more than chance"]);
    for metric in &comparison.metrics {
        let Metric { name, a, b, difference } = metric;
        table.push([
            name.clone(),
            interval(a.half_width, number(a.mean)),
            interval(b.half_width, number(b.mean)),
            interval(difference.half_width, signed(difference.mean)),
            percent_of(metric, difference.mean).map_or_else(|| "–".to_owned(), |it| format!("{it:+.1}")),
            match difference.half_width {
                None => "–",
                Some(_) if difference.is_significant() => "yes",
                Some(_) => "no",
            }
            .to_owned(),
        ]);
    }
    table
}
