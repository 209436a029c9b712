//! Percentiles by nearest rank: the smallest value that at least so many per cent of the values do not
//! exceed.

use hdrhistogram::Histogram;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::units::SimTime;

/// The unit is part of the name of the field that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles<T> {
    pub count: u64,
    pub mean: f64,
    pub min: T,
    pub p10: T,
    pub p50: T,
    pub p90: T,
    pub p99: T,
    pub max: T,
}

const PER_CENT: [u64; 4] = [10, 50, 90, 99];

impl Percentiles<u64> {
    /// Of values in ascending order with their counts. `None` without values.
    pub fn of_counts(counts: impl Iterator<Item = (u64, u64)> + Clone) -> Option<Self> {
        let (count, sum) = counts.clone().fold((0, 0_u128), |(count, sum), (value, n)| {
            (count + n, sum + u128::from(value) * u128::from(n))
        });
        let (min, _) = counts.clone().next()?;
        let mut ranks = PER_CENT.map(|per_cent| (count * per_cent).div_ceil(100)).into_iter().peekable();
        let (mut seen, mut max) = (0, min);
        let mut values = Vec::with_capacity(PER_CENT.len());
        for (value, n) in counts {
            seen += n;
            max = value;
            while ranks.next_if(|&rank| rank <= seen).is_some() {
                values.push(value);
            }
        }
        let [p10, p50, p90, p99] = values[..] else { return None };
        Some(Self { count, mean: sum as f64 / count as f64, min, p10, p50, p90, p99, max })
    }

    /// Each value multiplied.
    pub fn times(self, factor: u64) -> Self {
        Self {
            count: self.count,
            mean: self.mean * factor as f64,
            min: self.min * factor,
            p10: self.p10 * factor,
            p50: self.p50 * factor,
            p90: self.p90 * factor,
            p99: self.p99 * factor,
            max: self.max * factor,
        }
    }
}

/// Whole numbers of which few differ, such as lengths. Exact.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(FxHashMap<u64, u64>);

impl Values {
    pub fn add(&mut self, value: u64) {
        *self.0.entry(value).or_default() += 1;
    }

    pub fn percentiles(&self) -> Option<Percentiles<u64>> {
        let mut counts: Vec<(u64, u64)> = self.0.iter().map(|(&value, &count)| (value, count)).collect();
        counts.sort_unstable();
        Percentiles::of_counts(counts.into_iter())
    }
}

/// Times, in bounded memory: percentiles are within 0.1 % of a value; mean, least and largest are
/// exact.
#[derive(Clone, Debug)]
pub(super) struct Times {
    histogram: Histogram<u64>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, u64::MAX >> 1, 3);
        let histogram = histogram.expect("three significant digits of such numbers are allowed");
        Self { histogram, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }
}

impl Times {
    /// Adds a time so many times.
    pub fn add(&mut self, time: SimTime, count: u64) {
        let ns = time.as_ns();
        self.histogram.saturating_record_n(ns, count);
        self.sum_ns += u128::from(ns) * u128::from(count);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// In seconds. `None` without values.
    pub fn percentiles(&self) -> Option<Percentiles<f64>> {
        let count = self.histogram.len();
        if count == 0 {
            return None;
        }
        let seconds = |ns: u64| ns as f64 / 1e9;
        let at = |per_cent: u64| {
            let ns = self.histogram.value_at_quantile(per_cent as f64 / 100.0);
            seconds(ns.clamp(self.min_ns, self.max_ns))
        };
        let [p10, p50, p90, p99] = PER_CENT.map(at);
        Some(Percentiles {
            count,
            mean: self.sum_ns as f64 / count as f64 / 1e9,
            min: seconds(self.min_ns),
            p10,
            p50,
            p90,
            p99,
            max: seconds(self.max_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_at_their_nearest_rank() {
        let mut values = Values::default();
        (1..=10).rev().for_each(|value| values.add(value));
        let all = values.percentiles().unwrap();
        assert_eq!((all.count, all.mean, all.min, all.max), (10, 5.5, 1, 10));
        assert_eq!([all.p10, all.p50, all.p90, all.p99], [1, 5, 9, 10]);
        values = Values::default();
        values.add(7);
        assert_eq!(values.percentiles().unwrap().p10, 7);
        assert_eq!(Values::default().percentiles(), None);
        assert_eq!(Percentiles::of_counts([(2, 99), (3, 1)].into_iter()).unwrap().p99, 2);
        assert_eq!(Percentiles::of_counts([(2, 98), (3, 2)].into_iter()).unwrap().p99, 3);
    }

    #[test]
    fn times_are_within_a_thousandth() {
        let mut times = Times::default();
        (1..=1000).for_each(|ms| times.add(SimTime::from_ms(ms), 2));
        let all = times.percentiles().unwrap();
        assert_eq!((all.count, all.mean, all.min, all.max), (2000, 0.5005, 0.001, 1.0));
        for (found, exact) in [(all.p10, 0.1), (all.p50, 0.5), (all.p90, 0.9), (all.p99, 0.99)] {
            assert!((found / exact - 1.0_f64).abs() < 1e-3, "{found} {exact}");
        }
    }
}
