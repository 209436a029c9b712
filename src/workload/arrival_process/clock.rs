//! When so many arrivals are to be expected: a changing rate as a change of clock.
//!
//! A Poisson process with the rate `r(t)` is one of rate 1 seen on a clock that has run to the
//! integral of `r` at time `t`. So a clock only has to tell when that integral reaches a value.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1};

use super::config::MmppState;

/// The clock of one process.
#[derive(Clone, Debug)]
pub(super) enum Clock {
    Steady { rate_per_s: f64 },
    Cosine { rate_per_s: f64, amplitude: f64, period_s: f64, peak_at_s: f64 },
    Pieces(Box<Pieces>),
}

impl Clock {
    /// The time in seconds at which so many arrivals were to be expected. Calls do not decrease.
    pub fn time_of(&mut self, expected: f64) -> f64 {
        match self {
            Self::Steady { rate_per_s } => expected / *rate_per_s,
            Self::Cosine { rate_per_s, amplitude, period_s, peak_at_s } => {
                let mean_s = expected / *rate_per_s;
                let swing_s = *amplitude * *period_s / TAU;
                let sine = |at_s: f64| (TAU * (at_s - *peak_at_s) / *period_s).sin();
                // The integral of 1 + amplitude * cos(...) from 0.
                let integral_s = |at_s: f64| at_s + swing_s * (sine(at_s) - sine(0.0));
                bisect(mean_s - 2.0 * swing_s, mean_s + 2.0 * swing_s, |at_s| integral_s(at_s) < mean_s)
            }
            Self::Pieces(pieces) => pieces.time_of(expected),
        }
    }
}

/// The point between `low` and `high` at which `is_before` turns false, as exactly as an `f64` can.
fn bisect(mut low: f64, mut high: f64, is_before: impl Fn(f64) -> bool) -> f64 {
    loop {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            return high.max(0.0);
        }
        *(if is_before(middle) { &mut low } else { &mut high }) = middle;
    }
}

/// A rate that is constant for a while, then another.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    /// Arrivals in a second where the relative rate is 1.
    unit_per_s: f64,
    next: NextPiece,
    /// Where the current piece begins.
    begin_s: f64,
    begin_expected: f64,
    relative_rate: f64,
    length_s: f64,
}

#[derive(Clone, Debug)]
enum NextPiece {
    Cycle { step_s: f64, relative_rates: Vec<f64>, next: usize },
    Mmpp { states: Vec<MmppState>, current: usize, rng: Box<ChaCha8Rng> },
}

impl NextPiece {
    /// The next relative rate and how long it lasts.
    fn take(&mut self) -> (f64, f64) {
        match self {
            Self::Cycle { step_s, relative_rates, next } => {
                let rate = relative_rates[*next];
                *next = (*next + 1) % relative_rates.len();
                (rate, *step_s)
            }
            Self::Mmpp { states, current, rng } => {
                let state = states[*current];
                let exponential: f64 = Exp1.sample(rng);
                // Any of the others: those after it move down by one.
                let other = rng.random_range(0..states.len() - 1);
                *current = if other < *current { other } else { other + 1 };
                (state.relative_rate, exponential * state.mean_s)
            }
        }
    }
}

impl Pieces {
    /// Steps that follow each other again and again.
    pub fn cycle(rate_per_s: f64, step_s: f64, relative_rates: &[f64]) -> Self {
        let mean = relative_rates.iter().sum::<f64>() / relative_rates.len() as f64;
        let next = NextPiece::Cycle { step_s, relative_rates: relative_rates.to_vec(), next: 0 };
        Self::new(rate_per_s / mean, next)
    }

    /// Each state is entered equally often, so the share of time in it goes by its mean length. An
    /// exponential time has no memory: begun with these shares, the process is as it always was.
    pub fn mmpp(rate_per_s: f64, states: &[MmppState], mut rng: ChaCha8Rng) -> Self {
        let length_s: f64 = states.iter().map(|state| state.mean_s).sum();
        let mean = states.iter().map(|state| state.mean_s * state.relative_rate).sum::<f64>() / length_s;
        let mut left_s = rng.random::<f64>() * length_s;
        let first = states.iter().position(|state| {
            left_s -= state.mean_s;
            left_s < 0.0
        });
        // Rounding can leave the point at the very end.
        let current = first.unwrap_or(states.len() - 1);
        Self::new(rate_per_s / mean, NextPiece::Mmpp { states: states.to_vec(), current, rng: Box::new(rng) })
    }

    fn new(unit_per_s: f64, next: NextPiece) -> Self {
        Self { unit_per_s, next, begin_s: 0.0, begin_expected: 0.0, relative_rate: 0.0, length_s: 0.0 }
    }

    fn time_of(&mut self, expected: f64) -> f64 {
        loop {
            let rate_per_s = self.unit_per_s * self.relative_rate;
            let in_piece = rate_per_s * self.length_s;
            if expected < self.begin_expected + in_piece {
                return self.begin_s + (expected - self.begin_expected) / rate_per_s;
            }
            self.begin_s += self.length_s;
            self.begin_expected += in_piece;
            (self.relative_rate, self.length_s) = self.next.take();
        }
    }
}
