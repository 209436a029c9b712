//! Metrics over what varies, and one metric over the other.

use super::each_field::over_each;
use super::labels::labels;
use super::lines::{Lines, numeric_fields};
use super::results::Results;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped, sheet};
use crate::report::HEADLINES;

const MAX_PANELS: usize = 6;
/// Each metric has a panel for each field when there are three or more.
const MAX_METRICS_OF_MANY_FIELDS: usize = 4;
const MAX_COLUMNS: usize = 4;
/// More lines cannot be told apart: then all but the first and the last are in the background.
const MAX_LINES: usize = Color::SERIES.len();

/// Labels closer than this share of an axis would lie on each other.
const SAME_PLACE: f64 = 0.025;

/// The plots that this sweep has, as files.
pub(super) fn files(results: &Results) -> Vec<(&'static str, String)> {
    let mut files = Vec::new();
    let title = format!("{}: {} points", results.plan.name, results.points.len());
    let panels = over_field(results);
    if !panels.is_empty() {
        // With three fields or more a metric has a row, or rows, of its own.
        let fields = numeric_fields(&results.plan).len();
        let columns = if fields > 2 { fields.min(MAX_COLUMNS) } else { 2 };
        let rows: Vec<Vec<Plot>> = panels.chunks(columns).map(<[Plot]>::to_vec).collect();
        files.push(("sweep.svg", sheet(&title, &rows)));
    }
    if let Some(plot) = of_front(results) {
        let title = format!("{}: the front of {} points", results.plan.name, results.points.len());
        files.push(("pareto.svg", sheet(&title, &[vec![plot]])));
    }
    files
}

/// Where one or two of the fields are numbers that vary, a plot for each metric with a line for each choice of the
/// other fields; where more do, a plot for each metric and field.
pub(super) fn over_field(results: &Results) -> Vec<Plot> {
    let mut panels = panels(results);
    let Some(lines) = Lines::of(results) else {
        panels.truncate(MAX_METRICS_OF_MANY_FIELDS);
        return panels.iter().flat_map(|(position, label)| over_each(results, *position, label)).collect();
    };
    panels.iter().map(|(position, label)| over_x(results, &lines, *position, label)).collect()
}

/// The positions of the metrics to draw, with their labels.
fn panels(results: &Results) -> Vec<(usize, String)> {
    let plan = &results.plan;
    let names: Vec<&str> = plan.metrics.iter().map(String::as_str).collect();
    let is_of_front =
        |name: &str| plan.pareto.iter().flat_map(|pareto| pareto.metrics()).any(|it| it == name);
    let is_first = |name: &str| HEADLINES[..4].contains(&name) || is_of_front(name);
    let has_values = |position: usize| results.points.iter().any(|point| point.metrics[position].is_some());
    let mut panels: Vec<(usize, String)> =
        labels(&names).into_iter().enumerate().filter(|(position, _)| has_values(*position)).collect();
    if panels.len() > MAX_PANELS {
        panels.retain(|(position, _)| is_first(names[*position]));
    }
    panels.truncate(MAX_PANELS);
    panels
}

fn over_x(results: &Results, lines: &Lines, position: usize, label: &str) -> Plot {
    let x_of =
        |index: usize| results.plan.points[index].fields.get(&lines.x).and_then(serde_json::Value::as_f64);
    // Where, the mean, and half of its interval.
    let value_of = |index: usize| {
        let estimate = results.points[index].metrics[position]?.estimate;
        Some((x_of(index)?, estimate.mean, estimate.half_width.unwrap_or(0.0)))
    };
    // No metric can be negative, whatever its interval says.
    let begin = |mean: f64, half_width: f64| (mean - half_width).max(mean.min(0.0));
    let all = (0..results.points.len()).filter_map(value_of);
    let ends = all.map(|(_, mean, half_width)| (begin(mean, half_width), mean + half_width));
    let (low, high) = ends.fold((f64::MAX, f64::MIN), |(low, high), (a, b)| (low.min(a), high.max(b)));
    let x_name = labels(&[&lines.x]).remove(0);
    let mut data = Table::new(0, &[&x_name, label, "±", "of"]);
    let mut marks = Vec::new();
    let last = lines.lines.len() - 1;
    for (number, (name, points)) in lines.lines.iter().enumerate() {
        let values: Vec<(f64, f64, f64)> = points.iter().filter_map(|&index| value_of(index)).collect();
        for &(x, mean, half_width) in &values {
            data.push([x, mean, half_width].map(grouped).into_iter().chain([name.clone()]));
        }
        let is_background = last >= MAX_LINES && number != 0 && number != last;
        let color = match number {
            _ if is_background => Color::Grey,
            _ if last >= MAX_LINES && number == last => Color::Orange,
            number => Color::series(number),
        };
        let means: Vec<(f64, f64)> = values.iter().map(|&(x, mean, _)| (x, mean)).collect();
        let intervals = values
            .iter()
            .filter(|(_, _, half_width)| *half_width > 0.0)
            .map(|&(x, mean, half_width)| (x, begin(mean, half_width), mean + half_width));
        let mut drawn = vec![
            Mark::new(color, Shape::Intervals(intervals.collect())),
            Mark::new(color, Shape::Line(means.clone())),
            Mark::new(color, Shape::Dots(means)),
        ];
        if is_background {
            // Behind the others.
            marks.splice(0..0, drawn.into_iter().map(Mark::faint));
            continue;
        }
        if last > 0 {
            drawn[1].label = Some(name.clone());
        }
        marks.extend(drawn);
    }
    let metric = &results.plan.metrics[position];
    let mut description = format!("{metric} over {}.", lines.x);
    if results.plan.replications > 1 {
        description += &format!(
            " Means of {} runs with {} % intervals.",
            results.plan.replications,
            grouped(100.0 * results.plan.confidence)
        );
    }
    Plot {
        title: label.to_owned(),
        description,
        x: Axis::at(x_name, &lines.x_values),
        y: Axis::around(label, low, high),
        marks,
        data,
        nearest: Nearest::Point,
        size: (Plot::WIDTH, 280),
    }
}

