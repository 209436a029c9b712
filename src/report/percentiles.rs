//! Exact percentiles of all values, by nearest rank: the smallest value that at least so many per
//! cent of the values do not exceed.

use serde::Serialize;

use super::distribution::Distribution;

/// In milliseconds; all 0 without values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyMs {
    pub count: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl LatencyMs {
    /// Sorts the values, which are nanoseconds.
    pub fn of_ns(values: &mut [u64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_unstable();
        let ms = |ns: u64| ns as f64 / 1e6;
        let rank = |per_cent: usize| ms(values[(values.len() * per_cent).div_ceil(100) - 1]);
        let sum: u128 = values.iter().map(|&ns| u128::from(ns)).sum();
        Self {
            count: values.len() as u64,
            mean_ms: sum as f64 / values.len() as f64 / 1e6,
            p50_ms: rank(50),
            p90_ms: rank(90),
            p95_ms: rank(95),
            p99_ms: rank(99),
            max_ms: ms(values[values.len() - 1]),
        }
    }

    /// The same of nanoseconds that are counted already.
    pub(super) fn of_distribution(values: &Distribution) -> Self {
        let total = values.total();
        if total == 0 {
            return Self::default();
        }
        let ms = |ns: u64| ns as f64 / 1e6;
        let rank = |per_cent: u64| ms(values.at_rank((total * per_cent).div_ceil(100)));
        Self {
            count: total,
            mean_ms: values.sum() as f64 / total as f64 / 1e6,
            p50_ms: rank(50),
            p90_ms: rank(90),
            p95_ms: rank(95),
            p99_ms: rank(99),
            max_ms: ms(values.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_stand_for_so_many_values(counts in prop::collection::vec((0u64..50, 1u64..9), 0..20)) {
            let repeat = |&(ns, count): &(u64, u64)| std::iter::repeat_n(ns, count as usize);
            let mut values: Vec<u64> = counts.iter().flat_map(repeat).collect();
            let counted = Distribution::of_counts(counts);
            prop_assert_eq!(LatencyMs::of_distribution(&counted), LatencyMs::of_ns(&mut values));
        }
    }

    #[test]
    fn percentiles_are_values_at_their_nearest_rank() {
        let mut values: Vec<u64> = (1..=10).rev().map(|i| i * 1_000_000).collect();
        let latency = LatencyMs::of_ns(&mut values);
        assert_eq!((latency.p50_ms, latency.p90_ms, latency.p95_ms, latency.p99_ms), (5.0, 9.0, 10.0, 10.0));
        assert_eq!((latency.mean_ms, latency.max_ms, latency.count), (5.5, 10.0, 10));
        assert_eq!(LatencyMs::of_ns(&mut [7_000_000]).p50_ms, 7.0);
        assert_eq!(LatencyMs::of_ns(&mut []), LatencyMs::default());
    }
}
