//! Predicted against measured values.

use super::axis::Axis;
use super::palette::Color;
use super::plot::{Mark, Nearest, Plot, Shape};
use super::table::Table;

/// Of the band around equality, either way.
const BAND: f64 = 1.2;

/// Points that have something in common.
pub struct Group {
    pub label: String,
    pub color: Color,
    /// Measured and predicted.
    pub points: Vec<(f64, f64)>,
}

/// Both on logarithmic axes, with the line where they are equal and 20 % to either side. `unit` is that
/// of all values.
pub fn predicted_against_measured(title: String, unit: &str, groups: Vec<Group>) -> Plot {
    let all = || groups.iter().flat_map(|group| &group.points).flat_map(|&(x, y)| [x, y]);
    let low = all().fold(f64::INFINITY, f64::min) / 1.3;
    let high = all().fold(0.0, f64::max) * 1.3;
    let line = |factor: f64| {
        let (from, to) = (low.max(low / factor), high.min(high / factor));
        vec![(from, from * factor), (to, to * factor)]
    };
    let mut marks = vec![
        Mark::new(Color::Ink, Shape::Line(line(1.0))).faint(),
        Mark::new(Color::Grey, Shape::Dashed(line(BAND))),
        Mark::new(Color::Grey, Shape::Dashed(line(1.0 / BAND))),
    ];
    let count = groups.iter().map(|group| group.points.len()).sum::<usize>();
    marks.extend(
        groups
            .into_iter()
            .map(|group| Mark::new(group.color, Shape::Dots(group.points)).faint().label(group.label)),
    );
    Plot {
        title,
        description: format!("{count} values. The line is where both are equal, dashed 20 % to either side."),
        x: Axis::logarithmic(format!("measured, {unit}"), low, high),
        y: Axis::logarithmic(format!("predicted, {unit}"), low, high),
        marks,
        data: Table::default(),
        nearest: Nearest::Nothing,
        size: (Plot::WIDTH, 420),
    }
}
