//! Draws plots, all in one style: names of axes at their ends, few ticks, lines behind the marks
//! only across, and labels at the marks instead of legends.

use std::convert::Infallible;
use std::fmt::Write;

use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle, Text, TriangleMarker};
use plotters::prelude::Cartesian2d;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, IntoFont, ShapeStyle, TextStyle};

use super::axis::Axis;
use super::palette::{Color, style_sheet};
use super::plot::{Mark, Plot, Shape};
use super::svg_backend::{SvgBackend, UNIT, escape, text_width};

const TEXT_SIZE: i32 = px(11);
/// Of the lowest rows of a chart.
const BOTTOM: i32 = px(36);
/// For the name of what goes upwards.
const TOP: i32 = px(24);
/// Labels at marks leave so much between them.
const LABEL_STEP: i32 = px(16);
/// For the heading of a sheet.
const HEADING: u32 = 40;

type Area<'a> = DrawingArea<SvgBackend<'a>, Shift>;
type Inner<'a> = DrawingArea<SvgBackend<'a>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), DrawingAreaErrorKind<Infallible>>;

const fn px(pixels: i32) -> i32 {
    pixels * UNIT as i32
}

/// A plot for a page: an `svg` element whose colours the page's [`style_sheet`] says.
pub fn svg(plot: &Plot) -> String {
    let size = (plot.size.0 * UNIT, plot.size.1 * UNIT);
    let mut drawn = String::new();
    let place = draw(&mut drawn, size, |area| plot_on(area, plot));
    let place = place.map_or(String::new(), |place| format!(" data-plot=\"{place}\""));
    let mut out = format!("<svg viewBox=\"0 0 {} {}\" role=\"img\"{place}>", size.0, size.1);
    name(&mut out, &plot.title, &plot.description);
    out.push_str(&drawn);
    out.push_str("</svg>");
    out
}

/// Plots in rows, as a file of their own.
pub fn sheet(title: &str, rows: &[Vec<Plot>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(1).max(1) as u32;
    let width = (columns * Plot::WIDTH).max(800);
    let row_height = |row: &Vec<Plot>| row.iter().map(|plot| plot.size.1 + 30).max().unwrap_or(0);
    let height = HEADING + rows.iter().map(row_height).sum::<u32>();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {} {}\" role=\"img\">\n",
        width * UNIT,
        height * UNIT
    );
    let descriptions: Vec<&str> = rows.iter().flatten().map(|plot| plot.description.as_str()).collect();
    name(&mut out, title, &descriptions.join(" "));
    let _ = write!(out, "\n<style>\n{}text{{font-size:{TEXT_SIZE}px}}</style>\n", style_sheet());
    draw(&mut out, (width * UNIT, height * UNIT), |area| {
        area.fill(&Color::Surface.rgb())?;
        text(area, title, (px(16), px(14)), Color::Ink, HPos::Left, VPos::Top)?;
        let mut rest = area.split_vertically(HEADING * UNIT).1;
        for row in rows {
            let (band, below) = rest.split_vertically(row_height(row) * UNIT);
            for (cell, plot) in band.split_evenly((1, row.len().max(1))).iter().zip(row) {
                let cell = cell.margin(0, px(6), px(12), px(12));
                let (head, body) = cell.split_vertically(24 * UNIT);
                if rows.len() > 1 || row.len() > 1 {
                    text(&head, &plot.title, (px(4), px(2)), Color::Ink, HPos::Left, VPos::Top)?;
                }
                plot_on(&body, plot)?;
            }
            rest = below;
        }
        Ok(())
    });
    out.push_str("\n</svg>\n");
    out
}

/// For those who do not see the drawing.
fn name(out: &mut String, title: &str, description: &str) {
    out.push_str("<title>");
    escape(out, title);
    out.push_str("</title><desc>");
    escape(out, description);
    out.push_str("</desc>");
}

/// Nothing can go wrong: writing to a string does not, and one area draws at a time.
fn draw<T>(
    out: &mut String,
    size: (u32, u32),
    content: impl for<'a> FnOnce(&Area<'a>) -> Result<T, DrawingAreaErrorKind<Infallible>>,
) -> Option<T> {
    let area = SvgBackend { out, size }.into_drawing_area();
    let drawn = content(&area);
    debug_assert!(drawn.is_ok());
    drawn.ok()
}

