//! Predicted against measured, and the spread of errors, as SVG.

use std::collections::BTreeMap;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Metric, Outcome};

const WIDTH: u32 = 720;
const HEIGHT: u32 = 560;
const INK: RGBColor = RGBColor(51, 51, 51);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Okabe and Ito's colours, which the colour-blind can tell apart.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// A point for each run that has the figure, one colour for each GPU; `None` without runs.
pub(super) fn scatter(outcomes: &[Outcome], metric: Metric, title: &str) -> Option<Result<String, String>> {
    let mut points: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for outcome in outcomes {
        if let Some(comparison) = outcome.comparisons.get(&metric) {
            let gpu = outcome.run.settings.gpu.as_str();
            points.entry(gpu).or_default().push((comparison.measured, comparison.predicted));
        }
    }
    let all = || points.values().flatten().flat_map(|&(x, y)| [x, y]);
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    (high > 0.0).then(|| draw(title, |area| scatter_chart(area, title, &points, low * 0.8, high * 1.25)))
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// `950`, `1.2k`: enough to read an axis.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value >= 1e3 => format!("{:.1}k", value / 1e3),
        value if value >= 10.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

fn scatter_chart<'a>(
    area: &Area<'a>,
    title: &str,
    points: &BTreeMap<&str, Vec<(f64, f64)>>,
    low: f64,
    high: f64,
) -> Result<(), DrawError<'a>> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, text(18))
        .margin(12)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d((low..high).log_scale(), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_labels(6)
        .y_labels(6)
        .x_desc("measured, ms")
        .y_desc("predicted, ms")
        .label_style(text(13))
        .axis_desc_style(text(14))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short(*value))
        .draw()?;
    // Equal, and 20 % to either side.
    for (factor, style) in
        [(1.0, INK.stroke_width(1)), (1.2, GRID.stroke_width(2)), (1.0 / 1.2, GRID.stroke_width(2))]
    {
        let ends = [(low, low * factor), (high, high * factor)];
        let inside = ends.map(|(x, y)| (x, y.clamp(low, high)));
        // A clamped end moves along the line to where it leaves the chart.
        let ends = [
            (if inside[0].1 > ends[0].1 { low / factor } else { low }, inside[0].1),
            (if inside[1].1 < ends[1].1 { high / factor } else { high }, inside[1].1),
        ];
        chart.draw_series(std::iter::once(PathElement::new(ends, style)))?;
    }
    for ((gpu, points), color) in points.iter().zip(COLORS.iter().cycle()) {
        let style = color.mix(0.55).filled();
        chart
            .draw_series(points.iter().map(|&point| Circle::new(point, 3, style)))?
            .label(format!("{gpu} ({})", points.len()))
            .legend(move |(x, y)| Circle::new((x + 9, y), 4, style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(text(13))
        .draw()
}

/// The text of an SVG that screen readers announce by its title.
fn draw(
    title: &str,
    content: impl for<'a> FnOnce(&Area<'a>) -> Result<(), DrawError<'a>>,
) -> Result<String, String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        content(&area).map_err(|error| error.to_string())?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(svg.replacen("<svg ", "<svg role=\"img\" ", 1).replacen(
        ">\n",
        &format!(">\n<title>{title}</title>\n"),
        1,
    ))
}
