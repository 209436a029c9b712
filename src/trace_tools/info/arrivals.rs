//! When requests arrive: rates and how bursty they are.

use serde::Serialize;

use crate::units::SimTime;

/// Rates of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArrivalInfo {
    /// Of the first and the last request.
    pub first_s: f64,
    pub last_s: f64,
    pub duration_s: f64,
    /// Requests; 0 if all come at once.
    pub mean_per_s: f64,
    /// In the busiest second.
    pub peak_in_1_s: u64,
    /// In the busiest minute.
    pub peak_in_60_s: u64,
    /// The coefficient of variation of the gaps between requests: 0 if they are equal, 1 for a Poisson
    /// process, more if requests come in bursts. vLLM's `--burstiness` is its inverse square. `None` for
    /// less than two gaps.
    pub gap_cv: Option<f64>,
    /// Variance over mean of the numbers of requests in 60 s: 1 for a Poisson process, more if the rate
    /// changes. `None` for less than three whole windows.
    pub dispersion_in_60_s: Option<f64>,
}

/// Follows the requests of a trace in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    first: Option<SimTime>,
    last: SimTime,
    num_requests: u64,
    sum_gaps_s: f64,
    sum_square_gaps_s: f64,
    seconds: Windows<1>,
    minutes: Windows<60>,
}

impl Arrivals {
    pub fn add(&mut self, at: SimTime) {
        if self.first.is_some() {
            let gap_s = at.since(self.last).as_secs_f64();
            self.sum_gaps_s += gap_s;
            self.sum_square_gaps_s += gap_s * gap_s;
        }
        let first = *self.first.get_or_insert(at);
        self.last = self.last.max(at);
        self.num_requests += 1;
        self.seconds.add(at.since(first));
        self.minutes.add(at.since(first));
    }

    pub fn info(&self) -> Option<ArrivalInfo> {
        let first = self.first?;
        let num_gaps = (self.num_requests - 1) as f64;
        let mean_gap_s = self.sum_gaps_s / num_gaps;
        let has_gaps = self.sum_gaps_s > 0.0;
        let variance = self.sum_square_gaps_s / num_gaps - mean_gap_s * mean_gap_s;
        Some(ArrivalInfo {
            first_s: first.as_secs_f64(),
            last_s: self.last.as_secs_f64(),
            duration_s: self.last.since(first).as_secs_f64(),
            mean_per_s: if has_gaps { 1.0 / mean_gap_s } else { 0.0 },
            peak_in_1_s: self.seconds.peak,
            peak_in_60_s: self.minutes.peak,
            gap_cv: (has_gaps && self.num_requests > 2).then(|| variance.max(0.0).sqrt() / mean_gap_s),
            dispersion_in_60_s: self.minutes.dispersion(),
        })
    }
}

/// Numbers of requests in windows of so many seconds, the first of which begins with the first request.
#[derive(Clone, Debug, Default)]
struct Windows<const SECONDS: u64> {
    /// The windows before the current one, and sums of the numbers in them.
    num_whole: u64,
    sum: u64,
    sum_squares: u128,
    in_current: u64,
    peak: u64,
}

impl<const SECONDS: u64> Windows<SECONDS> {
    /// A request so long after the first one.
    fn add(&mut self, since_first: SimTime) {
        let window = since_first.as_ns() / (SECONDS * 1_000_000_000);
        if window > self.num_whole {
            self.num_whole = window;
            self.sum += self.in_current;
            self.sum_squares += u128::from(self.in_current) * u128::from(self.in_current);
            self.in_current = 0;
        }
        self.in_current += 1;
        self.peak = self.peak.max(self.in_current);
    }

    /// Variance over mean of the numbers in whole windows.
    fn dispersion(&self) -> Option<f64> {
        let num = self.num_whole as f64;
        let mean = self.sum as f64 / num;
        (self.num_whole >= 3).then(|| (self.sum_squares as f64 / num - mean * mean) / mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(seconds: &[f64]) -> ArrivalInfo {
        let mut arrivals = Arrivals::default();
        seconds.iter().for_each(|&s| arrivals.add(SimTime::from_secs_f64(s)));
        arrivals.info().unwrap()
    }

    #[test]
    fn equal_gaps_have_no_variation() {
        let times: Vec<f64> = (0..=600).map(|i| 10.0 + f64::from(i) / 2.0).collect();
        let info = info(&times);
        assert_eq!((info.first_s, info.last_s, info.duration_s), (10.0, 310.0, 300.0));
        assert_eq!((info.mean_per_s, info.peak_in_1_s, info.peak_in_60_s), (2.0, 2, 120));
        assert_eq!((info.gap_cv, info.dispersion_in_60_s), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn bursts_show() {
        // 4 at once each 60 s: gaps of 0, 0, 0 and 60 s have mean 15 and variance 675.
        let times: Vec<f64> = (0..4001).map(|i| f64::from(i / 4 * 60)).collect();
        let info = info(&times);
        assert_eq!((info.peak_in_1_s, info.peak_in_60_s), (4, 4));
        assert!((info.gap_cv.unwrap() - 3.0_f64.sqrt()).abs() < 1e-9);
        // Windows of 8, 0, 4: mean 4, variance 32 / 3.
        let times = [[0.0; 8].as_slice(), &[120.0; 4], &[180.0]].concat();
        let info = self::info(&times);
        assert!((info.dispersion_in_60_s.unwrap() - 32.0 / 12.0).abs() < 1e-9);
    }

    #[test]
    fn one_request_and_none() {
        assert_eq!(Arrivals::default().info(), None);
        let info = info(&[3.0]);
        assert_eq!((info.mean_per_s, info.gap_cv, info.peak_in_1_s), (0.0, None, 1));
    }
}