/// Draws axes and marks, and tells where: left, top, width and height of the inner part and what the
/// ends of the axes are worth, for pointing.
fn plot_on(area: &Area<'_>, plot: &Plot) -> Result<String, DrawingAreaErrorKind<Infallible>> {
    let (width, height) = area.dim_in_pixel();
    let (width, height) = (width as i32, height as i32);
    let widest = |labels: &mut dyn Iterator<Item = &str>| {
        labels.map(|label| text_width(label, f64::from(TEXT_SIZE))).max().unwrap_or(0) as i32
    };
    let left = widest(&mut plot.y.ticks().iter().map(|(_, label)| label.as_str())) + px(12);
    let names: Vec<String> =
        plot.marks.iter().filter_map(|mark| mark.label.as_deref()).map(shortened).collect();
    let right = match widest(&mut names.iter().map(String::as_str)) {
        0 => px(14),
        // Telephones write larger.
        labels => labels * 5 / 4 + px(22),
    };
    let (right, bottom) = ((width - right).max(left + px(40)), height - BOTTOM);
    let uprights = uprights(plot, (left, right));
    let rows = uprights.iter().map(|it| it.row + 1).max().unwrap_or(0);
    let top = if plot.y.name.is_empty() { px(6) } else { TOP };
    let top = top + if rows > 0 { px(4) + rows * LABEL_STEP } else { 0 };
    // An area counts from its own corner, coordinates from that of the whole.
    let base = area.get_base_pixel();
    let coordinates = Cartesian2d::<Axis, Axis>::new(
        plot.x.clone(),
        plot.y.clone(),
        (base.0 + left..base.0 + right, base.1 + bottom..base.1 + top),
    );
    let inner = area.clone().apply_coord_spec(coordinates);
    let at = |x: f64, y: f64| {
        let (x, y) = inner.map_coordinate(&(x, y));
        (x - base.0, y - base.1)
    };
    axes(area, &inner, plot, &at, top)?;
    for mark in &plot.marks {
        draw_mark(area, &inner, plot, mark, &at)?;
    }
    labels(area, plot, &at, (top, bottom))?;
    for upright in uprights {
        let y = top - px(3) - upright.row * LABEL_STEP;
        let line = Color::Muted.rgb().stroke_width(UNIT);
        area.draw(&PathElement::new([(upright.x, top), (upright.x, y - px(8))], line))?;
        let anchor = if upright.is_left { HPos::Right } else { HPos::Left };
        let x = if upright.is_left { upright.x - px(4) } else { upright.x + px(4) };
        text(area, upright.label, (x, y), Color::Ink, anchor, VPos::Bottom)?;
    }
    let ends = |axis: &Axis| {
        let (begin, end) = axis.ends();
        format!("{begin},{end},{}", u8::from(axis.is_logarithmic()))
    };
    Ok(format!("{left},{top},{},{},{},{}", right - left, bottom - top, ends(&plot.x), ends(&plot.y)))
}

fn axes(
    area: &Area<'_>,
    inner: &Inner<'_>,
    plot: &Plot,
    at: &dyn Fn(f64, f64) -> (i32, i32),
    top: i32,
) -> Drawn {
    let (x_ends, y_ends) = (plot.x.ends(), plot.y.ends());
    let is_rows = plot.marks.iter().any(|mark| matches!(mark.shape, Shape::Rows(_) | Shape::Spans(_)));
    let grid = Color::Grid.rgb().stroke_width(UNIT);
    for (y, label) in plot.y.ticks() {
        if !is_rows {
            inner.draw(&PathElement::new([(x_ends.0, *y), (x_ends.1, *y)], grid))?;
        }
        let (x, y) = at(x_ends.0, *y);
        text(area, label, (x - px(7), y), Color::Muted, HPos::Right, VPos::Center)?;
    }
    let mut free_from = i32::MIN;
    for (x, label) in plot.x.ticks() {
        if is_rows {
            inner.draw(&PathElement::new([(*x, y_ends.0), (*x, y_ends.1)], grid))?;
        }
        let (x, y) = at(*x, y_ends.0);
        let half = text_width(label, f64::from(TEXT_SIZE)) as i32 * 5 / 8;
        // A label that would touch the one before stays out.
        if x - half >= free_from {
            text(area, label, (x, y + px(5)), Color::Muted, HPos::Center, VPos::Top)?;
            free_from = x + half + px(5);
        }
    }
    if !is_rows {
        let base = Color::Muted.rgb().stroke_width(UNIT);
        inner.draw(&PathElement::new([(x_ends.0, y_ends.0), (x_ends.1, y_ends.0)], base))?;
    }
    let (left, _) = at(x_ends.0, y_ends.0);
    let name_y = top.min(TOP) - px(9);
    let name_x = if is_rows { px(4) } else { px(4).min(left) };
    text(area, &plot.y.name, (name_x, name_y), Color::Muted, HPos::Left, VPos::Bottom)?;
    let (right, bottom) = at(x_ends.1, y_ends.0);
    text(area, &plot.x.name, (right, bottom + px(20)), Color::Muted, HPos::Right, VPos::Top)
}

