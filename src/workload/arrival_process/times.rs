//! The times of arrivals that follow a law.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, Gamma};

use super::ArrivalProcess;
use super::clock::{Clock, Pieces};
use crate::units::SimTime;
use crate::workload::rng;

/// The times of arrivals, without end.
///
/// The random part of a gap does not depend on the rate: at twice the rate the same users arrive
/// in half the time, as far as the rate does not itself change with time.
#[derive(Clone, Debug)]
pub struct ArrivalTimes {
    gaps: Gaps,
    clock: Clock,
    rng: ChaCha8Rng,
    /// Time so far in mean gaps, so that equal gaps do not drift.
    expected: f64,
}

/// Gaps with mean 1.
#[derive(Clone, Debug)]
enum Gaps {
    Exponential,
    Equal,
    Gamma(Gamma<f64>),
}

impl ArrivalTimes {
    /// Draws from the streams called `name`. The process is valid, and not one that sets its times.
    pub fn new(process: &ArrivalProcess, rate_per_s: f64, seed: u64, name: &str) -> Self {
        let gaps = match *process {
            ArrivalProcess::Fixed => Gaps::Equal,
            ArrivalProcess::Gamma { burstiness } => {
                Gamma::new(burstiness, 1.0 / burstiness).map_or(Gaps::Exponential, Gaps::Gamma)
            }
            _ => Gaps::Exponential,
        };
        let clock = match process {
            ArrivalProcess::Mmpp { states } => {
                Clock::Pieces(Box::new(Pieces::mmpp(rate_per_s, states, rng::stream(seed, name, 1))))
            }
            &ArrivalProcess::Diurnal { amplitude, period_s, peak_at_s } => {
                Clock::Cosine { rate_per_s, amplitude, period_s, peak_at_s }
            }
            ArrivalProcess::Profile { step_s, relative_rates } => {
                Clock::Pieces(Box::new(Pieces::cycle(rate_per_s, *step_s, relative_rates)))
            }
            _ => Clock::Steady { rate_per_s },
        };
        let expected = if let Gaps::Equal = gaps { -1.0 } else { 0.0 };
        Self { gaps, clock, rng: rng::stream(seed, name, 0), expected }
    }
}

impl Iterator for ArrivalTimes {
    type Item = SimTime;

