//! Draws plots, all in one style: names of axes at their ends, few ticks, lines behind the marks
//! only across, and labels at the marks instead of legends.

use std::convert::Infallible;
use std::fmt::Write;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle, Text, TriangleMarker};
use plotters::prelude::Cartesian2d;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, IntoFont, ShapeStyle, TextStyle};

use super::axis::Axis;
use super::palette::{Color, style_sheet};
use super::plot::{Mark, Plot, Shape};
use super::svg_backend::{SvgBackend, UNIT, escape, text_width};

/// Of a chart, in pixels: half of a wide page, and not much more than a telephone.
const WIDTH: u32 = 540;
const TEXT_SIZE: i32 = px(12);
/// Of the lowest rows of a chart.
const BOTTOM: i32 = px(36);
/// For the name of what goes upwards.
const TOP: i32 = px(24);
/// Labels at marks leave so much between them.
const LABEL_STEP: i32 = px(15);
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
    let size = (WIDTH * UNIT, plot.height * UNIT);
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
    let width = if columns == 1 { 960 } else { columns * WIDTH };
    let row_height = |row: &Vec<Plot>| row.iter().map(|plot| plot.height + 30).max().unwrap_or(0);
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
    let right = match widest(&mut plot.marks.iter().filter_map(|mark| mark.label.as_deref())) {
        0 => px(14),
        // Telephones write larger.
        labels => labels * 5 / 4 + px(22),
    };
    let rows = plot.marks.iter().filter(|mark| matches!(mark.shape, Shape::At(..))).count() as i32;
    let top = TOP + if rows > 0 { px(4) + rows.min(4) * LABEL_STEP } else { 0 };
    let (right, bottom) = (width - right, height - BOTTOM);
    let right = right.max(left + px(40));
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
    let is_rows = plot.marks.iter().any(|mark| matches!(mark.shape, Shape::Rows(_)));
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
        Shape::At(x, _) => {
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

/// The names of marks at their right ends, apart from each other, and of lines across at their tops.
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
            Shape::Bars(bars) => bars.last().map(|&(_, to, y)| (to, y)),
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
        text(area, label, (right + px(16), y), Color::Ink, HPos::Left, VPos::Center)?;
    }
    let across = plot.marks.iter().filter_map(|mark| match &mark.shape {
        Shape::At(x, label) => Some((at(plot.x.drawn(*x), plot.y.ends().1).0, label)),
        _ => None,
    });
    let across: Vec<(i32, &String)> = across.collect();
    let middle = (at(plot.x.ends().0, 0.0).0 + right) / 2;
    let rows = across.len().min(4) as i32;
    for (index, (x, label)) in across.into_iter().enumerate() {
        // To the side where there is room; rows so that no line crosses a label.
        let is_right = x > middle;
        let row = if is_right { index as i32 % rows } else { rows - 1 - index as i32 % rows };
        let y = top - px(4) - row * LABEL_STEP;
        let line = Color::Muted.rgb().stroke_width(UNIT);
        area.draw(&PathElement::new([(x, top), (x, y - px(8))], line))?;
        let (x, anchor) = if is_right { (x - px(4), HPos::Right) } else { (x + px(4), HPos::Left) };
        text(area, label, (x, y), Color::Ink, anchor, VPos::Bottom)?;
    }
    Ok(())
}

fn text(area: &Area<'_>, words: &str, at: (i32, i32), color: Color, h: HPos, v: VPos) -> Drawn {
    let color = color.rgb();
    let style = TextStyle::from(("sans-serif", TEXT_SIZE).into_font()).color(&color).pos(Pos::new(h, v));
    area.draw(&Text::new(words.to_owned(), at, style))
}
