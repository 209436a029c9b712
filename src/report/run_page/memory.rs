//! The KV cache and its queue over time.

use maud::html;

use super::RunView;
use super::time_axis::TimeAxis;
use crate::chart::{Axis, Color, Nearest, Plot, tick};
use crate::page::{Section, count, figures};
use crate::report::timeseries::Bin;

pub(super) fn section(view: &RunView<'_>) -> Section {
    let mut plots = vec![usage(view), queues(view)];
    // What never happened is no picture.
    if view.summary.requests.preemptions > 0 {
        plots.push(preemptions(view));
    }
    if view.summary.kv_cache.evictions > 0 {
        plots.push(evictions(view));
    }
    let body = html! {
        (figures(&plots))
        @if view.summary.requests.preemptions == 0 {
            p.muted { "No request was preempted: there were blocks for all that ran." }
        }
        @if view.summary.kv_cache.evictions == 0 {
            p.muted { "No cached block was evicted." }
        }
    };
    Section::new("memory", "KV cache and queue", body)
}

pub(super) fn usage(view: &RunView<'_>) -> Plot {
    let time = TimeAxis::of(view);
    let blocks = view.info.usable_blocks().into_iter().map(f64::from).sum::<f64>();
    let share = move |used: u32| 100.0 * f64::from(used) / blocks;
    Plot {
        title: "KV cache held by requests".to_owned(),
        description:
            "Share of the blocks: at the end of each bin, as vLLM's gauge shows it, and the most at any \
                      time in it. Cached blocks that no request holds count as free."
                .to_owned(),
        x: time.axis.clone(),
        y: Axis::from_zero("blocks, %", (110.0 * view.summary.kv_cache.usage_peak).clamp(5.0, 100.0)),
        marks: vec![
            time.line(view, Color::Blue, move |bin| share(bin.peak_used_blocks)).faint().label("most"),
            time.line(view, Color::Blue, move |bin| share(bin.used_blocks)).label("at the end"),
        ],
        data: time.table(view, &["at the end, %", "most, %"], |bin| {
            vec![format!("{:.1}", share(bin.used_blocks)), format!("{:.1}", share(bin.peak_used_blocks))]
        }),
        nearest: Nearest::X,
        size: Plot::SIZE,
    }
}

fn most(view: &RunView<'_>, value: impl Fn(&Bin) -> f64) -> f64 {
    view.series.bins().iter().map(value).fold(0.0, f64::max)
}

pub(super) fn queues(view: &RunView<'_>) -> Plot {
    let time = TimeAxis::of(view);
    let highest = most(view, |bin| f64::from(bin.running.max(bin.waiting)));
    Plot {
        title: "Running and waiting requests".to_owned(),
        description: "At the end of each bin: requests in the batch, and requests that wait to be admitted."
            .to_owned(),
        x: time.axis.clone(),
        y: Axis::from_zero("requests", highest),
        marks: vec![
            time.line(view, Color::Orange, |bin| f64::from(bin.waiting)).label("waiting"),
            time.line(view, Color::Green, |bin| f64::from(bin.running)).label("running"),
        ],
        data: time.table(view, &["running", "waiting"], |bin| {
            vec![count(u64::from(bin.running)), count(u64::from(bin.waiting))]
        }),
        nearest: Nearest::X,
        size: Plot::SIZE,
    }
}

fn preemptions(view: &RunView<'_>) -> Plot {
    let total = view.summary.requests.preemptions;
    let description =
        format!("{} times a running request was put back for want of blocks, and began again.", count(total));
    counts(view, "Preemptions", description, "preemptions", Color::Orange, |bin| bin.preemptions)
}

fn evictions(view: &RunView<'_>) -> Plot {
    let total = view.summary.kv_cache.evictions;
    let description = format!("{} cached blocks lost their content to make room for others.", count(total));
    counts(view, "Evictions", description, "blocks", Color::Purple, |bin| bin.evictions)
}

/// What happened in each bin.
fn counts(
    view: &RunView<'_>,
    title: &str,
    description: String,
    name: &str,
    color: Color,
    value: fn(&Bin) -> u64,
) -> Plot {
    let time = TimeAxis::of(view);
    let highest = most(view, |bin| value(bin) as f64);
    Plot {
        title: format!("{title} over time"),
        description,
        x: time.axis.clone(),
        y: Axis::from_zero(format!("{name} in {} s", tick(view.series.width_s())), highest.max(5.0)),
        marks: vec![time.steps(view, color, |bin| value(bin) as f64)],
        data: time.table(view, &[name], |bin| vec![count(value(bin))]),
        nearest: Nearest::X,
        size: Plot::SIZE,
    }
}
