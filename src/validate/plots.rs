//! Predicted against measured, as plots.

use std::collections::BTreeMap;

use super::{Metric, Outcome};
use crate::chart::{Color, Group, Plot, predicted_against_measured};

/// A point for each run that has the figure, one colour for each GPU; `None` without runs.
pub(super) fn scatter(outcomes: &[Outcome], metric: Metric, title: &str) -> Option<Plot> {
    let mut points: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for outcome in outcomes {
        if let Some(comparison) = outcome.comparisons.get(&metric) {
            let gpu = outcome.run.settings.gpu.as_str();
            points.entry(gpu).or_default().push((comparison.measured, comparison.predicted));
        }
    }
    if points.is_empty() {
        return None;
    }
    let groups = points.into_iter().enumerate().map(|(index, (gpu, points))| Group {
        label: format!("{gpu} ({})", points.len()),
        color: Color::series(index),
        points,
    });
    Some(predicted_against_measured(title.to_owned(), "ms", groups.collect()))
}