fn draw_mark(
    area: &Area<'_>,
    inner: &Inner<'_>,
    plot: &Plot,
    mark: &Mark,
    at: &dyn Fn(f64, f64) -> (i32, i32),
) -> Drawn {
    let opacity = if mark.is_faint { 0.35 } else { 1.0 };
    let color = mark.color.rgb();
    let line: ShapeStyle = color.mix(opacity).stroke_width(if mark.is_faint { UNIT } else { 2 * UNIT });
    let filled: ShapeStyle = color.mix(if mark.is_faint { 0.35 } else { 0.9 }).filled();
    let drawn = |&(x, y): &(f64, f64)| (plot.x.drawn(x), plot.y.drawn(y));
    // From 0, or from where a logarithmic axis begins.
    let base = |axis: &Axis| {
        let (begin, end) = axis.ends();
        if axis.is_logarithmic() { begin.min(end) } else { 0.0 }
    };
    match &mark.shape {
        Shape::Line(points) => {
            inner.draw(&PathElement::new(points.iter().map(drawn).collect::<Vec<_>>(), line))
        }
        Shape::Dashed(points) => {
            let points: Vec<_> = points.iter().map(drawn).collect();
            inner.draw(&DashedPathElement::new(points, px(5), px(4), color.mix(0.8).stroke_width(UNIT)))
        }
        Shape::Band(points) => {
            let highs = points.iter().map(|&(x, _, high)| drawn(&(x, high)));
            let lows = points.iter().rev().map(|&(x, low, _)| drawn(&(x, low)));
            inner.draw(&Polygon::new(highs.chain(lows).collect::<Vec<_>>(), filled))
        }
        Shape::Bars(bars) => bars.iter().try_for_each(|&(from, to, y)| {
            let (from, to) = (plot.x.drawn(from), plot.x.drawn(to));
            inner.draw(&Rectangle::new([(from, plot.y.drawn(y)), (to, base(&plot.y))], filled))
        }),
        Shape::Rows(rows) => rows.iter().try_for_each(|&(from, to, x)| {
            inner.draw(&Rectangle::new([(base(&plot.x), from), (plot.x.drawn(x), to)], filled))
        }),
        Shape::Dots(points) => points.iter().try_for_each(|point| {
            inner.draw(&Circle::new(drawn(point), if mark.is_faint { px(3) } else { 35 }, filled))
        }),
        Shape::Rings(points) => {
            points.iter().try_for_each(|point| inner.draw(&Circle::new(drawn(point), 45, line)))
        }
        Shape::Triangles(points) => {
            points.iter().try_for_each(|point| inner.draw(&TriangleMarker::new(drawn(point), 65, filled)))
        }
        Shape::Intervals(intervals) => intervals.iter().try_for_each(|&(x, low, high)| {
            inner.draw(&PathElement::new(
                [drawn(&(x, low)), drawn(&(x, high))],
                color.mix(opacity).stroke_width(UNIT * 3 / 2),
            ))
        }),
        Shape::Spans(spans) => spans.iter().try_for_each(|&(low, high, y)| {
            inner.draw(&PathElement::new(
                [drawn(&(low, y)), drawn(&(high, y))],
                color.mix(opacity).stroke_width(UNIT * 3 / 2),
            ))
        }),
        Shape::At(x, _) | Shape::Upright(x) => {
            let (begin, end) = plot.y.ends();
            let x = plot.x.drawn(*x);
            inner.draw(&PathElement::new([(x, begin), (x, end)], color.mix(opacity).stroke_width(UNIT)))
        }
        Shape::Note(x, y, words) => {
            let (x, y) = at(plot.x.drawn(*x), plot.y.drawn(*y));
            let (width, _) = area.dim_in_pixel();
            let is_right = x + text_width(words, f64::from(TEXT_SIZE)) as i32 + px(10) > width as i32;
            let (x, at) = if is_right { (x - px(6), HPos::Right) } else { (x + px(6), HPos::Left) };
            text(area, words, (x, y - px(4)), mark.color, at, VPos::Bottom)
        }
    }
}