/// All points by two metrics, those on the front joined; `None` without two Pareto metrics.
pub(super) fn of_front(results: &Results) -> Option<Plot> {
    let pareto = results.plan.pareto.as_ref()?;
    let [x, y] = pareto.metrics().collect::<Vec<_>>()[..] else { return None };
    let position = |name: &str| results.plan.metrics.iter().position(|known| known == name).unwrap_or(0);
    let (x_at, y_at) = (position(x), position(y));
    let points: Vec<(f64, f64, usize, bool)> = results
        .points
        .iter()
        .enumerate()
        .filter_map(|(index, point)| {
            let mean = |at: usize| Some(point.metrics[at]?.estimate.mean);
            Some((mean(x_at)?, mean(y_at)?, index, point.is_on_front == Some(true)))
        })
        .collect();
    let mut x_values: Vec<f64> = points.iter().map(|point| point.0).collect();
    x_values.sort_by(f64::total_cmp);
    x_values.dedup();
    if x_values.is_empty() {
        return None;
    }
    let (low, high) =
        points.iter().fold((f64::MAX, f64::MIN), |(low, high), point| (low.min(point.1), high.max(point.1)));
    let mut front: Vec<(f64, f64, usize)> =
        points.iter().filter(|it| it.3).map(|it| (it.0, it.1, it.2)).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The best y for all who accept an x: it changes at points.
    let is_x_minimised = !pareto.minimise.is_empty();
    let corner = |pair: &[(f64, f64, usize)]| {
        if is_x_minimised { (pair[1].0, pair[0].1) } else { (pair[0].0, pair[1].1) }
    };
    let corners = front.windows(2).flat_map(|pair| [corner(pair), (pair[1].0, pair[1].1)]);
    let steps: Vec<(f64, f64)> = front.first().map(|it| (it.0, it.1)).into_iter().chain(corners).collect();
    let name = |index: usize| results.plan.points[index].name.clone().unwrap_or_else(|| index.to_string());
    let beaten = points.iter().filter(|it| !it.3).map(|it| (it.0, it.1)).collect();
    let mut marks = vec![
        Mark::new(Color::Grey, Shape::Dots(beaten)),
        Mark::new(Color::Orange, Shape::Line(steps)).faint(),
        Mark::new(Color::Orange, Shape::Dots(front.iter().map(|it| (it.0, it.1)).collect())),
    ];
    let short = labels(&[x, y]);
    let (x_axis, y_axis) = (Axis::over(&short[0], &x_values), Axis::around(&short[1], low, high));
    // Points at nearly the same place share a label.
    let is_near = |axis: &Axis, a: f64, b: f64| (axis.share_at(a) - axis.share_at(b)).abs() < SAME_PLACE;
    let same_place = |a: &(f64, f64, usize), b: &(f64, f64, usize)| {
        is_near(&x_axis, a.0, b.0) && is_near(&y_axis, a.1, b.1)
    };
    for same in front.chunk_by(same_place) {
        let names: Vec<String> = same.iter().map(|&(_, _, index)| name(index)).collect();
        marks.push(Mark::new(Color::Ink, Shape::Note(same[0].0, same[0].1, names.join(", "))));
    }
    let mut data = Table::new(0, &[&short[0], &short[1], "point", "on the front"]);
    for &(x, y, index, is_on_front) in &points {
        let mark = if is_on_front { "yes" } else { "no" };
        data.push([grouped(x), grouped(y), name(index), mark.to_owned()]);
    }
    Some(Plot {
        title: "Pareto front".to_owned(),
        description: format!(
            "{} over {}. No other point is better in one and as good in the other than the {} named ones.",
            y,
            x,
            front.len()
        ),
        x: x_axis,
        y: y_axis,
        marks,
        data,
        nearest: Nearest::Point,
        size: (Plot::WIDE, 380),
    })
}
