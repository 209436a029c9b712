//! Values of fields: whole numbers within bounds, and times.

use std::fmt;

use super::json::Json;
use super::mistake::Mistake;
use crate::units::SimTime;
use crate::workload::distribution::MAX_LENGTH_TOKENS;

/// A whole number within bounds, and what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub what: &'static str,
    pub min: u64,
    pub max: u64,
}

/// The length of a prompt or an answer. vLLM refuses an empty prompt, and samples one token at least.
pub(super) const LENGTH_TOKENS: Range =
    Range { what: "a whole number of tokens", min: 1, max: MAX_LENGTH_TOKENS as u64 };

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.what, self.min, self.max)
    }
}

impl Range {
    #[inline]
    pub fn read(&self, json: &mut Json<'_>) -> Result<u64, Mistake> {
        match json.u64_within(self.min, self.max) {
            Some(value) => Ok(value),
            None => Err(json.unexpected(self.to_string())),
        }
    }
}

/// Reads a length in tokens.
pub(super) fn length_tokens(json: &mut Json<'_>) -> Result<u32, Mistake> {
    // Its range is within u32.
    LENGTH_TOKENS.read(json).map(|value| value as u32)
}

/// A unit of recorded times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeUnit {
    Seconds,
    Milliseconds,
}

impl TimeUnit {
    const fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
        }
    }

    /// Decimal digits that a nanosecond has after the point.
    const fn decimals(self) -> u32 {
        match self {
            Self::Seconds => 9,
            Self::Milliseconds => 6,
        }
    }

    pub fn read(self, json: &mut Json<'_>) -> Result<SimTime, Mistake> {
        let start = json.clone();
        json.number().and_then(|text| self.parse(text)).ok_or_else(|| {
            *json = start;
            json.unexpected(self.to_string())
        })
    }

    /// The time that a decimal number says, to the nearest nanosecond; exact, where a number of 64
    /// bits with a binary point would not be. `None` if it is negative, too large, or no number.
    pub fn parse(self, text: &str) -> Option<SimTime> {
        self.parse_plain(text.as_bytes()).or_else(|| self.parse_any(text))
    }

    /// The numbers that traces are full of: up to nine digits before the point, and no more behind it
    /// than count.
    #[inline]
    fn parse_plain(self, text: &[u8]) -> Option<SimTime> {
        // 19 digits fit 64 bits.
        if text.len() > 19 {
            return None;
        }
        let mut value = 0_u64;
        let mut point = None;
        for (at, &byte) in text.iter().enumerate() {
            match byte.wrapping_sub(b'0') {
                digit @ 0..10 => value = value * 10 + u64::from(digit),
                _ if byte == b'.' && point.is_none() => point = Some(at),
                _ => return None,
            }
        }
        let whole = point.unwrap_or(text.len());
        let decimals = (text.len() - whole).saturating_sub(1) as u32;
        if whole == 0 || whole > 9 || decimals > self.decimals() {
            return None;
        }
        Some(SimTime(value * 10_u64.pow(self.decimals() - decimals)))
    }

    fn parse_any(self, text: &str) -> Option<SimTime> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = whole.bytes().chain(fraction.bytes()).peekable();
        digits.peek()?;
        // The digits that stand for a nanosecond and more.
        let kept = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(self.decimals());
        let mut nanoseconds = 0_u64;
        let mut is_half_or_more = false;
        for place in 0_i64.. {
            let Some(digit) = digits.next() else {
                let zeros = if nanoseconds == 0 { 0 } else { u32::try_from((kept - place).max(0)).ok()? };
                nanoseconds = nanoseconds.checked_mul(10_u64.checked_pow(zeros)?)?;
                break;
            };
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            if place < kept {
                nanoseconds = nanoseconds.checked_mul(10)?.checked_add(u64::from(digit))?;
            } else if place == kept {
                is_half_or_more = digit >= 5;
            }
        }
        nanoseconds.checked_add(u64::from(is_half_or_more)).map(SimTime)
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from 0 to {}", self.name(), u64::MAX / 10_u64.pow(self.decimals()))
    }
}

/// The value of a field that has to be there.
pub(super) fn require<T>(
    value: Option<T>,
    field: &'static str,
    expected: impl fmt::Display,
) -> Result<T, Mistake> {
    value.ok_or_else(|| Mistake::new("nothing", expected.to_string()).within(field))
}

/// Keeps the value of a field; a field that is there twice is a mistake.
#[inline]
pub(super) fn set<T>(
    slot: &mut Option<T>,
    field: &'static str,
    value: Result<T, Mistake>,
) -> Result<(), Mistake> {
    let value = value.map_err(|mistake| mistake.within(field))?;
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Mistake::new("a second value", "one").within(field)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_exact() {
        let seconds = |text: &str| TimeUnit::Seconds.parse(text).map(SimTime::as_ns);
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds("61.114"), Some(61_114_000_000));
        assert_eq!(seconds("0.1"), Some(100_000_000));
        assert_eq!(seconds("1.0000000004"), Some(1_000_000_000));
        assert_eq!(seconds("1.0000000005"), Some(1_000_000_001));
        assert_eq!(seconds("1.5e3"), Some(1_500_000_000_000));
        assert_eq!(seconds("25e-10"), Some(3));
        assert_eq!(seconds("4e-10"), Some(0));
        assert_eq!(seconds("5e-10"), Some(1));
        assert_eq!(seconds("5e-11"), Some(0));
        assert_eq!(seconds("0e99"), Some(0));
        assert_eq!(seconds("18446744073.709551615"), Some(u64::MAX));
        for wrong in ["18446744073.709551616", "-1", "NaN", "", "1e300", "1e-", "1.2.3", "0x1", "1e20"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
        assert_eq!(TimeUnit::Milliseconds.parse("27482.5"), Some(SimTime(27_482_500_000)));
    }

    proptest! {
        #[test]
        fn plain_numbers_are_read_as_any(text in "[0-9]{0,24}([.][0-9]{0,11})?") {
            for unit in [TimeUnit::Seconds, TimeUnit::Milliseconds] {
                if let Some(plain) = unit.parse_plain(text.as_bytes()) {
                    prop_assert_eq!(Some(plain), unit.parse_any(&text));
                }
            }
        }
    }
}
