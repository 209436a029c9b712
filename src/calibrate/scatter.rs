//! Predicted against measured times, one plot per operation.

use std::path::PathBuf;

use plotters::prelude::*;

use super::CalibrateError;
use super::evaluate::{Evaluated, Sample};

const WIDTH: u32 = 640;
const HEIGHT: u32 = 560;
// Okabe and Ito's colours, which the colour-blind can tell apart.
const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const GREY: RGBColor = RGBColor(170, 170, 170);
const INK: RGBColor = RGBColor(51, 51, 51);
const GRID: RGBColor = RGBColor(230, 230, 230);
/// The band of the plot, either way.
const BAND: f64 = 1.2;

/// An SVG of all rows of one operation on one GPU.
///
/// # Errors
/// [`CalibrateError::Draw`].
pub fn scatter_plot(evaluated: &Evaluated) -> Result<String, CalibrateError> {
    let mut svg = String::new();
    draw(evaluated, &mut svg).map_err(|message| CalibrateError::Draw {
        path: PathBuf::from(format!("{} {}", evaluated.gpu, evaluated.operation)),
        message,
    })?;
    let title = title(evaluated);
    Ok(svg.replacen("<svg ", "<svg role=\"img\" ", 1).replacen(
        ">\n",
        &format!(">\n<title>{title}</title>\n"),
        1,
    ))
}

fn title(evaluated: &Evaluated) -> String {
    format!("{} on {}", evaluated.operation.replace('_', " "), evaluated.gpu)
}

fn draw(evaluated: &Evaluated, svg: &mut String) -> Result<(), String> {
    let failed = |error: DrawingAreaErrorKind<_>| -> String { format!("{error:?}") };
    let times = || evaluated.samples.iter().flat_map(|sample| [sample.measured_us, sample.predicted_us]);
    let low = times().fold(f64::INFINITY, f64::min) / 1.3;
    let high = times().fold(0.0, f64::max) * 1.3;
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title(evaluated), text(18))
        .margin(14)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d((low..high).log_scale(), (low..high).log_scale())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc("measured, us")
        .y_desc("predicted, us")
        .label_style(text(13))
        .axis_desc_style(text(14))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&short)
        .y_label_formatter(&short)
        .draw()
        .map_err(failed)?;
    // The band of 20 % either way, and the line where both are equal.
    for (factor, color) in [(1.0, INK), (BAND, GREY), (1.0 / BAND, GREY)] {
        let (from, to) = (low.max(low / factor), high.min(high / factor));
        let line = [(from, from * factor), (to, to * factor)];
        chart.draw_series(LineSeries::new(line, color.stroke_width(1))).map_err(failed)?;
    }
    let errors = evaluated.errors();
    let in_scope = format!(
        "{}: {:.1} % median, {:.1} % p90, {} rows",
        evaluated.scope, errors.median_percent, errors.p90_percent, errors.rows
    );
    for (label, color, is_in_scope) in [("other rows", ORANGE, false), (&in_scope, BLUE, true)] {
        let of_kind = |sample: &&Sample| sample.is_in_scope == is_in_scope;
        let samples: Vec<&Sample> = evaluated.samples.iter().filter(of_kind).collect();
        if samples.is_empty() {
            continue;
        }
        let dots = samples.iter().map(|sample| {
            Circle::new((sample.measured_us, sample.predicted_us), 2, color.mix(0.45).filled())
        });
        chart
            .draw_series(dots)
            .map_err(failed)?
            .label(label)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, color.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(text(13))
        .draw()
        .map_err(failed)?;
    area.present().map_err(failed)
}

/// Microseconds without needless digits.
fn short(value: &f64) -> String {
    if *value >= 1.0 { format!("{value:.0}") } else { format!("{value}") }
}
