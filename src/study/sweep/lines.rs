//! How the points of a sweep are laid out in a plot.

use super::labels::{labels, value};
use super::plan::Plan;
use super::results::Results;

/// Which field goes along the axis, and which lines the points form.
pub(super) struct Lines {
    pub x: String,
    /// Rising.
    pub x_values: Vec<f64>,
    /// The points of each line in the order of x, with its name.
    pub lines: Vec<(String, Vec<usize>)>,
}

impl Lines {
    /// `None` unless one or two of the fields are numbers that vary.
    pub fn of(results: &Results) -> Option<Self> {
        let plan = &results.plan;
        let mut numeric = numeric_fields(plan);
        // The one with most values; of equals the first.
        numeric.sort_by_key(|(_, values)| std::cmp::Reverse(values.len()));
        let (x, x_values) = match &numeric[..] {
            [first] | [first, _] => first.clone(),
            _ => return None,
        };
        let others: Vec<&str> = plan.fields.iter().filter(|field| *field != x).map(String::as_str).collect();
        let names = labels(&others);
        let mut lines: Vec<(String, Vec<usize>)> = Vec::new();
        for (index, point) in plan.points.iter().enumerate() {
            let parts = others
                .iter()
                .zip(&names)
                .map(|(field, name)| format!("{name} {}", value(point.fields.get(*field))));
            let name = parts.collect::<Vec<_>>().join(", ");
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, points)) => points.push(index),
                None => lines.push((name, vec![index])),
            }
        }
        let x_of = |index: &usize| plan.points[*index].fields.get(x).and_then(serde_json::Value::as_f64);
        for (_, points) in &mut lines {
            points.sort_by(|a, b| x_of(a).partial_cmp(&x_of(b)).unwrap_or(std::cmp::Ordering::Equal));
        }
        Some(Self { x: x.clone(), x_values, lines })
    }
}

/// The fields that are numbers at all points and vary, each with its values, rising.
pub(super) fn numeric_fields(plan: &Plan) -> Vec<(&String, Vec<f64>)> {
    let numbers_of = |field: &String| {
        let numbers = plan.points.iter().map(|point| point.fields.get(field)?.as_f64());
        let mut numbers = numbers.collect::<Option<Vec<f64>>>()?;
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        (numbers.len() > 1).then_some(numbers)
    };
    plan.fields.iter().filter_map(|field| Some((field, numbers_of(field)?))).collect()
}
