//! Figures with their units, written in one way on all pages.

use crate::chart::grouped;

/// A whole number: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Of a share: `63.2 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A duration in the unit that suits it: `12.5 µs`, `340 ms`, `12.5 s`, `2.5 min`, `3.1 h`.
pub fn seconds(s: f64) -> String {
    let (value, unit) = match s {
        0.0 => return "0 s".to_owned(),
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s if s < 600.0 => (s, "s"),
        s if s < 36_000.0 => (s / 60.0, "min"),
        s => (s / 3_600.0, "h"),
    };
    let text = if value >= 100.0 { grouped(value.round()) } else { format!("{value:.1}") };
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units() {
        assert_eq!(
            [count(0), count(999), count(1_000), count(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
        assert_eq!(percent(0.632), "63.2 %");
        let texts = [0.0, 12.5e-6, 0.34, 12.5, 720.0, 40_000.0].map(seconds);
        assert_eq!(texts, ["0 s", "12.5 µs", "340 ms", "12.5 s", "12.0 min", "11.1 h"]);
    }
}
