//! `curve.svg`: hit rate over the size of the cache, and below it over time, turns and depth.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::CurveError;
use super::breakdown::{Breakdown, Group};
use super::curve::Curve;
use crate::report::plots::{Area, BLUE, DrawError, GREEN, GRID, INK, ORANGE, WIDTH, draw};
use crate::study::format::number;
use crate::study::sweep::{Axis, tick};

const MAIN_HEIGHT: u32 = 520;
const PANEL_HEIGHT: u32 = 300;
/// One line for each block size, as many as can be told apart.
const COLORS: [RGBColor; 6] =
    [BLUE, ORANGE, GREEN, RGBColor(204, 121, 167), RGBColor(230, 159, 0), RGBColor(86, 180, 233)];
/// Labels of marks stand in so many rows, so that neighbours do not meet.
const LABEL_ROWS: usize = 4;
/// Of the plot's height, for a row of labels.
const LABEL_ROW: f64 = 5.0;

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, RangedCoordf64>>;

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// # Errors
/// It cannot be drawn.
pub(super) fn plot(curve: &Curve) -> Result<String, CurveError> {
    let title = format!("{}: prefix cache hit rate over cache size ({})", curve.name, curve.model);
    // The panels tell of the first block size.
    let breakdown = curve.block_sizes[0].breakdown.as_ref();
    let height = MAIN_HEIGHT + if breakdown.is_some() { 2 * PANEL_HEIGHT } else { 0 };
    Ok(draw("curve.svg", &title, height, |area| {
        let (top, rest) = area.split_vertically(MAIN_HEIGHT);
        over_size(&top, curve, &title)?;
        let Some(breakdown) = breakdown else { return Ok(()) };
        let block_size = curve.block_sizes[0].shape.block_size_tokens;
        let (middle, bottom) = rest.split_vertically(PANEL_HEIGHT);
        over_time(&middle, breakdown, block_size)?;
        const BY_DEPTH: &str = "By depth in the prompt, tokens";
        if breakdown.turn.len() < 2 {
            return over_keys(&bottom, BY_DEPTH, breakdown, &breakdown.depth);
        }
        let (left, right) = bottom.split_horizontally(WIDTH / 2);
        over_keys(&left, "By turn (0 is the first)", breakdown, &breakdown.turn)?;
        over_keys(&right, BY_DEPTH, breakdown, &breakdown.depth)
    })?)
}

fn over_size<'a>(area: &Area<'a>, curve: &Curve, title: &str) -> Result<(), DrawError<'a>> {
    let points = curve.block_sizes.iter().flat_map(|it| &it.points).map(|point| point.cache_gib);
    let simulated = curve.block_sizes.iter().flat_map(|it| &it.simulated).map(|point| point.cache_gib);
    let marks = curve.marks.iter().map(|mark| mark.cache_gib);
    let mut sizes: Vec<f64> = points.chain(simulated).chain(marks).filter(|&gib| gib > 0.0).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    if sizes.is_empty() {
        return Ok(());
    }
    let axis = Axis::round(&sizes);
    let rates = curve.block_sizes.iter().map(|it| it.infinite.hit_rate);
    let y_max = (100.0 * rates.fold(0.0, f64::max) * 1.15).clamp(1.0, 100.0);
    // Room for the labels of the marks.
    let y_end = y_max * (1.0 + LABEL_ROW / 100.0 * (LABEL_ROWS as f64 + 0.5));
    let mut chart = ChartBuilder::on(area)
        .caption(title, text(18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(axis.clone(), 0.0..y_end)?;
    chart
        .configure_mesh()
        .x_desc("cache size, GiB on all GPUs together")
        .y_desc("hit tokens, %")
        .label_style(text(13))
        .axis_desc_style(text(14))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|drawn| axis.label(*drawn))
        .y_label_formatter(&|value| if *value > 100.0 { String::new() } else { number(*value) })
        .draw()?;
    draw_marks(&mut chart, curve, &axis, y_max)?;
    let ends = axis.ends();
    for (index, it) in curve.block_sizes.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let block_size = it.shape.block_size_tokens;
        let drawn: Vec<(f64, f64, f64)> = it
            .points
            .iter()
            .filter(|point| point.cache_gib > 0.0)
            .map(|point| {
                let half_width = 100.0 * point.hit_rate_half_width.unwrap_or(0.0);
                (axis.drawn(point.cache_gib), 100.0 * point.hit_rate, half_width)
            })
            .collect();
        let bound = 100.0 * it.infinite.hit_rate;
        chart.draw_series(DashedLineSeries::new(
            [(ends.0, bound), (ends.1, bound)],
            4,
            4,
            color.mix(0.6).into(),
        ))?;
        chart
            .draw_series(LineSeries::new(drawn.iter().map(|&(x, y, _)| (x, y)), color.stroke_width(2)))?
            .label(format!("{block_size} tokens a block"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        let bars = drawn.iter().filter(|(_, _, half_width)| *half_width > 0.0);
        chart.draw_series(bars.map(|&(x, y, half_width)| {
            PathElement::new([(x, (y - half_width).max(0.0)), (x, y + half_width)], color.stroke_width(1))
        }))?;
        let runs =
            it.simulated.iter().filter_map(|point| Some((point.cache_gib, point.run.as_ref()?.hit_rate)));
        chart.draw_series(
            runs.map(|(gib, rate)| Circle::new((axis.drawn(gib), 100.0 * rate), 4, color.stroke_width(2))),
        )?;
        if let Some(knee) = it.knee.filter(|knee| knee.cache_gib > 0.0) {
            let at = (axis.drawn(knee.cache_gib), 100.0 * knee.hit_rate);
            chart.draw_series([TriangleMarker::new(at, 7, color.filled())])?;
        }
    }
    name_shapes(&mut chart, curve)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(text(13))
        .draw()
}

/// What the shapes mean, beside the lines.
fn name_shapes<'a>(chart: &mut Chart<'_, 'a>, curve: &Curve) -> Result<(), DrawError<'a>> {
    let grey = RGBColor(110, 110, 110);
    let nothing = || std::iter::empty::<Circle<(f64, f64), i32>>();
    chart
        .draw_series(nothing())?
        .label("a cache without end")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 7, y)], grey.stroke_width(1)));
    if curve.block_sizes.iter().any(|it| it.knee.is_some()) {
        chart
            .draw_series(nothing())?
            .label("knee")
            .legend(move |(x, y)| TriangleMarker::new((x + 9, y), 6, grey.filled()));
    }
    if curve.block_sizes.iter().any(|it| !it.simulated.is_empty()) {
        chart
            .draw_series(nothing())?
            .label("full simulation")
            .legend(move |(x, y)| Circle::new((x + 9, y), 4, grey.stroke_width(2)));
    }
    Ok(())
}

