//! Metrics over each of three or more fields that vary, when no two of them can be a plot's axis and its lines.

use super::labels::labels;
use super::lines::numeric_fields;
use super::results::Results;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped};

/// A mean over fewer points with the same value says little of the field.
const LEAST_POINTS_OF_A_MEAN: usize = 2;

/// A plot of the metric at `position` over each field: all points, and their mean where several have the same value.
pub(super) fn over_each(results: &Results, position: usize, label: &str) -> Vec<Plot> {
    let fields = numeric_fields(&results.plan);
    let names: Vec<&str> = fields.iter().map(|(field, _)| field.as_str()).collect();
    let plots = fields.iter().zip(labels(&names));
    plots.map(|((field, values), name)| over_one(results, position, label, field, values, &name)).collect()
}

fn over_one(
    results: &Results,
    position: usize,
    label: &str,
    field: &str,
    values: &[f64],
    name: &str,
) -> Plot {
    let of_point = |index: usize| {
        let x = results.plan.points[index].fields.get(field)?.as_f64()?;
        Some((x, results.points[index].metrics[position]?.estimate.mean))
    };
    let points: Vec<(f64, f64)> = (0..results.points.len()).filter_map(of_point).collect();
    let means: Vec<(f64, f64)> = values
        .iter()
        .filter_map(|&x| {
            let alike: Vec<f64> = points.iter().filter(|point| point.0 == x).map(|point| point.1).collect();
            (alike.len() >= LEAST_POINTS_OF_A_MEAN)
                .then(|| (x, alike.iter().sum::<f64>() / alike.len() as f64))
        })
        .collect();
    let low = points.iter().map(|point| point.1).fold(f64::MAX, f64::min);
    let high = points.iter().map(|point| point.1).fold(f64::MIN, f64::max);
    let mut data = Table::new(0, &[name, label]);
    for &(x, y) in &points {
        data.push([x, y].map(grouped));
    }
    let mut marks = vec![Mark::new(Color::Grey, Shape::Dots(points))];
    let mut description =
        format!("{} over {field}, whatever the other fields are.", results.plan.metrics[position]);
    if means.len() > 1 {
        marks.push(Mark::new(Color::Blue, Shape::Line(means.clone())));
        marks.push(Mark::new(Color::Blue, Shape::Dots(means)).label("mean"));
        description += " The line joins the means of the points with the same value.";
    }
    Plot {
        title: format!("{label} over {name}"),
        description,
        x: Axis::at(name, values),
        y: Axis::around(label, low, high),
        marks,
        data,
        nearest: Nearest::Point,
        size: (Plot::WIDTH, 280),
    }
}
