//! Where the time of steps goes.

use maud::html;

use super::RunView;
use super::time_axis::TimeAxis;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped};
use crate::cost::StepTime;
use crate::page::{Section, count, figures, percent, seconds, table};
use crate::report::timeseries::Bin;

type Part = (&'static str, Color, fn(&StepTime) -> u64);

/// The parts of a step on the GPU, in the order in which they are stacked.
const PARTS: [Part; 9] = [
    ("matrix products", Color::Blue, |time| time.gemm_ns),
    ("attention", Color::Orange, |time| time.attention_ns),
    ("experts", Color::Purple, |time| time.moe_ns),
    ("collectives", Color::Brown, |time| time.comms_ns),
    ("element-wise", Color::Sky, |time| time.elementwise_ns),
    ("sampler", Color::Green, |time| time.sampler_ns),
    ("drafts", Color::Ink, |time| time.drafts_ns),
    ("launch gaps", Color::Grey, |time| time.launch_ns),
    ("not told apart", Color::Muted, |time| time.other_ns),
];

/// `None` without steps.
pub(super) fn section(view: &RunView<'_>) -> Option<Section> {
    let steps = &view.summary.steps;
    if steps.count == 0 {
        return None;
    }
    let plots = [busy(view), of_a_step(view)];
    let body = html! {
        p {
            (count(steps.count)) " steps of " (format!("{:.1}", steps.mean_tokens)) " tokens and "
            (format!("{:.1}", steps.mean_requests)) " requests on average. The GPU computed in "
            (percent(steps.gpu_busy)) " of the run. With asynchronous scheduling the host plans a step while \
            the GPU runs the one before."
        }
        @if steps.extrapolated > 0.0 {
            p {
                (percent(steps.extrapolated)) " of the GPU's time is extrapolated: steps with more tokens or longer "
                "contexts than were measured for the cost profile."
            }
        }
        (table(&totals(view)))
        (figures(&plots))
    };
    Some(Section::new("steps", "Where the time of steps goes", body))
}

fn totals(view: &RunView<'_>) -> Table {
    let mut table = Table::new(
        1,
        &[
            "part of a step",
            "total",
            "of the GPU's time, %",
            "with prefill, µs a step",
            "decode only, µs a step",
        ],
    );
    let [with_prefill, decode_only] = view.spreads.step_times;
    let gpu_ns = (with_prefill.time.gpu_ns() + decode_only.time.gpu_ns()).max(1);
    let each = |of: fn(&StepTime) -> u64| {
        [&with_prefill, &decode_only].map(|sum| match sum.steps {
            0 => "–".to_owned(),
            steps => grouped((of(&sum.time) as f64 / steps as f64 / 1e3).round()),
        })
    };
    let total = |of: fn(&StepTime) -> u64| of(&with_prefill.time) + of(&decode_only.time);
    for (name, _, of) in PARTS.into_iter().filter(|(_, _, of)| total(*of) > 0) {
        let share = 100.0 * total(of) as f64 / gpu_ns as f64;
        let row = [name.to_owned(), seconds(total(of) as f64 / 1e9), format!("{share:.1}")];
        table.push(row.into_iter().chain(each(of)));
    }
    let whole = ["all on the GPU".to_owned(), seconds(gpu_ns as f64 / 1e9), "100.0".to_owned()];
    table.push(whole.into_iter().chain(each(StepTime::gpu_ns)));
    let host = ["host".to_owned(), seconds(total(|time| time.host_ns) as f64 / 1e9), "–".to_owned()];
    table.push(host.into_iter().chain(each(|time| time.host_ns)));
    let steps = ["steps".to_owned(), count(with_prefill.steps + decode_only.steps), "–".to_owned()];
    table.push(steps.into_iter().chain([count(with_prefill.steps), count(decode_only.steps)]));
    table
}

/// The parts that took time, each with its name.
fn parts_of(view: &RunView<'_>) -> Vec<Part> {
    let is_there = |part: &Part| view.series.bins().iter().any(|bin| (part.2)(&bin.time) > 0);
    PARTS.into_iter().filter(is_there).collect()
}

/// Parts on top of each other at the end of each bin; `value` of a part in nanoseconds.
fn stacked(view: &RunView<'_>, time: &TimeAxis, value: impl Fn(&Bin, u64) -> f64) -> Vec<Mark> {
    let parts = parts_of(view);
    let below = |bin: &Bin, until: usize| parts[..until].iter().map(|(_, _, of)| of(&bin.time)).sum::<u64>();
    let band = |(index, (name, color, _)): (usize, &Part)| {
        let lows = time.points(view, |bin| Some(value(bin, below(bin, index))));
        let highs = time.points(view, |bin| Some(value(bin, below(bin, index + 1))));
        let band = lows.iter().zip(&highs).map(|(&(x, low), &(_, high))| (x, low, high)).collect();
        Mark::new(*color, Shape::Band(band)).label(*name)
    };
    parts.iter().enumerate().map(band).collect()
}

fn data(view: &RunView<'_>, time: &TimeAxis, unit: &str, value: impl Fn(&Bin, u64) -> f64) -> Table {
    let parts = parts_of(view);
    let heads: Vec<String> = parts.iter().map(|(name, _, _)| format!("{name}, {unit}")).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    time.table(view, &heads, |bin| {
        parts.iter().map(|(_, _, of)| format!("{:.2}", value(bin, of(&bin.time)))).collect()
    })
}

fn busy(view: &RunView<'_>) -> Plot {
    let time = TimeAxis::of(view);
    let gpus = view.info.usable_blocks().len() as f64;
    let width_ns = view.series.width_s() * 1e9 * gpus;
    // A step counts in the bin in which it ends.
    let share = move |_: &Bin, ns: u64| (100.0 * ns as f64 / width_ns).min(100.0);
    Plot {
        title: "How busy the GPU is".to_owned(),
        description:
            "Share of the time in which the GPU runs steps, by what it does. A step counts where it ends."
                .to_owned(),
        x: time.axis.clone(),
        y: Axis::exact("of the time, %", 0.0, 100.0),
        marks: stacked(view, &time, share),
        data: data(view, &time, "%", share),
        nearest: Nearest::X,
        size: (Plot::WIDTH, 300),
    }
}

fn of_a_step(view: &RunView<'_>) -> Plot {
    let time = TimeAxis::of(view);
    let mean_ms = |bin: &Bin, ns: u64| if bin.steps == 0 { 0.0 } else { ns as f64 / bin.steps as f64 / 1e6 };
    let highest = view.series.bins().iter().map(|bin| mean_ms(bin, bin.time.gpu_ns())).fold(0.0, f64::max);
    Plot {
        title: "What a step consists of".to_owned(),
        description: "Mean time on the GPU of the steps in each bin of time, by what it goes to.".to_owned(),
        x: time.axis.clone(),
        y: Axis::from_zero("a step, ms", highest),
        marks: stacked(view, &time, mean_ms),
        data: data(view, &time, "ms", mean_ms),
        nearest: Nearest::X,
        size: (Plot::WIDTH, 300),
    }
}
