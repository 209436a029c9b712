//! `plan.svg`: what candidates cost and how fast they are.

use plotters::prelude::*;

use super::PlanError;
use super::result::PlanResult;
use crate::report::plots::{BLUE, INK, ORANGE, draw};
use crate::study::sweep::Axis;

const HEIGHT: u32 = 520;
const TITLE_HEIGHT: u32 = 40;

/// Cost per hour against latency, the front joined and the recommended candidate in a ring.
pub(super) fn cost_and_latency(result: &PlanResult) -> Result<String, PlanError> {
    let points: Vec<(f64, f64, usize, bool)> = result
        .candidates
        .iter()
        .enumerate()
        .filter_map(|(index, candidate)| {
            let capacity = candidate.capacity()?;
            Some((capacity.fleet.cost_per_hour, result.latency_ms(capacity), index, candidate.is_on_front))
        })
        .collect();
    let title =
        format!("{}: cost and latency of {} candidates that meet the targets", result.name, points.len());
    let mut costs: Vec<f64> = points.iter().map(|it| it.0).collect();
    costs.sort_by(f64::total_cmp);
    costs.dedup();
    let highest = points.iter().map(|it| it.1).fold(0.0, f64::max);
    let mut front: Vec<(f64, f64)> = points.iter().filter(|it| it.3).map(|it| (it.0, it.1)).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    // The best latency for all who pay so much: it changes at candidates.
    let corners = front.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    let steps: Vec<(f64, f64)> = front.first().copied().into_iter().chain(corners).collect();
    let recommended = result.recommendation.as_ref().map(|it| it.candidate);
    Ok(draw("plan.svg", &title, HEIGHT, |area| {
        let (top, rest) = area.split_vertically(TITLE_HEIGHT);
        top.titled(&title, ("sans-serif", 18).into_font().color(&INK))?;
        if costs.is_empty() {
            return Ok(());
        }
        let axis = Axis::round(&costs);
        let latency = format!("{} at the load, ms", result.latency_name());
        let mut chart = crate::study::sweep::chart(
            &rest,
            &latency,
            "cost per hour, spare replicas included",
            &axis,
            (0.0, 1.12 * highest.max(1e-6)),
        )?;
        let steps = steps.iter().map(|&(x, y)| (axis.drawn(x), y));
        chart.draw_series(LineSeries::new(steps, ORANGE.stroke_width(1)))?;
        // Candidates at the same place share a label.
        let mut places: Vec<(f64, f64, bool, Vec<usize>)> = Vec::new();
        for &(x, y, index, on_front) in &points {
            match places.iter_mut().find(|place| place.0 == x && place.1 == y) {
                Some(place) => place.3.push(index),
                None => places.push((x, y, on_front, vec![index])),
            }
        }
        for (x, y, on_front, indices) in &places {
            let names: Vec<String> = indices
                .iter()
                .map(|&index| result.candidates[index].name.clone().unwrap_or_else(|| index.to_string()))
                .collect();
            let color = if *on_front { ORANGE } else { BLUE };
            let label = Text::new(names.join(", "), (7, -16), ("sans-serif", 12).into_font().color(&INK));
            let place = EmptyElement::at((axis.drawn(*x), *y));
            chart.draw_series([place + Circle::new((0, 0), 4, color.filled()) + label])?;
            if recommended.is_some_and(|index| indices.contains(&index)) {
                let place = EmptyElement::at((axis.drawn(*x), *y));
                chart.draw_series([place + Circle::new((0, 0), 8, INK.stroke_width(2))])?;
            }
        }
        Ok(())
    })?)
}
