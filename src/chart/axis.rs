//! How numbers, or names, lie along an axis.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

use super::number::tick;

/// About so many ticks.
const TICKS: f64 = 6.0;
/// From this ratio on an axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 8.0;
/// Ticks at each value, if there are no more.
const MAX_VALUE_TICKS: usize = 8;

/// An axis of numbers, or of their logarithms.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it measures, with the unit.
    pub name: String,
    is_logarithmic: bool,
    /// As drawn, the logarithm taken.
    begin: f64,
    end: f64,
    /// Where, and what is written there.
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From `low` to `high` as they are.
    pub fn exact(name: impl Into<String>, low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let step = step(high - low);
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        let ticks = (first..=last).map(|index| index as f64 * step).map(|value| (value, tick(value)));
        Self { name: name.into(), is_logarithmic: false, begin: low, end: high, ticks: ticks.collect() }
    }

    /// From 0 to a tick that is not below `max`.
    pub fn from_zero(name: impl Into<String>, max: f64) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = step(max);
        Self::exact(name, 0.0, (max / step - 1e-9).ceil() * step)
    }

    /// Around values; from 0 where that leaves room for differences.
    pub fn around(name: impl Into<String>, low: f64, high: f64) -> Self {
        if low > high || (low == 0.0 && high == 0.0) {
            return Self::from_zero(name, 1.0);
        }
        if low >= 0.0 && low < 0.6 * high {
            return Self::from_zero(name, high * 1.02);
        }
        // Differences in the last digits are no picture.
        let span = (high - low).max(high.abs() * 0.05).max(1e-6);
        Self::exact(name, low - 0.1 * span, high + 0.1 * span)
    }

    /// On logarithms, between two positive values, with a decade of room at least.
    pub fn logarithmic(name: impl Into<String>, low: f64, high: f64) -> Self {
        let low = low.max(f64::MIN_POSITIVE);
        let high = high.max(low * 1.01);
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let span = (high / low).log10();
        let steps: &[f64] = match span {
            span if span > 3.5 => &[1.0],
            span if span > 1.5 => &[1.0, 3.0],
            _ => &[1.0, 2.0, 3.0, 5.0, 7.0],
        };
        let every = if span > 7.0 { 2 } else { 1 };
        let all = decades
            .filter(|decade| decade.rem_euclid(every) == 0)
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
        let ticks = all.filter(|value| (low * 0.999..=high * 1.001).contains(value));
        let ticks = ticks.map(|value| (value.log10(), tick(value))).collect();
        Self { name: name.into(), is_logarithmic: true, begin: low.log10(), end: high.log10(), ticks }
    }

    /// Over rising values, logarithmic where they lie far apart.
    pub fn over(name: impl Into<String>, values: &[f64]) -> Self {
        let (Some(&first), Some(&last)) = (values.first(), values.last()) else {
            return Self::from_zero(name, 1.0);
        };
        let is_logarithmic = first > 0.0 && values.len() > 2 && last / first >= LOGARITHMIC_FROM;
        let mut axis = if is_logarithmic {
            Self::logarithmic(name, first, last)
        } else {
            Self::exact(name, first, last)
        };
        let margin = (axis.end - axis.begin).max(1e-9) * 0.03;
        axis.begin -= margin;
        axis.end += margin;
        axis
    }

    /// The same with a tick at each value, if they are few.
    pub fn at(name: impl Into<String>, values: &[f64]) -> Self {
        let axis = Self::over(name, values);
        if values.len() > MAX_VALUE_TICKS {
            return axis;
        }
        let ticks = values.iter().map(|&value| (axis.drawn(value), tick(value))).collect();
        Self { ticks, ..axis }
    }

    /// Names at 0, 1, 2 ...; so many of them are written.
    pub fn names(name: impl Into<String>, names: &[String], most: usize) -> Self {
        let every = names.len().div_ceil(most.max(1)).max(1);
        let ticks = names.iter().enumerate().step_by(every).map(|(at, name)| (at as f64, name.clone()));
        Self {
            name: name.into(),
            is_logarithmic: false,
            begin: -0.6,
            end: names.len().max(1) as f64 - 0.4,
            ticks: ticks.collect(),
        }
    }

    /// The first name, or the smallest number, at the top.
    pub fn downwards(self) -> Self {
        Self { begin: self.end, end: self.begin, ..self }
    }

    pub fn is_logarithmic(&self) -> bool {
        self.is_logarithmic
    }

    pub(super) fn drawn(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value }
    }

    /// The value at a share of the way from the begin to the end.
    pub fn value_at(&self, share: f64) -> f64 {
        let drawn = self.begin + share * (self.end - self.begin);
        if self.is_logarithmic { 10_f64.powf(drawn) } else { drawn }
    }

    /// The share of the way from the begin to the end at which a value is drawn.
    pub fn share_at(&self, value: f64) -> f64 {
        (self.drawn(value) - self.begin) / (self.end - self.begin)
    }

    /// As drawn.
    pub(super) fn ends(&self) -> (f64, f64) {
        (self.begin, self.end)
    }

    pub(super) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    /// Takes what is drawn.
    fn map(&self, drawn: &f64, (low, high): (i32, i32)) -> i32 {
        let share = ((drawn - self.begin) / (self.end - self.begin)).clamp(0.0, 1.0);
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.begin..self.end
    }
}

/// 1, 2 or 5 times a power of ten, that about [`TICKS`] of which are `span`.
fn step(span: f64) -> f64 {
    let rough = span / TICKS;
    let decade = 10_f64.powi(rough.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * decade >= rough * 0.999);
    step.unwrap_or(10.0) * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(labels(&Axis::from_zero("", 97.0)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&Axis::from_zero("", 0.9)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(labels(&Axis::exact("", 3.0, 7.2)), ["3", "4", "5", "6", "7"]);
        assert_eq!(labels(&Axis::from_zero("", 0.0)), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(
            labels(&Axis::logarithmic("", 5.0, 3_000.0)),
            ["10", "30", "100", "300", "1,000", "3,000"]
        );
        assert_eq!(labels(&Axis::at("", &[16.0, 32.0, 256.0])), ["16", "32", "256"]);
    }

    #[test]
    fn values_far_apart_are_drawn_by_their_logarithms() {
        assert!(Axis::over("", &[1.0, 10.0, 100.0]).is_logarithmic());
        assert!(!Axis::over("", &[1.0, 2.0, 3.0]).is_logarithmic());
        assert!(!Axis::over("", &[0.0, 10.0, 100.0]).is_logarithmic());
        let axis = Axis::logarithmic("", 1.0, 100.0);
        assert_eq!(axis.map(&axis.drawn(10.0), (0, 200)), 100);
        assert!((axis.value_at(0.5) - 10.0).abs() < 1e-9);
    }
}
