//! Metrics over each of three or more fields that vary, when no two of them can be a plot's axis and its lines.

use std::collections::BTreeMap;

use super::labels::{labels, value};
use super::lines::numeric_fields;
use super::results::Results;
use crate::chart::{Axis, Color, Mark, Nearest, Plot, Shape, Table, grouped};

/// A plot of the metric at `position` over each field: all points, and the means of those that differ in it alone.
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
    let plan = &results.plan;
    let of_point = |index: usize| {
        let x = plan.points[index].fields.get(field)?.as_f64()?;
        Some((x, results.points[index].metrics[position]?.estimate.mean))
    };
    let points: Vec<(f64, f64)> = (0..results.points.len()).filter_map(of_point).collect();
    // Points that differ in this field alone; those that lack a value, as random ones do, would bend the means.
    let mut alike: BTreeMap<Vec<String>, Vec<(f64, f64)>> = BTreeMap::new();
    for (index, point) in plan.points.iter().enumerate() {
        let others = plan.fields.iter().filter(|other| *other != field);
        let key = others.map(|other| value(point.fields.get(other))).collect();
        alike.entry(key).or_default().extend(of_point(index));
    }
    alike.retain(|_, points| values.iter().all(|x| points.iter().any(|point| point.0 == *x)));
    let mean_at = |&x: &f64| {
        let here = || alike.values().flatten().filter(|point| point.0 == x).map(|point| point.1);
        (x, here().sum::<f64>() / here().count() as f64)
    };
    let means: Vec<(f64, f64)> =
        if alike.is_empty() { Vec::new() } else { values.iter().map(mean_at).collect() };
    let low = points.iter().map(|point| point.1).fold(f64::MAX, f64::min);
    let high = points.iter().map(|point| point.1).fold(f64::MIN, f64::max);
    let mut data = Table::new(0, &[name, label]);
    for &(x, y) in &points {
        data.push([x, y].map(grouped));
    }
    let mut marks = vec![Mark::new(Color::Grey, Shape::Dots(points))];
    let mut description = format!("{} over {field}, whatever the other fields are.", plan.metrics[position]);
    if !means.is_empty() {
        marks.push(Mark::new(Color::Blue, Shape::Line(means.clone())));
        marks.push(Mark::new(Color::Blue, Shape::Dots(means)).label("mean"));
        description += " The line joins the means over the settings of the others that have all values.";
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
