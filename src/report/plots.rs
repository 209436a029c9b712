//! `hit_rate.svg` and `kv_usage.svg`.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::ReportError;
use super::timeseries::Timeseries;

pub(crate) const WIDTH: u32 = 960;
const HEIGHT: u32 = 480;
// Okabe and Ito's colours, which the colour-blind can tell apart.
pub(crate) const BLUE: RGBColor = RGBColor(0, 114, 178);
pub(crate) const ORANGE: RGBColor = RGBColor(213, 94, 0);
pub(crate) const GREEN: RGBColor = RGBColor(0, 158, 115);
pub(crate) const INK: RGBColor = RGBColor(51, 51, 51);
pub(crate) const GRID: RGBColor = RGBColor(225, 225, 225);

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

struct Line<'a> {
    label: &'a str,
    color: RGBColor,
    width: u32,
    points: Vec<(f64, f64)>,
}

impl Line<'_> {
    /// A value is drawn at the end of its bin; the first one also at the begin, so that a run of one
    /// bin shows something.
    fn with_begin(mut self, bin_width_s: f64) -> Self {
        if let Some(&(at_s, value)) = self.points.first() {
            self.points.insert(0, (at_s - bin_width_s, value));
        }
        self
    }
}

/// Share of looked-up tokens that were found, over time.
pub(super) fn hit_rate(name: &str, series: &Timeseries) -> Result<String, ReportError> {
    let (mut queries, mut hits) = (0, 0);
    let mut lines = [
        Line { label: "in each bin", color: GREEN, width: 1, points: Vec::new() },
        Line { label: "last 1,000 requests (vLLM's log)", color: ORANGE, width: 2, points: Vec::new() },
        Line { label: "since the start (vLLM's counters)", color: BLUE, width: 2, points: Vec::new() },
    ];
    let per_cent = |hits: u64, queries: u64| (queries > 0).then(|| 100.0 * hits as f64 / queries as f64);
    for (at_s, bin) in bins(series) {
        queries += bin.queries_tokens;
        hits += bin.hits_tokens;
        let rates = [
            per_cent(bin.hits_tokens, bin.queries_tokens),
            per_cent(bin.moving_hits_tokens, bin.moving_queries_tokens),
            per_cent(hits, queries),
        ];
        for (line, rate) in lines.iter_mut().zip(rates) {
            line.points.extend(rate.map(|rate| (at_s, rate)));
        }
    }
    let lines = lines.map(|line| line.with_begin(series.width_s()));
    // Where the lines at the end leave room.
    let legend =
        if 2 * hits > queries { SeriesLabelPosition::LowerRight } else { SeriesLabelPosition::UpperRight };
    let title = format!("{name}: prefix cache hit rate");
    draw("hit_rate.svg", &title, HEIGHT, |area| {
        chart(area, &title, "hit tokens, %", Some(100.0), &lines, legend)
    })
}

/// Share of blocks that requests hold, and how many requests run and wait, over time.
/// `usable_blocks` are those of each replica, without its null block.
pub(super) fn kv_usage(
    name: &str,
    series: &Timeseries,
    usable_blocks: &[u32],
) -> Result<String, ReportError> {
    let blocks = usable_blocks.iter().map(|&blocks| f64::from(blocks)).sum::<f64>();
    let num_gpu_blocks = usable_blocks.iter().map(|blocks| blocks + 1).sum::<u32>();
    let line = |label, color, width, value: &dyn Fn(&super::timeseries::Bin) -> f64| {
        let points = bins(series).map(|(at_s, bin)| (at_s, value(bin))).collect();
        Line { label, color, width, points }.with_begin(series.width_s())
    };
    let usage = [
        line("most in each bin", BLUE, 1, &|bin| 100.0 * f64::from(bin.peak_used_blocks) / blocks),
        line("at its end (vLLM's gauge)", BLUE, 2, &|bin| 100.0 * f64::from(bin.used_blocks) / blocks),
    ];
    // Apart, because a queue can be a hundred times as long as the batch.
    let running = [line("running", GREEN, 2, &|bin| f64::from(bin.running))];
    let waiting = [line("waiting", ORANGE, 2, &|bin| f64::from(bin.waiting))];
    let title = format!("{name}: KV cache in use, of {num_gpu_blocks} blocks");
    draw("kv_usage.svg", &title, 3 * HEIGHT / 2, |area| {
        let legend = SeriesLabelPosition::UpperRight;
        let (top, rest) = area.split_vertically(HEIGHT / 2);
        let (middle, bottom) = rest.split_vertically(HEIGHT / 2);
        chart(&top, &title, "blocks held by requests, %", Some(100.0), &usage, legend.clone())?;
        chart(&middle, "Running requests", "requests", None, &running, legend.clone())?;
        chart(&bottom, "Waiting requests", "requests", None, &waiting, legend)
    })
}

/// The bins with the times of their ends, in seconds.
fn bins(series: &Timeseries) -> impl Iterator<Item = (f64, &super::timeseries::Bin)> {
    let width_s = series.width_s();
    series.bins().iter().enumerate().map(move |(index, bin)| ((index + 1) as f64 * width_s, bin))
}

/// The text of an SVG that screen readers announce by its title.
pub(crate) fn draw(
    file_name: &'static str,
    title: &str,
    height: u32,
    content: impl for<'a> FnOnce(&Area<'a>) -> Result<(), DrawError<'a>>,
) -> Result<String, ReportError> {
    let mut svg = String::new();
    let failed = |message: String| ReportError::Draw { path: file_name.into(), message };
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
        content(&area).map_err(|error| failed(error.to_string()))?;
        area.present().map_err(|error| failed(error.to_string()))?;
    }
    let title = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Ok(svg.replacen("<svg ", "<svg role=\"img\" ", 1).replacen(
        ">\n",
        &format!(">\n<title>{title}</title>\n"),
        1,
    ))
}

fn chart<'a>(
    area: &Area<'a>,
    title: &str,
    y_name: &str,
    y_max: Option<f64>,
    lines: &[Line<'_>],
    legend: SeriesLabelPosition,
) -> Result<(), DrawError<'a>> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let x_max = all().map(|point| point.0).fold(1.0, f64::max);
    let y_max = y_max.unwrap_or_else(|| all().map(|point| point.1).fold(1.0, f64::max) * 1.1);
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let mut chart = ChartBuilder::on(area)
        .caption(title, text(18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..x_max, 0.0..y_max)?;
    chart
        .configure_mesh()
        .x_desc("simulated time, s")
        .y_desc(y_name)
        .label_style(text(13))
        .axis_desc_style(text(14))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|value| format!("{value:.*}", decimals(x_max)))
        .y_label_formatter(&|value| format!("{value:.*}", decimals(y_max)))
        .draw()?;
    for line in lines {
        // A thin line is background to the others.
        let style = line.color.mix(if line.width == 1 { 0.4 } else { 1.0 }).stroke_width(line.width);
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), style))?
            .label(line.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    if lines.len() == 1 {
        // The axis names it.
        return Ok(());
    }
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(text(13))
        .draw()
}

/// Of the labels of an axis with some ten of them.
fn decimals(max: f64) -> usize {
    usize::from(max < 10.0)
}
