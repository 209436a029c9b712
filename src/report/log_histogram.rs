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

/// Durations from the begin to below twice as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Octave {
    pub begin_ns: u64,
    pub count: u64,
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

    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many are 0.
    pub fn zeros(&self) -> u64 {
        self.counts.first().copied().unwrap_or(0)
    }

    /// All but those of 0 by powers of two, from the first to the last that has values.
    pub fn octaves(&self) -> Vec<Octave> {
        // No bucket lies in two of them.
        let octave = |bucket: usize| upper_end(bucket).ilog2();
        let filled = self.counts.iter().enumerate().skip(1).filter(|(_, count)| **count > 0);
        let filled: Vec<(u32, u64)> = filled.map(|(bucket, &count)| (octave(bucket), count)).collect();
        let (Some(first), Some(last)) = (filled.first(), filled.last()) else { return Vec::new() };
        let mut octaves: Vec<Octave> =
            (first.0..=last.0).map(|octave| Octave { begin_ns: 1 << octave, count: 0 }).collect();
        for (octave, count) in &filled {
            octaves[(octave - first.0) as usize].count += count;
        }
        octaves
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
    fn octaves_hold_all_values() {
        let mut histogram = LogHistogram::default();
        assert_eq!(histogram.octaves(), []);
        [0, 5, 7, 8, 15, 16, 100, 127, 128].into_iter().for_each(|ns| histogram.add(ns));
        let octaves: Vec<_> = histogram.octaves().iter().map(|it| (it.begin_ns, it.count)).collect();
        assert_eq!((histogram.total(), histogram.zeros()), (9, 1));
        assert_eq!(octaves, [(4, 2), (8, 2), (16, 1), (32, 0), (64, 2), (128, 1)]);
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
