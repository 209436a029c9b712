//! Charts of a plan: what candidates cost and how fast they are, and what they cost at other loads.

use super::fleet::{Counts, FleetSize};
use super::result::{Capacity, PlanResult};
use super::table::{candidate_name, rate_unit};
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped, sheet};

/// Loads of the chart over the load, as shares of the plan's.
const LOADS: std::ops::RangeInclusive<u32> = 1..=40;
const LOADS_PER_PLAN: f64 = 20.0;
/// More lines than these cannot be told apart.
const MOST_LINES: usize = 5;

/// `plan.svg`.
pub(super) fn file(result: &PlanResult) -> String {
    let num = result.candidates.iter().filter(|candidate| candidate.capacity().is_some()).count();
    let title = format!("{}: {num} candidates that meet the targets", result.name);
    sheet(&title, &cost_and_latency(result).map(|plot| vec![plot]).into_iter().collect::<Vec<_>>())
}

/// Cost per hour against latency, the front joined and its candidates and the recommended one named; `None`
/// where no candidate meets the targets.
pub(super) fn cost_and_latency(result: &PlanResult) -> Option<Plot> {
    let points: Vec<(f64, f64, usize, bool)> = result
        .candidates
        .iter()
        .enumerate()
        .filter_map(|(index, candidate)| {
            let capacity = candidate.capacity()?;
            let latency_ms = result.latency_ms(capacity);
            Some((capacity.fleet.cost_per_hour, latency_ms, index, candidate.is_on_front))
        })
        .collect();
    if points.is_empty() {
        return None;
    }
    let mut costs: Vec<f64> = points.iter().map(|it| it.0).collect();
    costs.sort_by(f64::total_cmp);
    costs.dedup();
    let highest = points.iter().map(|it| it.1).fold(0.0, f64::max);
    let mut front: Vec<(f64, f64, usize)> =
        points.iter().filter(|it| it.3).map(|it| (it.0, it.1, it.2)).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The best latency for all who pay so much: it changes at candidates.
    let corners = front.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), (pair[1].0, pair[1].1)]);
    let steps: Vec<(f64, f64)> = front.first().map(|it| (it.0, it.1)).into_iter().chain(corners).collect();
    let recommended = result.recommendation.as_ref().map(|it| it.candidate);
    let name = |index: usize| {
        let name = result.candidates[index].name.clone().unwrap_or_else(|| index.to_string());
        if recommended == Some(index) { format!("{name} (recommended)") } else { name }
    };
    let beaten = points.iter().filter(|it| !it.3).map(|it| (it.0, it.1)).collect();
    let mut marks = vec![
        Mark::new(Color::Grey, Shape::Dots(beaten)),
        Mark::new(Color::Orange, Shape::Line(steps)).faint(),
        Mark::new(Color::Orange, Shape::Dots(front.iter().map(|it| (it.0, it.1)).collect())),
    ];
    // Candidates at the same place share a label.
    for same in front.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        let names: Vec<String> = same.iter().map(|&(_, _, index)| name(index)).collect();
        marks.push(Mark::new(Color::Ink, Shape::Note(same[0].0, same[0].1, names.join(", "))));
    }
    let latency = format!("{} ms", result.latency_name());
    let mut data = Table::new(0, &["cost per hour", &latency, "candidate", "on the front"]);
    for &(x, y, index, is_on_front) in &points {
        let mark = if is_on_front { "yes" } else { "no" };
        data.push([grouped(x), grouped(y), name(index), mark.to_owned()]);
    }
    Some(Plot {
        title: "Cost and latency at the load".to_owned(),
        description: format!("{latency} over the cost of the fleet for an hour, spare replicas included."),
        x: Axis::over("cost per hour", &costs),
        y: Axis::around(&latency, 0.0, highest),
        marks,
        data,
        nearest: Nearest::Point,
        size: (Plot::WIDE, 380),
    })
}

/// Cost per hour over the load, of the cheapest candidates that were simulated as fleets.
pub(super) fn cost_over_load(result: &PlanResult) -> Option<Plot> {
    let mut shown: Vec<(usize, &Capacity)> = result
        .candidates
        .iter()
        .enumerate()
        .filter_map(|(index, candidate)| Some((index, candidate.capacity()?)))
        .filter(|(_, capacity)| !capacity.verified.is_empty())
        .collect();
    shown.sort_by(|a, b| a.1.fleet.cost_per_hour.total_cmp(&b.1.fleet.cost_per_hour));
    shown.truncate(MOST_LINES);
    let rate = result.rate.map_or(1.0, |(_, rate)| rate);
    let loads: Vec<f64> = LOADS.map(|step| f64::from(step) / LOADS_PER_PLAN).collect();
    let x_name = rate_unit(result);
    let names: Vec<String> = shown.iter().map(|&(index, _)| candidate_name(result, index)).collect();
    let mut head = vec![x_name.as_str()];
    head.extend(names.iter().map(String::as_str));
    let mut data = Table::new(0, &head);
    for &load in &loads {
        let costs = shown.iter().map(|(_, capacity)| format!("{:.2}", cost_at(result, capacity, load)));
        data.push(std::iter::once(grouped(load * rate)).chain(costs));
    }
    let mut highest = 0.0_f64;
    let mut marks = vec![Mark::new(Color::Muted, Shape::Upright(rate))];
    for (place, (index, capacity)) in shown.iter().enumerate() {
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for &load in &loads {
            let cost = cost_at(result, capacity, load);
            highest = highest.max(cost);
            // Replicas are whole: the cost stays until another is needed.
            if let Some(&(_, last)) = steps.last() {
                steps.push((load * rate, last));
            }
            steps.push((load * rate, cost));
        }
        let label = result.candidates[*index].name.clone().unwrap_or_else(|| index.to_string());
        marks.push(Mark::new(Color::series(place), Shape::Line(steps)).label(label));
    }
    (!shown.is_empty()).then(|| Plot {
        title: "Cost over the load".to_owned(),
        description:
            "What a fleet costs for an hour at other loads, headroom and spare replicas included, if each \
             replica takes as much as in the simulated fleet. The upright line is the plan's load."
                .to_owned(),
        x: Axis::from_zero(&x_name, 2.0 * rate),
        y: Axis::from_zero("cost per hour", highest),
        marks,
        data,
        nearest: Nearest::X,
        size: (Plot::WIDE, 320),
    })
}

/// With as much load for each replica as the simulated fleet was shown to take.
fn cost_at(result: &PlanResult, capacity: &Capacity, load: f64) -> f64 {
    let (fleet, settings) = (&capacity.fleet, &result.settings);
    let with_headroom = (1.0 + settings.headroom) / f64::from(fleet.counts.with_headroom.replicas);
    let taken = with_headroom.max(1.0 / f64::from(fleet.counts.at_least.replicas));
    let counts = Counts::of_capacity(taken / load, FleetSize::alike(1), settings);
    fleet.cost_per_hour / f64::from(fleet.replicas) * f64::from(counts.size().replicas)
}