    fn next(&mut self) -> Option<SimTime> {
        self.expected += match &self.gaps {
            Gaps::Exponential => Exp1.sample(&mut self.rng),
            Gaps::Equal => 1.0,
            Gaps::Gamma(gamma) => gamma.sample(&mut self.rng),
        };
        Some(SimTime::from_secs_f64(self.clock.time_of(self.expected)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::MmppState;
    use super::*;

    fn arrivals(process: ArrivalProcess, rate_per_s: f64) -> ArrivalTimes {
        process.validate().unwrap();
        ArrivalTimes::new(&process, rate_per_s, 1, "test")
    }

    fn times(process: ArrivalProcess, rate_per_s: f64, count: usize) -> Vec<SimTime> {
        arrivals(process, rate_per_s).take(count).collect()
    }

    /// How many arrive in each of `windows` windows of so many seconds.
    fn counts(process: ArrivalProcess, rate_per_s: f64, window_s: f64, windows: usize) -> Vec<f64> {
        let mut counts = vec![0.0; windows];
        for at in arrivals(process, rate_per_s) {
            match counts.get_mut((at.as_secs_f64() / window_s) as usize) {
                Some(count) => *count += 1.0,
                None => break,
            }
        }
        counts
    }

    fn mean_and_variance(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares = values.iter().map(|value| (value - mean) * (value - mean));
        (mean, squares.sum::<f64>() / values.len() as f64)
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
        let (mean, variance) = mean_and_variance(&counts(ArrivalProcess::Poisson, 4.0, 1.0, 20_000));
        assert!((mean - 4.0).abs() < 5.0 * 0.0142, "{mean}");
        assert!((variance - 4.0).abs() < 5.0 * 0.043, "{variance}");
    }

    #[test]
    fn gamma_gaps_have_the_mean_and_variance_of_their_shape() {
        // Of a gamma with shape k and mean 1: variance 1 / k, fourth central moment
        // 3 / k^2 + 6 / k^3, so a sample variance of n values has the variance
        // (3 / k^2 + 6 / k^3 - 1 / k^2) / n.
        const COUNT: usize = 100_000;
        for burstiness in [0.25, 1.0, 4.0] {
            let times = times(ArrivalProcess::Gamma { burstiness }, 1.0, COUNT);
            let gaps: Vec<f64> = std::iter::once(times[0].as_secs_f64())
                .chain(times.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()))
                .collect();
            let (mean, variance) = mean_and_variance(&gaps);
            let count = COUNT as f64;
            let mean_error = (1.0 / burstiness / count).sqrt();
            let variance_error = ((2.0 / burstiness.powi(2) + 6.0 / burstiness.powi(3)) / count).sqrt();
            assert!((mean - 1.0).abs() < 5.0 * mean_error, "{burstiness}: mean {mean}");
            assert!((variance - 1.0 / burstiness).abs() < 5.0 * variance_error, "{burstiness}: {variance}");
        }
    }

    /// Two states with rates of 0.5 and 4.5 in proportion, a tenth of the time in the second.
    fn bursts() -> ArrivalProcess {
        ArrivalProcess::Mmpp {
            states: vec![
                MmppState { relative_rate: 0.5, mean_s: 9.0 },
                MmppState { relative_rate: 4.5, mean_s: 1.0 },
            ],
        }
    }

    #[test]
    fn an_mmpp_has_the_mean_and_the_variance_of_counts_of_two_states() {
        // Fischer and Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook"
        // (1993), for rates l1, l2 and jumps s1, s2, in a window t with s = s1 + s2:
        // variance = mean + 2 s1 s2 (l1 - l2)^2 / s^2 * (t / s - (1 - exp(-s t)) / s^2).
        // At 2 a second the relative rates, whose mean is 0.9, stand for l1 and l2.
        let (l1, l2, s1, s2) = (2.0 * 0.5 / 0.9, 2.0 * 4.5 / 0.9, 1.0 / 9.0, 1.0);
        let (s, t): (f64, f64) = (s1 + s2, 5.0);
        let product = s1 * s2 * (l1 - l2) * (l1 - l2);
        let modulation = 2.0 * product / (s * s) * (t / s - (1.0 - (-s * t).exp()) / (s * s));
        let expected = 2.0 * t + modulation;

        let windows = 40_000;
        let counts = counts(bursts(), 2.0, t, windows);
        let (mean, variance) = mean_and_variance(&counts);
        // Windows depend on each other, for about 1 / s = 0.9 s: blocks of 20 windows do so little
        // that their means give the error.
        let error = |values: Vec<f64>| {
            let blocks: Vec<f64> = values.chunks(20).map(|chunk| chunk.iter().sum::<f64>() / 20.0).collect();
            (mean_and_variance(&blocks).1 / blocks.len() as f64).sqrt()
        };
        let mean_error = error(counts.clone());
        let squares = counts.iter().map(|count| (count - 2.0 * t) * (count - 2.0 * t)).collect();
        let variance_error = error(squares);
        assert!((mean - 2.0 * t).abs() < 5.0 * mean_error && mean_error < 0.05, "{mean} +- {mean_error}");
        let far = (variance - expected).abs();
        assert!(far < 5.0 * variance_error, "{variance} +- {variance_error}, not {expected}");
        // Five errors tell it from a Poisson process, whose variance is the mean.
        assert!(modulation > 10.0 * variance_error);
    }

    #[test]
    fn an_mmpp_has_its_mean_rate_from_the_start() {
        // The first 2 s of 20,000 seeds: shorter than the states, so a wrong start would show.
        let count = |seed| {
            let times = ArrivalTimes::new(&bursts(), 2.0, seed, "test");
            times.take_while(|at| at.as_secs_f64() < 2.0).count() as f64
        };
        let counts: Vec<f64> = (0..20_000).map(count).collect();
        let (mean, variance) = mean_and_variance(&counts);
        assert!((mean - 4.0).abs() < 5.0 * (variance / 20_000.0).sqrt(), "{mean}");
    }

    /// Checks counts in phases of a period against what is expected in each, by chi squared.
    fn assert_phases(process: ArrivalProcess, period_s: f64, share_until: impl Fn(f64) -> f64) {
        const PHASES: usize = 24;
        const PERIODS: usize = 500;
        let rate_per_s = 480.0 / period_s;
        let counts = counts(process, rate_per_s, period_s / PHASES as f64, PHASES * PERIODS);
        let chi_squared: f64 = (0..PHASES)
            .map(|phase| {
                let share = share_until((phase + 1) as f64 / PHASES as f64)
                    - share_until(phase as f64 / PHASES as f64);
                let expected = share * 480.0 * PERIODS as f64;
                let found: f64 = counts.iter().skip(phase).step_by(PHASES).sum();
                (found - expected).powi(2) / expected.max(1e-9)
            })
            .sum();
        // 24 degrees of freedom: mean 24, standard deviation sqrt(48).
        assert!(chi_squared < 24.0 + 5.0 * 48.0_f64.sqrt(), "{chi_squared}");
    }

    #[test]
    fn a_diurnal_rate_follows_its_cosine() {
        let (amplitude, period_s, peak_at_s) = (0.8, 3600.0, 900.0);
        let sine = |share: f64| (std::f64::consts::TAU * (share - 0.25)).sin();
        let until = |share| share + amplitude / std::f64::consts::TAU * (sine(share) - sine(0.0));
        assert_phases(ArrivalProcess::Diurnal { amplitude, period_s, peak_at_s }, period_s, until);
    }

    #[test]
    fn a_profile_follows_its_steps() {
        // Four steps, one of them without arrivals.
        let relative_rates = vec![1.0, 0.0, 4.0, 3.0];
        let until = |share: f64| match share * 4.0 {
            at if at <= 1.0 => at / 8.0,
            at if at <= 2.0 => 1.0 / 8.0,
            at if at <= 3.0 => (1.0 + 4.0 * (at - 2.0)) / 8.0,
            at => (5.0 + 3.0 * (at - 3.0)) / 8.0,
        };
        assert_phases(ArrivalProcess::Profile { step_s: 25.0, relative_rates }, 100.0, until);
    }

    #[test]
    fn the_rate_only_stretches_time() {
        for process in [ArrivalProcess::Poisson, ArrivalProcess::Gamma { burstiness: 0.3 }] {
            let (slow, fast) = (times(process.clone(), 1.0, 100), times(process, 2.0, 100));
            for (slow, fast) in slow.iter().zip(&fast) {
                assert!(slow.as_ns().abs_diff(2 * fast.as_ns()) <= 2);
            }
        }
    }

    #[test]
    fn times_never_decrease_and_come_again_from_the_same_seed() {
        let diurnal = ArrivalProcess::Diurnal { amplitude: 1.0, period_s: 10.0, peak_at_s: 5.0 };
        for process in [bursts(), diurnal, ArrivalProcess::Gamma { burstiness: 0.01 }] {
            let first = times(process.clone(), 50.0, 10_000);
            assert!(first.is_sorted());
            assert_eq!(first, times(process, 50.0, 10_000));
        }
    }
}
