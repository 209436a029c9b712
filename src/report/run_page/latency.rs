//! How latencies spread.

use maud::html;

use super::RunView;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped};
use crate::page::{Section, count, figures, percent, seconds, table};
use crate::report::Goodput;
use crate::report::distribution::Distribution;
use crate::report::percentiles::LatencyMs;

const BINS: usize = 48;
/// Spread over more than this ratio, values are drawn on a logarithmic axis.
const LOGARITHMIC_FROM: f64 = 12.0;
const HEIGHT: u32 = 210;

/// `None` where nothing finished.
pub(super) fn section(view: &RunView<'_>) -> Option<Section> {
    let latency = &view.summary.latency;
    if latency.e2e.count == 0 {
        return None;
    }
    let spreads = [
        ("Time to first token", "TTFT", "From arrival to the first output token.", &view.spreads.ttft),
        (
            "Time per output token",
            "TPOT",
            "After the first token, a value for each request.",
            &view.spreads.tpot,
        ),
        ("Inter-token latency", "ITL", "Between one output of a request and the next.", &view.spreads.itl),
        ("End to end", "E2E", "From arrival to the last output token.", &view.spreads.e2e),
        ("Queue", "Queue", "From arrival to the first scheduled token.", &view.spreads.queue),
    ];
    let plots: Vec<Plot> = spreads
        .into_iter()
        .filter(|(_, _, _, values)| values.total() > 0)
        .flat_map(|(name, short, about, values)| plots(name, short, about, values))
        .collect();
    let body = html! {
        p { "Of the requests that finished. The time of clients, HTTP and tokenizers is not in them." }
        (table(&percentiles(view)))
        @if let Some(goodput) = &view.summary.goodput {
            p {
                strong { "Goodput: " (format!("{:.2}", goodput.requests_per_s)) " requests/s. " }
                (percent(goodput.share)) " of all requests keep " (goodput.promise()) "."
                @if goodput.good_requests < goodput.requests {
                    " Of " (count(goodput.requests)) " requests " (goodput.misses()) "."
                }
            }
            @if !goodput.by_tenant.is_empty() { (table(&by_tenant(goodput))) }
        }
        (figures(&plots))
    };
    Some(Section::new("latency", "Latency", body))
}

fn by_tenant(goodput: &Goodput) -> Table {
    let mut table = Table::new(1, &["tenant", "requests", "good", "share"]);
    for tenant in &goodput.by_tenant {
        table.push([
            tenant.name.clone(),
            count(tenant.requests),
            count(tenant.good_requests),
            percent(tenant.share),
        ]);
    }
    table
}

fn percentiles(view: &RunView<'_>) -> Table {
    let latency = &view.summary.latency;
    let mut table = Table::new(1, &["latency, ms", "values", "mean", "p50", "p90", "p95", "p99", "max"]);
    let mut push = |name: &str, of: &LatencyMs| {
        let figures = [of.mean_ms, of.p50_ms, of.p90_ms, of.p95_ms, of.p99_ms, of.max_ms];
        let cells = figures.map(|ms| if ms >= 1_000.0 { grouped(ms.round()) } else { format!("{ms:.2}") });
        table.push([name.to_owned(), count(of.count)].into_iter().chain(cells));
    };
    push("time to first token", &latency.ttft);
    push("time per output token", &latency.tpot);
    push("inter-token latency", &latency.itl);
    push("end to end", &latency.e2e);
    push("queue", &latency.queue);
    table
}

