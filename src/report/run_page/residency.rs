//! How long blocks stay, and after how long they are asked for again.

use maud::html;

use super::RunView;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table};
use crate::page::{Section, count, figures, percent, seconds, table};
use crate::report::log_histogram::{DurationS, LogHistogram};

/// `None` where no block was handed out again nor hit twice.
pub(super) fn section(view: &RunView<'_>) -> Option<Section> {
    let spreads = view.spreads;
    let kv = &view.summary.kv_cache;
    let all = [
        (
            "Age at eviction",
            "From a block's first content to its being handed out again.",
            &spreads.lifetimes,
            Color::Purple,
        ),
        (
            "Idle time before eviction",
            "From the last hit to being handed out again: the longer, the less was lost.",
            &spreads.idle_times,
            Color::Purple,
        ),
        (
            "Reuse gap",
            "Between two hits on one block. Gaps longer than blocks stay idle are hits that a larger cache \
             would have.",
            &spreads.reuse_gaps,
            Color::Green,
        ),
    ];
    let plots: Vec<Plot> = all
        .into_iter()
        .filter_map(|(title, about, spread, color)| plot(title, about, spread, color))
        .collect();
    if plots.is_empty() {
        return None;
    }
    let mut durations = Table::new(1, &["durations", "values", "mean", "p10", "p50", "p90", "p99", "max"]);
    let mut push = |name: &str, of: &DurationS| {
        let figures = [of.mean_s, of.p10_s, of.p50_s, of.p90_s, of.p99_s, of.max_s];
        durations.push([name.to_owned(), count(of.count)].into_iter().chain(figures.map(seconds)));
    };
    push("age at eviction", &kv.block_lifetime);
    push("idle before eviction", &kv.idle_before_eviction);
    push("reuse gap", &kv.reuse_gap);
    let body = html! {
        p { "Every block that was handed out again, with content or without, and every hit. A bar is a factor of two." }
        (figures(&plots))
        (table(&durations))
    };
    Some(Section::new("residency", "How long blocks stay", body))
}

fn plot(title: &str, about: &str, spread: &LogHistogram, color: Color) -> Option<Plot> {
    let octaves = spread.octaves();
    let (first, last) = (octaves.first()?, octaves.last()?);
    let total = spread.total() as f64;
    let at_once = match spread.zeros() {
        0 => String::new(),
        zeros => format!(" {} at the same moment are not drawn.", percent(zeros as f64 / total)),
    };
    let s = |ns: u64| ns as f64 / 1e9;
    let mut data = Table::new(0, &["from, s", "below, s", "values", "share, %"]);
    let mut bars = Vec::new();
    for octave in &octaves {
        let share = 100.0 * octave.count as f64 / total;
        let ends = (s(octave.begin_ns), s(2 * octave.begin_ns));
        // A little room between bars, which are equally wide as drawn.
        bars.push((ends.0 * 1.03, ends.1 / 1.03, share));
        data.push([
            crate::chart::grouped(ends.0),
            crate::chart::grouped(ends.1),
            count(octave.count),
            format!("{share:.2}"),
        ]);
    }
    let tallest = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    Some(Plot {
        title: title.to_owned(),
        description: format!("{about}{at_once}"),
        x: Axis::logarithmic("time, s", s(first.begin_ns), s(2 * last.begin_ns)),
        y: Axis::from_zero("share, %", tallest),
        marks: vec![Mark::new(color, Shape::Bars(bars))],
        data,
        nearest: Nearest::Span,
        size: Plot::SIZE,
    })
}
