//! How the points of a sweep are laid out in a plot.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

use super::labels::{labels, value};
use super::results::Results;
use crate::study::format::number;

/// Ticks at each value, if there are no more.
const MAX_TICKS: usize = 10;
/// From this ratio on an axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 8.0;

/// Which field goes along the axis, and which lines the points form.
pub(super) struct Lines {
    pub x: String,
    /// Rising.
    pub x_values: Vec<f64>,
    /// The points of each line in the order of x, with its name.
    pub lines: Vec<(String, Vec<usize>)>,
    /// The second number that varies, with its ends: the colour where there are too many lines.
    pub color: Option<(String, f64, f64)>,
}

impl Lines {
    /// `None` unless one or two of the fields are numbers that vary.
    pub fn of(results: &Results) -> Option<Self> {
        let plan = &results.plan;
        let numbers_of = |field: &String| {
            let numbers = plan.points.iter().map(|point| point.fields.get(field)?.as_f64());
            let mut numbers = numbers.collect::<Option<Vec<f64>>>()?;
            numbers.sort_by(f64::total_cmp);
            numbers.dedup();
            (numbers.len() > 1).then_some(numbers)
        };
        let mut numeric: Vec<(&String, Vec<f64>)> =
            plan.fields.iter().filter_map(|field| Some((field, numbers_of(field)?))).collect();
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
        let color =
            numeric.get(1).map(|(field, values)| ((*field).clone(), values[0], values[values.len() - 1]));
        Some(Self { x: x.clone(), x_values, lines, color })
    }
}

/// An axis of numbers, of their logarithms where they lie far apart.
#[derive(Clone)]
pub(in crate::study) struct Axis {
    is_logarithmic: bool,
    /// As drawn, the logarithm taken.
    begin: f64,
    end: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// From the rising values that lie on it, with ticks at them if they are few.
    pub fn of(values: &[f64]) -> Self {
        let axis = Self::round(values);
        if values.len() <= MAX_TICKS { Self { ticks: values.to_vec(), ..axis } } else { axis }
    }

    /// The same with ticks at round numbers.
    pub fn round(values: &[f64]) -> Self {
        let (first, last) = (values[0], values[values.len() - 1]);
        let is_logarithmic = first > 0.0 && values.len() > 2 && last / first >= LOGARITHMIC_FROM;
        let drawn = |value: f64| if is_logarithmic { value.log10() } else { value };
        let margin = (drawn(last) - drawn(first)).max(1e-9) * 0.03;
        let ticks = if is_logarithmic {
            let decades = first.log10().floor() as i32..=last.log10().ceil() as i32;
            let steps: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
            all.filter(|tick| (first..=last).contains(tick)).collect()
        } else {
            RangedCoordf64::from(first..last).key_points(MAX_TICKS)
        };
        Self { is_logarithmic, begin: drawn(first) - margin, end: drawn(last) + margin, ticks }
    }

    pub fn drawn(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.log10() } else { value }
    }

    /// As drawn.
    pub fn span(&self) -> f64 {
        self.end - self.begin
    }

    /// As drawn, with the margins.
    pub fn ends(&self) -> (f64, f64) {
        (self.begin, self.end)
    }

    /// The number at a tick.
    pub fn label(&self, drawn: f64) -> String {
        // Back to a number without the noise of the logarithm.
        let value = if self.is_logarithmic { 10_f64.powf(drawn) } else { drawn };
        let nearest = self.ticks.iter().min_by(|a, b| (*a - value).abs().total_cmp(&(*b - value).abs()));
        tick(*nearest.unwrap_or(&value))
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value - self.begin) / (self.end - self.begin);
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|&tick| self.drawn(tick)).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.begin..self.end
    }
}

/// Without zeros at the end.
pub(in crate::study) fn tick(value: f64) -> String {
    let text = number(value);
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