/// How many values lie where, and how many are not above.
fn plots(name: &str, short: &str, about: &str, values: &Distribution) -> [Plot; 2] {
    // Zeros have no place on a logarithmic axis, and would be one tall bar on another.
    let zeros = values.zeros();
    let low = values.quantile((zeros as f64 + 0.001 * values.total() as f64) / values.total() as f64).max(1);
    let high = values.max().max(low);
    let (unit, unit_ns) = if high >= 10_000_000_000 { ("s", 1e9) } else { ("ms", 1e6) };
    let axis_name = format!("{short}, {unit}");
    let is_logarithmic = high as f64 / low as f64 > LOGARITHMIC_FROM;
    let (from, to) = (low as f64 / unit_ns, high as f64 / unit_ns);
    let axis = if is_logarithmic {
        Axis::logarithmic(&axis_name, from, to)
    } else {
        Axis::exact(&axis_name, from - 0.02 * (to - from), to)
    };
    let ends: Vec<f64> = (0..=BINS).map(|bin| axis.value_at(bin as f64 / BINS as f64)).collect();
    let mut edges: Vec<u64> = ends.iter().map(|end| (end * unit_ns).round() as u64).collect();
    edges[BINS] = high;
    let total = values.total() as f64;
    // What lies below the first edge belongs to the first bin, save for the zeros.
    let mut counts = values.histogram(&edges);
    counts[1] += counts[0] - zeros.min(counts[0]);
    let bars: Vec<(f64, f64, f64)> = (1..=BINS)
        .filter(|&bin| counts[bin] > 0)
        .map(|bin| (ends[bin - 1], ends[bin], 100.0 * counts[bin] as f64 / total))
        .collect();
    let tallest = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    let cumulative: Vec<(f64, f64)> = (0..=BINS)
        .map(|bin| {
            (ends[bin], 100.0 * if bin == 0 { zeros } else { values.up_to(edges[bin]) } as f64 / total)
        })
        .collect();

    let unit_head = |what: &str| format!("{what}, {unit}");
    let mut data =
        Table::new(0, &[&unit_head("above"), &unit_head("up to"), "values", "share, %", "not above, %"]);
    for bin in 1..=BINS {
        data.push([
            grouped(ends[bin - 1]),
            grouped(ends[bin]),
            count(counts[bin]),
            format!("{:.2}", 100.0 * counts[bin] as f64 / total),
            format!("{:.2}", cumulative[bin].1),
        ]);
    }
    let without_zeros = if zeros > 0 {
        format!(" {} are 0 and not drawn.", percent(zeros as f64 / total))
    } else {
        String::new()
    };
    let color = Color::Blue;
    let quantiles = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99")];
    let at = |share: f64| values.quantile(share) as f64 / unit_ns;
    let marks = quantiles.into_iter().filter(|&(share, _)| at(share) >= ends[0]).map(|(share, name)| {
        let value = seconds(values.quantile(share) as f64 / 1e9);
        Mark::new(Color::Ink, Shape::At(at(share), format!("{name} {value}"))).faint()
    });
    let histogram = Plot {
        title: name.to_owned(),
        description: format!("{about}{without_zeros}"),
        x: axis.clone(),
        y: Axis::from_zero("share of values, %", tallest),
        marks: std::iter::once(Mark::new(color, Shape::Bars(bars))).chain(marks).collect(),
        data,
        nearest: Nearest::Span,
        size: (Plot::WIDTH, HEIGHT),
    };
    let points = quantiles.map(|(share, _)| (at(share).max(ends[0]), 100.0 * share));
    let notes = quantiles
        .into_iter()
        .zip(points)
        .map(|((_, name), (x, y))| Mark::new(Color::Ink, Shape::Note(x, y - 9.0, name.to_owned())));
    let mut cdf_data = Table::new(0, &[&unit_head(short), "not above, %"]);
    for &(value, share) in &cumulative {
        cdf_data.push([grouped(value), format!("{share:.2}")]);
    }
    let cdf = Plot {
        title: format!("{name}, cumulative"),
        description: format!("Share of the {} values that are not above.", count(values.total())),
        x: axis,
        y: Axis::exact("not above, %", 0.0, 100.0),
        marks: [Mark::new(color, Shape::Line(cumulative)), Mark::new(color, Shape::Dots(points.to_vec()))]
            .into_iter()
            .chain(notes)
            .collect(),
        data: cdf_data,
        nearest: Nearest::X,
        size: (Plot::WIDTH, HEIGHT),
    };
    [histogram, cdf]
}
