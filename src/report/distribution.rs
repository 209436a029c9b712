//! How values spread.

use rayon::slice::ParallelSliceMut;

/// So many are worth the help of other threads, which in a study simulate other points meanwhile.
const LARGE: usize = 1 << 22;

/// Each value once, rising, with how many are not above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Distribution {
    up_to: Vec<(u64, u64)>,
}

impl Distribution {
    /// Of values in rising order.
    pub fn of_sorted(values: &[u64]) -> Self {
        let runs = values.chunk_by(|a, b| a == b);
        Self::of_rising(runs.map(|run| (run[0], run.len() as u64)).collect())
    }

    /// Of values in any order, and how often each is there. Of a long run of many replicas they are tens of
    /// millions.
    pub fn of_counts(mut counts: Vec<(u64, u64)>) -> Self {
        if counts.len() < LARGE {
            counts.sort_unstable_by_key(|count| count.0);
        } else {
            counts.par_sort_unstable_by_key(|count| count.0);
        }
        counts.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 += if is_same { next.1 } else { 0 };
            is_same
        });
        Self::of_rising(counts)
    }

    fn of_rising(mut counts: Vec<(u64, u64)>) -> Self {
        let mut total = 0;
        for (_, count) in &mut counts {
            total += *count;
            *count = total;
        }
        Self { up_to: counts }
    }

    pub fn total(&self) -> u64 {
        self.up_to.last().map_or(0, |last| last.1)
    }

    pub fn max(&self) -> u64 {
        self.up_to.last().map_or(0, |last| last.0)
    }

    /// Of all values together.
    pub fn sum(&self) -> u128 {
        let mut before = 0;
        let sum_of = |&(value, up_to): &(u64, u64)| {
            u128::from(value) * u128::from(up_to - std::mem::replace(&mut before, up_to))
        };
        self.up_to.iter().map(sum_of).sum()
    }

    /// How many are 0.
    pub fn zeros(&self) -> u64 {
        self.up_to.first().filter(|first| first.0 == 0).map_or(0, |first| first.1)
    }

    /// How many are not above a value.
    pub fn up_to(&self, value: u64) -> u64 {
        let after = self.up_to.partition_point(|entry| entry.0 <= value);
        after.checked_sub(1).map_or(0, |last| self.up_to[last].1)
    }

    /// The smallest value that at least `rank` of all do not exceed.
    pub fn at_rank(&self, rank: u64) -> u64 {
        let at = self.up_to.partition_point(|entry| entry.1 < rank);
        self.up_to.get(at).map_or(self.max(), |entry| entry.0)
    }

    /// The smallest value that this share of all do not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        self.at_rank((share * self.total() as f64).ceil().max(1.0) as u64)
    }

    /// How many are in each bin, which ends with its edge; edges rise. What is above the last is in
    /// none.
    pub fn histogram(&self, edges: &[u64]) -> Vec<u64> {
        let mut before = 0;
        let in_bin = |&edge: &u64| {
            let up_to = self.up_to(edge);
            up_to - std::mem::replace(&mut before, up_to)
        };
        edges.iter().map(in_bin).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_one_bin() {
        let mut values: Vec<u64> = (0..=100).chain([40, 40]).collect();
        let counts = values.iter().map(|&value| (value, 1)).rev();
        let counted = Distribution::of_counts(counts.collect());
        values.sort_unstable();
        let distribution = Distribution::of_sorted(&values);
        assert_eq!(distribution, counted);
        assert_eq!(distribution.sum(), 5050 + 80);
        assert_eq!((distribution.total(), distribution.max(), distribution.zeros()), (103, 100, 1));
        assert_eq!(distribution.histogram(&[0, 39, 40, 100]), [1, 39, 3, 60]);
        assert_eq!(distribution.histogram(&[50]), [53]);
        assert_eq!((distribution.up_to(39), distribution.up_to(100)), (40, 103));
        assert_eq!([0.0, 0.5, 1.0].map(|share| distribution.quantile(share)), [0, 49, 100]);
        assert_eq!(Distribution::default().quantile(0.5), 0);
    }
}
