//! Durations of millions of blocks in logarithmic buckets: a value is known to within 1/16 of it.

use serde::Serialize;

const SUB_BUCKETS: u64 = 16;

#[derive(Clone, Debug, Default)]
pub(super) struct LogHistogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: u64,
}

/// In seconds; all 0 without values. Percentiles are the upper ends of their buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DurationS {
    pub count: u64,
    pub mean_s: f64,
    pub p10_s: f64,
    pub p50_s: f64,
    pub p90_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

/// Values below 16 have their own bucket; above, each power of two has 16.
fn bucket(ns: u64) -> usize {
    let shift = (63 - ns.max(1).leading_zeros()).saturating_sub(SUB_BUCKETS.ilog2());
    (u64::from(shift) * SUB_BUCKETS + (ns >> shift)) as usize
}

/// The largest value of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB_BUCKETS {
        return bucket;
    }
    let shift = bucket / SUB_BUCKETS - 1;
    ((bucket - shift * SUB_BUCKETS) << shift) + ((1 << shift) - 1)
}

impl LogHistogram {
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.add_n(ns, 1);
    }

    /// Adds the same duration `count` times.
    #[inline]
    pub fn add_n(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        let bucket = bucket(ns);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += count;
        self.total += count;
        self.sum_ns += u128::from(ns) * u128::from(count);
        self.max_ns = self.max_ns.max(ns);
    }

    fn percentile_ns(&self, per_cent: u64) -> u64 {
        let rank = (self.total * per_cent).div_ceil(100);
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, upper_end).min(self.max_ns)
    }

    pub fn summary(&self) -> DurationS {
        if self.total == 0 {
            return DurationS::default();
        }
        let s = |ns: u64| ns as f64 / 1e9;
        DurationS {
            count: self.total,
            mean_s: self.sum_ns as f64 / self.total as f64 / 1e9,
            p10_s: s(self.percentile_ns(10)),
            p50_s: s(self.percentile_ns(50)),
            p90_s: s(self.percentile_ns(90)),
            p99_s: s(self.percentile_ns(99)),
            max_s: s(self.max_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_is_narrow_and_holds_its_values(ns in any::<u64>()) {
            let bucket = bucket(ns);
            let end = upper_end(bucket);
            prop_assert!(ns <= end);
            prop_assert!(end - ns <= ns / SUB_BUCKETS);
            prop_assert!(bucket == 0 || upper_end(bucket - 1) < ns);
        }
    }

    #[test]
    fn percentiles_are_within_a_sixteenth() {
        let mut histogram = LogHistogram::default();
        (1..=1_000).for_each(|ms| histogram.add(ms * 1_000_000));
        let summary = histogram.summary();
        assert!((0.5..=0.5 * 17.0 / 16.0).contains(&summary.p50_s), "{}", summary.p50_s);
        assert_eq!((summary.count, summary.max_s, summary.mean_s), (1_000, 1.0, 0.5005));
    }
}
