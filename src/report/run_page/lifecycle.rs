//! Replicas that come and go over time, and what happened to them.

use maud::html;

use super::RunView;
use super::time_axis::TimeAxis;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, number};
use crate::page::{Section, count, definitions, figures, seconds};
use crate::report::lifecycle::{Happening, LifecycleTally};

/// Lines in the order of pools; further pools are in one with the last.
const COLORS: [Color; 4] = [Color::Blue, Color::Green, Color::Purple, Color::Brown];

/// A shape of places.
type Points = fn(Vec<(f64, f64)>) -> Shape;

/// `None` when all replicas are there all the time.
pub(super) fn section(view: &RunView<'_>) -> Option<Section> {
    let summary = view.summary.fleet.as_ref()?.lifecycle?;
    let tally = view.lifecycle?;
    let replica_time = |replica_s: f64| match replica_s {
        long if long >= 7_200.0 => format!("{:.1} replica-hours", long / 3_600.0),
        short => format!("{short:.0} replica-seconds"),
    };
    let facts = [
        ("Replicas that were ready, on average", format!("{:.2}", summary.mean_ready_replicas)),
        ("Least and most", format!("{} and {}", summary.least_ready_replicas, summary.most_ready_replicas)),
        ("Paid for", replica_time(summary.paid_replica_s)),
        ("Of that, ready", replica_time(summary.ready_replica_s)),
        ("Starts", count(summary.starts)),
        ("Failures", count(summary.failures)),
        ("Drained", count(summary.drains)),
        ("Requests on replicas that failed", count(summary.lost_requests)),
        ("Their tokens, in vain", count(summary.lost_output_tokens)),
    ];
    let body = html! {
        (figures(&[plot(view, tally)]))
        (definitions(&facts))
    };
    Some(Section::new("lifecycle", "Replicas that come and go", body))
}

/// Names of the pools with the number of each replica's; one without a name if there are none.
fn pools(view: &RunView<'_>) -> (Vec<String>, Vec<usize>) {
    let mut names: Vec<String> = Vec::new();
    let replicas = view.summary.fleet.iter().flat_map(|fleet| &fleet.replicas);
    let numbers = replicas.map(|replica| {
        let name = replica.pool.clone().unwrap_or_default();
        names.iter().position(|other| *other == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        })
    });
    let numbers = numbers.collect();
    (names, numbers)
}

fn plot(view: &RunView<'_>, tally: &LifecycleTally) -> Plot {
    let time = TimeAxis::of(view);
    let end_s = view.series.bins().len().max(1) as f64 * view.series.width_s();
    let (names, pool_of) = pools(view);
    let scale = time.axis_per_s();
    let mut ready = vec![0_u32; names.len()];
    tally.first_ready().for_each(|replica| ready[pool_of[replica]] += 1);
    let mut lines: Vec<Vec<(f64, f64)>> = ready.iter().map(|&ready| vec![(0.0, f64::from(ready))]).collect();
    let mut starts = vec![Vec::new(); names.len()];
    let (mut failures, mut drains) = (Vec::new(), Vec::new());
    let mut data = Table::new(2, &["what", "replica", &time.name, "ready"]);
    let mut highest = ready.iter().copied().max().unwrap_or(0);
    for (at, replica, happening) in tally.happenings().filter(|(at, ..)| at.as_secs_f64() <= end_s) {
        let pool = pool_of[replica as usize];
        let x = at.as_secs_f64() * scale;
        let before = f64::from(ready[pool]);
        ready[pool] = ready[pool].saturating_add_signed(happening.ready_change());
        highest = highest.max(ready[pool]);
        let after = f64::from(ready[pool]);
        if before != after {
            lines[pool].extend([(x, before), (x, after)]);
        }
        match happening {
            Happening::Ready => starts[pool].push((x, after)),
            Happening::Failed { .. } => failures.push((x, after)),
            Happening::Drains => drains.push((x, after)),
            Happening::Starts | Happening::Drained => {}
        }
        let name = match names[pool].as_str() {
            "" => replica.to_string(),
            name => format!("{replica} ({name})"),
        };
        let sum: u32 = ready.iter().sum();
        data.push([happening.name().to_owned(), name, number(x), count(u64::from(sum))]);
    }
    let lines = lines.into_iter().zip(&names).zip(&ready).enumerate();
    let color = |pool: usize| COLORS[pool.min(COLORS.len() - 1)];
    let mut marks: Vec<Mark> = lines
        .map(|(pool, ((mut line, name), &ready))| {
            line.push((end_s * scale, f64::from(ready)));
            let mark = Mark::new(color(pool), Shape::Line(line));
            if name.is_empty() { mark } else { mark.label(super::cache::shortened(name)) }
        })
        .collect();
    let dots =
        starts.into_iter().enumerate().map(|(pool, points)| (color(pool), points, Shape::Dots as Points));
    let rare = [(Color::Orange, drains, Shape::Rings as Points), (Color::Orange, failures, Shape::Triangles)];
    // Nothing is drawn of what never happened.
    let shown = dots.chain(rare).filter(|(_, points, _)| !points.is_empty());
    marks.extend(shown.map(|(color, points, shape)| Mark::new(color, shape(points))));
    Plot {
        title: "Replicas that are ready".to_owned(),
        description: format!(
            "Dots: a replica became ready. Triangles: one failed. Rings: one takes no more requests and goes \
             when it is done. Over {}.",
            seconds(end_s)
        ),
        x: time.axis.clone(),
        y: Axis::from_zero("replicas", f64::from(highest.max(1)) * 1.1),
        marks,
        data,
        nearest: Nearest::Nothing,
        size: Plot::SIZE,
    }
}
