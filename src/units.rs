//! Units: simulated time. Every other quantity is an integer with its unit in its name.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A point in simulated time, or a length of it, in nanoseconds; 0 is the start of the run.
///
/// Integers, so that sums do not depend on their order and equal times are equal. 64 bits reach
/// 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SimTime(pub u64);

impl SimTime {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);

    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Seconds to the nearest nanosecond; negative and NaN give 0, too large gives [`Self::MAX`].
    pub fn from_secs_f64(seconds: f64) -> Self {
        // `as` saturates, and sends NaN to 0.
        Self((seconds * 1e9).round() as u64)
    }

    pub const fn as_ns(self) -> u64 {
        self.0
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    pub fn as_ms_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time since `earlier`, 0 if that is not earlier.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for SimTime {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for SimTime {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for SimTime {
    type Output = Self;
    /// # Panics
    /// In debug builds when `other` is later: time does not run backwards.
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.as_secs_f64())
    }
}
