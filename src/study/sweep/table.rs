//! The points of a sweep as a table on the terminal.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::labels::{labels, shorten, value};
use super::results::{MetricResult, Results};
use crate::chart::{interval, number, signed};

/// Without a terminal.
const USUAL_WIDTH: usize = 100;
const MAX_POINTS: usize = 40;
/// Between columns.
const PADDING: usize = 2;

/// The points with as many metrics as fit.
pub fn terminal_table(results: &Results) -> String {
    let plan = &results.plan;
    let on_front = |index: &usize| results.points[*index].is_on_front == Some(true);
    let mut shown: Vec<usize> = (0..results.points.len()).collect();
    let is_front_only = shown.len() > MAX_POINTS && shown.iter().any(on_front);
    if is_front_only {
        shown.retain(on_front);
    }
    shown.truncate(MAX_POINTS);

    let mut columns = vec![column("point", shown.iter().map(|index| index.to_string()))];
    if plan.is_named() {
        let name = |index: &usize| plan.points[*index].name.clone().unwrap_or_default();
        columns.push(column("name", shown.iter().map(name)));
    }
    let fields: Vec<&str> = plan.fields.iter().map(String::as_str).collect();
    for (field, label) in fields.iter().zip(labels(&fields)) {
        let cell = |&index: &usize| shorten(value(plan.points[index].fields.get(*field)));
        columns.push(column(&label, shown.iter().map(cell)));
    }
    if !is_front_only && plan.pareto.is_some() {
        let mark = |index| if on_front(index) { "yes".to_owned() } else { String::new() };
        columns.push(column("on front", shown.iter().map(mark)));
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let width = table.width().map_or(USUAL_WIDTH, usize::from);
    let numbers_from = columns.len();
    let mut hidden = 0;
    for (position, label) in metric_order(results) {
        let metric = |index: &usize| results.points[*index].metrics[position];
        let mut group = vec![column(&label, shown.iter().map(|index| mean(metric(index))))];
        if let Some(baseline) = plan.baseline {
            let name = plan.points[baseline].name.clone().unwrap_or_else(|| baseline.to_string());
            group.push(column(&format!("vs {name}"), shown.iter().map(|index| difference(metric(index)))));
        }
        if hidden == 0 && (columns.len() == numbers_from || width_of(&columns) + width_of(&group) <= width) {
            columns.extend(group);
        } else {
            hidden += 1;
        }
    }
    for row in 0..=shown.len() {
        table.add_row(columns.iter().map(|column| &column[row]));
    }
    for index in numbers_from..columns.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let notes = notes(results, shown.len(), is_front_only, hidden);
    [Some(table.trim_fmt())].into_iter().chain(notes).flatten().collect::<Vec<_>>().join("\n")
}

/// What the table leaves out, and what to know of it.
fn notes(results: &Results, shown: usize, is_front_only: bool, hidden: usize) -> [Option<String>; 4] {
    let all = results.points.len();
    let points = || results.points.iter().enumerate();
    let failed: Vec<_> = points().filter_map(|(index, point)| Some((index, point.error()?))).collect();
    let which = if is_front_only { "on the front" } else { "the first" };
    let mut estimates = results.points.iter().flat_map(|point| point.metrics.iter().flatten());
    let is_drawn = estimates.any(|metric| metric.estimate.half_width != Some(0.0));
    [
        (shown < all).then(|| format!("{shown} of {all} points, {which}; all are in points.csv")),
        (hidden > 0).then(|| format!("{hidden} more metrics in points.csv")),
        (results.plan.replications > 1 && !is_drawn)
            .then(|| "All replications are equal: the workload draws nothing from the seed.".to_owned()),
        failed.first().map(|(first, error)| {
            let points = if failed.len() == 1 { "point" } else { "points" };
            format!("{} {points} with errors, the first is {first}: {error}", failed.len())
        }),
    ]
}

/// The positions of metrics with their labels, those of the front first.
fn metric_order(results: &Results) -> Vec<(usize, String)> {
    let names: Vec<&str> = results.plan.metrics.iter().map(String::as_str).collect();
    let mut order: Vec<(usize, String)> = labels(&names).into_iter().enumerate().collect();
    let is_of_front = |position: usize| {
        let mut of_front = results.plan.pareto.iter().flat_map(|pareto| pareto.metrics());
        of_front.any(|name| name == names[position])
    };
    order.sort_by_key(|(position, _)| !is_of_front(*position));
    order
}

fn column(head: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    [head.to_owned()].into_iter().chain(cells).collect()
}

fn width_of(columns: &[Vec<String>]) -> usize {
    let width = |column: &Vec<String>| column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
    columns.iter().map(|column| width(column) + PADDING).sum()
}

fn mean(metric: Option<MetricResult>) -> String {
    metric
        .map_or_else(String::new, |metric| interval(metric.estimate.half_width, number(metric.estimate.mean)))
}

fn difference(metric: Option<MetricResult>) -> String {
    let Some(difference) = metric.and_then(|metric| metric.difference) else { return String::new() };
    interval(difference.half_width, signed(difference.mean))
}
