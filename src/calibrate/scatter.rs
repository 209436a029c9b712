//! Predicted against measured times, one plot per operation.

use super::evaluate::{Evaluated, Sample};
use crate::chart::{Color, Group, predicted_against_measured, sheet};

/// An SVG of all rows of one operation on one GPU.
pub fn scatter_plot(evaluated: &Evaluated) -> String {
    let title = format!("{} on {}", evaluated.operation.replace('_', " "), evaluated.gpu);
    let errors = evaluated.errors();
    let in_scope = format!(
        "{}: {:.1} % median, {:.1} % p90, {} rows",
        evaluated.scope, errors.median_percent, errors.p90_percent, errors.rows
    );
    let group = |label: &str, color, is_in_scope| {
        let samples = evaluated.samples.iter().filter(|sample: &&Sample| sample.is_in_scope == is_in_scope);
        let points = samples.map(|sample| (sample.measured_us, sample.predicted_us)).collect();
        Group { label: label.to_owned(), color, points }
    };
    let groups = [group("other rows", Color::Orange, false), group("in scope", Color::Blue, true)];
    let groups = groups.into_iter().filter(|group| !group.points.is_empty()).collect();
    let plot = predicted_against_measured(title.clone(), "µs", groups);
    sheet(&format!("{title}; {in_scope}"), &[vec![plot]])
}
