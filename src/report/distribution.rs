//! How values spread, for charts.

/// Values and how often each is there, rising.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Distribution {
    counts: Vec<(u64, u64)>,
    total: u64,
}

impl Distribution {
    /// Of values in rising order.
    pub fn of_sorted(values: &[u64]) -> Self {
        let runs = values.chunk_by(|a, b| a == b);
        Self::of_counts(runs.map(|run| (run[0], run.len() as u64)).collect())
    }

    /// Of rising values and how often each is there.
    pub fn of_counts(counts: Vec<(u64, u64)>) -> Self {
        let total = counts.iter().map(|count| count.1).sum();
        Self { counts, total }
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn max(&self) -> u64 {
        self.counts.last().map_or(0, |count| count.0)
    }

    /// How many are 0.
    pub fn zeros(&self) -> u64 {
        self.counts.first().filter(|count| count.0 == 0).map_or(0, |count| count.1)
    }

    /// How many are not above a value.
    pub fn up_to(&self, value: u64) -> u64 {
        self.counts.iter().take_while(|count| count.0 <= value).map(|count| count.1).sum()
    }

    /// The smallest value that this share of all do not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = (share * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.counts.iter().find(|count| {
            seen += count.1;
            seen >= rank
        });
        found.map_or(self.max(), |count| count.0)
    }

    /// How many are in each bin, which ends with its edge; edges rise. What is above the last is in
    /// none.
    pub fn histogram(&self, edges: &[u64]) -> Vec<u64> {
        let mut bins = vec![0; edges.len()];
        let mut bin = 0;
        for &(value, count) in &self.counts {
            while bin < edges.len() && value > edges[bin] {
                bin += 1;
            }
            match bins.get_mut(bin) {
                Some(sum) => *sum += count,
                None => break,
            }
        }
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_one_bin() {
        let values: Vec<u64> = (0..=100).chain([40, 40]).collect();
        let mut values = values;
        values.sort_unstable();
        let distribution = Distribution::of_sorted(&values);
        assert_eq!((distribution.total(), distribution.max(), distribution.zeros()), (103, 100, 1));
        assert_eq!(distribution.histogram(&[0, 39, 40, 100]), [1, 39, 3, 60]);
        assert_eq!(distribution.histogram(&[50]), [53]);
        assert_eq!((distribution.up_to(39), distribution.up_to(100)), (40, 103));
        assert_eq!([0.0, 0.5, 1.0].map(|share| distribution.quantile(share)), [0, 49, 100]);
        assert_eq!(Distribution::default().quantile(0.5), 0);
    }
}