/// Vertical lines, with their labels above the curves.
fn draw_marks<'a>(
    chart: &mut Chart<'_, 'a>,
    curve: &Curve,
    axis: &Axis,
    y_max: f64,
) -> Result<(), DrawError<'a>> {
    let style = RGBColor(150, 150, 150).stroke_width(1);
    let ends = axis.ends();
    for (index, mark) in curve.marks.iter().filter(|mark| mark.cache_gib > 0.0).enumerate() {
        let x = axis.drawn(mark.cache_gib);
        // Towards the middle, so that none leaves the plot; rows so that no line crosses a label.
        let is_right = x - ends.0 > (ends.1 - ends.0) / 2.0;
        let row = if is_right { index % LABEL_ROWS } else { LABEL_ROWS - 1 - index % LABEL_ROWS };
        let y = y_max * (1.0 + LABEL_ROW / 100.0 * (row as f64 + 0.2));
        chart.draw_series([PathElement::new([(x, 0.0), (x, y)], style)])?;
        let label = format!("{} ({} GiB)", mark.label, tick(mark.cache_gib.round()));
        let pixels = if is_right { -4 - 6 * label.chars().count() as i32 } else { 4 };
        let label = Text::new(label, (pixels, -12), text(12));
        chart.draw_series([EmptyElement::at((x, y)) + label])?;
    }
    Ok(())
}

fn over_time<'a>(area: &Area<'a>, breakdown: &Breakdown, block_size: u32) -> Result<(), DrawError<'a>> {
    let times: Vec<f64> = breakdown.time.iter().filter_map(|group| group.key.parse().ok()).collect();
    let end = times.last().copied().unwrap_or(0.0) + breakdown.time_bin_s;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("Over time, by cache ({block_size} tokens a block)"), text(15))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..end, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("time of the request, s")
        .y_desc("hit tokens, %")
        .label_style(text(12))
        .axis_desc_style(text(13))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for (index, size) in breakdown.sizes.iter().enumerate() {
        let color = size_color(index, breakdown.sizes.len());
        let middle = breakdown.time_bin_s / 2.0;
        let line = times.iter().zip(&breakdown.time).map(|(at, group)| (at + middle, rate(group, index)));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)))?
            .label(size.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    // Where the lines at the end leave room.
    let is_high = breakdown.time.last().is_some_and(|group| rate(group, breakdown.sizes.len() - 1) > 50.0);
    let legend = if is_high { SeriesLabelPosition::LowerRight } else { SeriesLabelPosition::UpperRight };
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(text(12))
        .draw()
}

/// Turns or depths, one beside the other.
fn over_keys<'a>(
    area: &Area<'a>,
    title: &str,
    breakdown: &Breakdown,
    groups: &[Group],
) -> Result<(), DrawError<'a>> {
    let label = |position: f64| {
        let group = groups.get(position.round() as usize);
        let is_whole = (position - position.round()).abs() < 0.01;
        // The begin is enough of a range.
        group
            .filter(|_| is_whole)
            .map_or(String::new(), |group| group.key.split('-').next().unwrap_or_default().to_owned())
    };
    let mut chart = ChartBuilder::on(area)
        .caption(title, text(15))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(58)
        .build_cartesian_2d(-0.5..groups.len().max(1) as f64 - 0.5, 0.0..100.0)?;
    chart
        .configure_mesh()
        .y_desc("hit tokens, %")
        .x_labels(groups.len().clamp(1, 12))
        .label_style(text(12))
        .axis_desc_style(text(13))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value| label(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()?;
    for index in 0..breakdown.sizes.len() {
        let color = size_color(index, breakdown.sizes.len());
        let points: Vec<(f64, f64)> =
            groups.iter().enumerate().map(|(x, group)| (x as f64, rate(group, index))).collect();
        chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(1)))?;
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
    }
    Ok(())
}

fn rate(group: &Group, index: usize) -> f64 {
    100.0 * group.hits_tokens[index] as f64 / group.queries_tokens.max(1) as f64
}

/// Of a size among rising ones: the last is the cache without end.
fn size_color(index: usize, num_sizes: usize) -> RGBColor {
    if index + 1 == num_sizes { INK } else { COLORS[index % COLORS.len()] }
}