/// The names of marks at their right ends, apart from each other.
fn labels(
    area: &Area<'_>,
    plot: &Plot,
    at: &dyn Fn(f64, f64) -> (i32, i32),
    (top, bottom): (i32, i32),
) -> Drawn {
    let right = at(plot.x.ends().1, 0.0).0;
    let mut ends: Vec<(i32, Color, &str)> = Vec::new();
    for mark in &plot.marks {
        let Some(label) = &mark.label else { continue };
        let last = match &mark.shape {
            Shape::Line(points) | Shape::Dashed(points) | Shape::Dots(points) => points.last().copied(),
            Shape::Rings(points) | Shape::Triangles(points) => points.last().copied(),
            Shape::Band(points) => points.last().map(|&(x, low, high)| (x, (low + high) / 2.0)),
            _ => None,
        };
        let (x, y) = last.unwrap_or((0.0, 0.0));
        ends.push((at(plot.x.drawn(x), plot.y.drawn(y)).1, mark.color, label));
    }
    ends.sort_by_key(|end| end.0);
    // Downwards until they do not touch, then back up from the lower end.
    let mut free_from = top;
    for end in &mut ends {
        end.0 = end.0.max(free_from);
        free_from = end.0 + LABEL_STEP;
    }
    let mut free_to = bottom;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(free_to);
        free_to = end.0 - LABEL_STEP;
    }
    for (y, color, label) in ends {
        let swatch = [(right + px(4), y), (right + px(12), y)];
        area.draw(&PathElement::new(swatch, color.rgb().stroke_width(3 * UNIT)))?;
        text(area, &shortened(label), (right + px(16), y), Color::Ink, HPos::Left, VPos::Center)?;
    }
    Ok(())
}

/// So that there is room for the plot beside it. What tells lines apart is mostly at the end, a value
/// behind the name of its field, so the middle is left out.
fn shortened(label: &str) -> String {
    const MOST: usize = 26;
    const END: usize = 16;
    let length = label.chars().count();
    if length <= MOST {
        return label.to_owned();
    }
    let begin = label.chars().take(MOST - END - 1);
    begin.chain(['…']).chain(label.chars().skip(length - END)).collect()
}

/// The name of a line from bottom to top, above it.
struct Upright<'a> {
    x: i32,
    /// From the lowest.
    row: i32,
    is_left: bool,
    label: &'a str,
}

/// Places names so that none meets another, or the line that leads to another.
fn uprights<'a>(plot: &'a Plot, (left, right): (i32, i32)) -> Vec<Upright<'a>> {
    /// More than these are not tried in all ways.
    const MOST: usize = 6;
    let marks = plot.marks.iter().filter_map(|mark| match &mark.shape {
        Shape::At(x, label) => Some((plot.x.map(&plot.x.drawn(*x), (left, right)), label.as_str())),
        _ => None,
    });
    let marks: Vec<(i32, &str)> = marks.collect();
    let mut placed = Vec::with_capacity(marks.len());
    if marks.len() > MOST || !place(&marks, right, &mut placed) {
        let stacked = |(row, &(x, label)): (usize, &(i32, &'a str))| {
            let row = row as i32;
            (Upright { x, row, is_left: x > (left + right) / 2, label }, (x, x))
        };
        placed = marks.iter().enumerate().map(stacked).collect();
    }
    placed.into_iter().map(|(upright, _)| upright).collect()
}

/// Places the rest of the marks after those that are placed, each in the lowest row that leaves room for
/// all; false if there is no way.
fn place<'a>(marks: &[(i32, &'a str)], right: i32, placed: &mut Vec<(Upright<'a>, (i32, i32))>) -> bool {
    let Some(&(x, label)) = marks.get(placed.len()) else { return true };
    // Telephones write larger.
    let width = text_width(label, f64::from(TEXT_SIZE)) as i32 * 5 / 4 + px(6);
    let rows = 0..marks.len() as i32;
    for (row, is_left) in rows.flat_map(|row| [(row, false), (row, true)]) {
        let (from, to) = if is_left { (x - width, x) } else { (x, x + width) };
        let is_free = placed.iter().all(|(other, (other_from, other_to))| {
            let meets = other.row == row && from < *other_to && *other_from < to;
            let is_crossed = other.row > row && from < other.x && other.x < to;
            let crosses = other.row < row && *other_from < x && x < *other_to;
            !(meets || is_crossed || crosses)
        });
        if !is_free || from < 0 || to > right + px(12) {
            continue;
        }
        placed.push((Upright { x, row, is_left, label }, (from, to)));
        if place(marks, right, placed) {
            return true;
        }
        placed.pop();
    }
    false
}

fn text(area: &Area<'_>, words: &str, at: (i32, i32), color: Color, h: HPos, v: VPos) -> Drawn {
    let color = color.rgb();
    let style = TextStyle::from(("sans-serif", TEXT_SIZE).into_font()).color(&color).pos(Pos::new(h, v));
    area.draw(&Text::new(words.to_owned(), at, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_labels_keep_their_beginning_and_their_end() {
        assert_eq!(shortened("tensor_parallel_size 1, 20"), "tensor_parallel_size 1, 20");
        assert_eq!(shortened("num_gpu_blocks_override 1,000"), "num_gpu_b…s_override 1,000");
    }
}
