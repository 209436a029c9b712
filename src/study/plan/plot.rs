//! `plan.svg`: what candidates cost and how fast they are.

use super::result::PlanResult;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped, sheet};

/// Cost per hour against latency, the front joined and its candidates and the recommended one named.
pub(super) fn cost_and_latency(result: &PlanResult) -> String {
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
    let title = format!("{}: {} candidates that meet the targets", result.name, points.len());
    if points.is_empty() {
        return sheet(&title, &[]);
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
    let plot = Plot {
        title: "Cost and latency at the load".to_owned(),
        description: format!("{latency} over the cost of the fleet for an hour, spare replicas included."),
        x: Axis::over("cost per hour", &costs),
        y: Axis::around(&latency, 0.0, highest),
        marks,
        data,
        nearest: Nearest::Point,
        size: (Plot::WIDE, 380),
    };
    sheet(&title, &[vec![plot]])
}
