//! `sweep.svg`: metrics over what varies, and `pareto.svg`: one metric over the other.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::SweepError;
use super::axes::{Axis, Lines};
use super::labels::labels;
use super::results::Results;
use crate::report::HEADLINES;
use crate::report::plots::{Area, BLUE, DrawError, GREEN, GRID, INK, ORANGE, WIDTH, draw};

const PANEL_HEIGHT: u32 = 300;
const TITLE_HEIGHT: u32 = 40;
const LEGEND_LINE_HEIGHT: u32 = 22;
const MAX_PANELS: usize = 6;
/// More lines cannot be told apart: then points have the colour of their second field.
const MAX_LINES: usize = 8;
// The rest of Okabe and Ito's colours.
const COLORS: [RGBColor; MAX_LINES] = [
    BLUE,
    ORANGE,
    GREEN,
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    INK,
    RGBColor(150, 150, 150),
];
/// The plots that this sweep has.
pub(super) fn plots(results: &Results) -> Result<Vec<(&'static str, String)>, SweepError> {
    let mut plots = Vec::new();
    if let Some(lines) = Lines::of(results) {
        plots.push(("sweep.svg", over_field(results, &lines)?));
    }
    if let Some(pareto) = &results.plan.pareto
        && let [x, y] = pareto.metrics().collect::<Vec<_>>()[..]
    {
        plots.push(("pareto.svg", of_front(results, x, y)?));
    }
    Ok(plots)
}

/// A panel for each metric, a line for each choice of the other fields.
fn over_field(results: &Results, lines: &Lines) -> Result<String, SweepError> {
    let metrics = panels(results);
    let has_lines = lines.lines.len() <= MAX_LINES;
    let legend = legend_lines(lines, has_lines);
    let legend_height = LEGEND_LINE_HEIGHT * legend.len() as u32;
    let rows = metrics.len().div_ceil(2) as u32;
    let height = TITLE_HEIGHT + legend_height + rows * PANEL_HEIGHT;
    let title = format!("{}: {} points", results.plan.name, results.points.len());
    let axis = Axis::of(&lines.x_values);
    Ok(draw("sweep.svg", &title, height, |area| {
        let (top, rest) = area.split_vertically(TITLE_HEIGHT + legend_height);
        top.titled(&title, ("sans-serif", 18).into_font().color(&INK))?;
        for (index, line) in legend.iter().enumerate() {
            draw_legend(&top, TITLE_HEIGHT + LEGEND_LINE_HEIGHT * index as u32, line)?;
        }
        let columns = if metrics.len() == 1 { 1 } else { 2 };
        for (panel, &(position, ref label)) in
            rest.split_evenly((rows as usize, columns)).iter().zip(&metrics)
        {
            panel_of(panel, results, lines, &axis, position, label, has_lines)?;
        }
        Ok(())
    })?)
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

type Entry = (RGBColor, String);

/// What the colours mean, as many to a line as fit.
fn legend_lines(lines: &Lines, has_lines: bool) -> Vec<Vec<Entry>> {
    let entries: Vec<Entry> = match &lines.color {
        _ if lines.lines.len() == 1 => Vec::new(),
        _ if has_lines => {
            COLORS.into_iter().zip(&lines.lines).map(|(color, (name, _))| (color, name.clone())).collect()
        }
        Some((field, first, last)) => vec![
            (blend(0.0), format!("{field} {}", super::axes::tick(*first))),
            (blend(0.5), "...".to_owned()),
            (blend(1.0), super::axes::tick(*last)),
        ],
        None => Vec::new(),
    };
    let mut legend: Vec<Vec<Entry>> = Vec::new();
    let mut width = 0;
    for entry in entries {
        let own = entry_width(&entry);
        if legend.is_empty() || width + own > WIDTH - 40 {
            legend.push(Vec::new());
            width = 0;
        }
        width += own;
        legend.last_mut().into_iter().for_each(|line| line.push(entry.clone()));
    }
    legend
}

/// In pixels, about.
fn entry_width((_, name): &Entry) -> u32 {
    46 + 7 * name.chars().count() as u32
}

fn draw_legend<'a>(area: &Area<'a>, y: u32, entries: &[Entry]) -> Result<(), DrawError<'a>> {
    let (mut x, y) = (20, y as i32);
    for entry in entries {
        let (color, name) = entry;
        area.draw(&PathElement::new([(x, y), (x + 20, y)], color.stroke_width(3)))?;
        area.draw(&Text::new(name.clone(), (x + 26, y - 6), ("sans-serif", 13).into_font().color(&INK)))?;
        x += entry_width(entry) as i32;
    }
    Ok(())
}

