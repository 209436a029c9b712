//! When independent users arrive.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1};
use serde::{Deserialize, Serialize};

use crate::units::SimTime;

/// The law of the gaps between arrivals; the rate is given beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrivalProcess {
    /// Independent exponential gaps.
    #[default]
    Poisson,
    /// Equal gaps; the first arrival is at time 0.
    Fixed,
}

/// The times of arrivals, without end.
///
/// The random part of a gap does not depend on the rate: at twice the rate the same users arrive
/// in half the time.
#[derive(Clone, Debug)]
pub struct ArrivalTimes {
    process: ArrivalProcess,
    rate_per_s: f64,
    rng: ChaCha8Rng,
    /// Time so far in mean gaps, so that equal gaps do not drift.
    gaps: f64,
}

impl ArrivalTimes {
    /// `rate_per_s` is positive and finite.
    pub fn new(process: ArrivalProcess, rate_per_s: f64, rng: ChaCha8Rng) -> Self {
        let gaps = match process {
            ArrivalProcess::Poisson => 0.0,
            ArrivalProcess::Fixed => -1.0,
        };
        Self { process, rate_per_s, rng, gaps }
    }
}

impl Iterator for ArrivalTimes {
    type Item = SimTime;

    fn next(&mut self) -> Option<SimTime> {
        self.gaps += match self.process {
            ArrivalProcess::Poisson => Exp1.sample(&mut self.rng),
            ArrivalProcess::Fixed => 1.0,
        };
        Some(SimTime::from_secs_f64(self.gaps / self.rate_per_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::rng;

    fn times(process: ArrivalProcess, rate_per_s: f64, count: usize) -> Vec<SimTime> {
        ArrivalTimes::new(process, rate_per_s, rng::stream(1, "test", 0)).take(count).collect()
    }

    #[test]
    fn fixed_arrivals_do_not_drift() {
        let third = times(ArrivalProcess::Fixed, 3.0, 3_000_001);
        assert_eq!(third[..3], [SimTime(0), SimTime(333_333_333), SimTime(666_666_667)]);
        assert_eq!(third[3_000_000], SimTime(1_000_000_000_000_000));
    }

    #[test]
    fn poisson_counts_have_equal_mean_and_variance() {
        // 20,000 windows of 1 s at 4 arrivals a second: the count in each has mean 4 and variance
        // 4; the standard error of the mean is 0.0141, of the variance about 0.042.
        let mut counts = vec![0.0; 20_000];
        for at in ArrivalTimes::new(ArrivalProcess::Poisson, 4.0, rng::stream(1, "test", 0)) {
            match counts.get_mut(at.as_secs_f64() as usize) {
                Some(count) => *count += 1.0,
                None => break,
            }
        }
        let mean = counts.iter().sum::<f64>() / 20_000.0;
        let variance = counts.iter().map(|count| (count - mean) * (count - mean)).sum::<f64>() / 20_000.0;
        assert!((mean - 4.0).abs() < 5.0 * 0.0142, "{mean}");
        assert!((variance - 4.0).abs() < 5.0 * 0.043, "{variance}");
    }

    #[test]
    fn the_rate_only_stretches_time() {
        let (slow, fast) =
            (times(ArrivalProcess::Poisson, 1.0, 100), times(ArrivalProcess::Poisson, 2.0, 100));
        for (slow, fast) in slow.iter().zip(&fast) {
            assert!(slow.as_ns().abs_diff(2 * fast.as_ns()) <= 2);
        }
    }
}