/// From blue at 0 to orange at 1.
fn blend(share: f64) -> RGBColor {
    let mix = |a: u8, b: u8| (f64::from(a) + share * (f64::from(b) - f64::from(a))).round() as u8;
    RGBColor(mix(BLUE.0, ORANGE.0), mix(BLUE.1, ORANGE.1), mix(BLUE.2, ORANGE.2))
}

fn panel_of<'a>(
    area: &Area<'a>,
    results: &Results,
    lines: &Lines,
    axis: &Axis,
    position: usize,
    label: &str,
    has_lines: bool,
) -> Result<(), DrawError<'a>> {
    let x_of =
        |index: usize| results.plan.points[index].fields.get(&lines.x).and_then(serde_json::Value::as_f64);
    // Where, the mean, and its interval.
    let value_of = |index: usize| {
        let estimate = results.points[index].metrics[position]?.estimate;
        let half_width = estimate.half_width.unwrap_or(0.0);
        Some((axis.drawn(x_of(index)?), estimate.mean, half_width))
    };
    let all = || (0..results.points.len()).filter_map(value_of);
    let has_intervals = all().any(|(_, _, half_width)| half_width > 0.0);
    // No metric can be negative, whatever its interval says.
    let begin = |mean: f64, half_width: f64| (mean - half_width).max(mean.min(0.0));
    let ends = all().map(|(_, mean, half_width)| (begin(mean, half_width), mean + half_width));
    let (low, high) = ends.fold((f64::MAX, f64::MIN), |(low, high), (a, b)| (low.min(a), high.max(b)));
    let (low, high) = y_range(low, high);
    let mut chart = chart(area, label, &lines.x, axis, (low, high))?;
    for (number, (_, points)) in lines.lines.iter().enumerate() {
        let values: Vec<(f64, f64, f64)> = points.iter().filter_map(|&index| value_of(index)).collect();
        let color = match &lines.color {
            _ if has_lines => COLORS[number],
            Some((field, first, last)) => {
                let value =
                    results.plan.points[points[0]].fields.get(field).and_then(serde_json::Value::as_f64);
                blend((value.unwrap_or(*first) - first) / (last - first))
            }
            None => BLUE,
        };
        // Intervals of several lines lie beside each other.
        let number = number as f64 - (lines.lines.len() - 1) as f64 / 2.0;
        let aside = if has_lines && has_intervals { 0.008 * axis.span() * number } else { 0.0 };
        if has_lines {
            let line = values.iter().map(|&(x, mean, _)| (x + aside, mean));
            chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
        }
        for &(x, mean, half_width) in &values {
            chart.draw_series([Circle::new((x + aside, mean), 3, color.filled())])?;
            if half_width > 0.0 {
                let bar = [(x + aside, begin(mean, half_width)), (x + aside, mean + half_width)];
                chart.draw_series([PathElement::new(bar, color.stroke_width(1))])?;
            }
        }
    }
    Ok(())
}

pub(in crate::study) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, RangedCoordf64>>;

pub(in crate::study) fn chart<'a, 'b>(
    area: &'a Area<'b>,
    title: &str,
    x_name: &str,
    axis: &Axis,
    (low, high): (f64, f64),
) -> Result<Chart<'a, 'b>, DrawError<'b>> {
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    // Some ten labels have to differ.
    let decimals = (1.0 - (high - low).log10().floor()).max(0.0) as usize;
    let mut chart = ChartBuilder::on(area)
        .caption(title, text(15))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(58)
        .build_cartesian_2d(axis.clone(), low..high)?;
    chart
        .configure_mesh()
        .x_desc(x_name)
        .label_style(text(12))
        .axis_desc_style(text(13))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|drawn| axis.label(*drawn))
        .y_label_formatter(&|value| format!("{value:.decimals$}"))
        .draw()?;
    Ok(chart)
}

/// From 0 where that leaves room for differences.
fn y_range(low: f64, high: f64) -> (f64, f64) {
    if low == 0.0 && high == 0.0 {
        return (0.0, 1.0);
    }
    // Differences in the last digits are no picture.
    let span = (high - low).max(high.abs() * 0.05).max(1e-6);
    let low = if low >= 0.0 && low < 0.6 * high { 0.0 } else { low - 0.1 * span };
    (low, high + 0.08 * span)
}

/// All points by two metrics, those on the front joined.
fn of_front(results: &Results, x: &str, y: &str) -> Result<String, SweepError> {
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
    let title =
        format!("{}: the front of {} points, with their numbers", results.plan.name, results.points.len());
    let mut x_values: Vec<f64> = points.iter().map(|point| point.0).collect();
    x_values.sort_by(f64::total_cmp);
    x_values.dedup();
    let y_ends =
        points.iter().fold((f64::MAX, f64::MIN), |(low, high), point| (low.min(point.1), high.max(point.1)));
    let mut front: Vec<(f64, f64, usize)> =
        points.iter().filter(|it| it.3).map(|it| (it.0, it.1, it.2)).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The best y for all who accept an x: it changes at points.
    let is_x_minimised = !results.plan.pareto.as_ref().is_some_and(|pareto| pareto.minimise.is_empty());
    let corner = |pair: &[(f64, f64, usize)]| {
        if is_x_minimised { (pair[1].0, pair[0].1) } else { (pair[0].0, pair[1].1) }
    };
    let corners = front.windows(2).flat_map(|pair| [corner(pair), (pair[1].0, pair[1].1)]);
    let steps: Vec<(f64, f64)> = front.first().map(|it| (it.0, it.1)).into_iter().chain(corners).collect();
    Ok(draw("pareto.svg", &title, 2 * PANEL_HEIGHT, |area| {
        if x_values.is_empty() {
            return Ok(());
        }
        let axis = Axis::round(&x_values);
        let (top, rest) = area.split_vertically(TITLE_HEIGHT);
        top.titled(&title, ("sans-serif", 18).into_font().color(&INK))?;
        let mut chart = chart(&rest, y, x, &axis, y_range(y_ends.0, y_ends.1))?;
        let steps = steps.iter().map(|&(x, y)| (axis.drawn(x), y));
        chart.draw_series(LineSeries::new(steps, ORANGE.stroke_width(1)))?;
        let beaten = points.iter().filter(|point| !point.3);
        chart
            .draw_series(beaten.map(|it| Circle::new((axis.drawn(it.0), it.1), 3, BLUE.mix(0.6).filled())))?;
        // Points at the same place share a label.
        for same in front.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let name =
                |index: usize| results.plan.points[index].name.clone().unwrap_or_else(|| index.to_string());
            let names: Vec<String> = same.iter().map(|&(_, _, index)| name(index)).collect();
            let label = Text::new(names.join(", "), (6, -16), ("sans-serif", 12).into_font().color(&INK));
            let place = (axis.drawn(same[0].0), same[0].1);
            chart.draw_series([EmptyElement::at(place) + Circle::new((0, 0), 4, ORANGE.filled()) + label])?;
        }
        Ok(())
    })?)
}
