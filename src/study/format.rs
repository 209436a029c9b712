//! Numbers for people.

use super::statistics::Estimate;

/// Four digits, or all of a whole number.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e9 {
        return format!("{value}");
    }
    let digits = value.abs().log10().floor();
    if !(-5.0..9.0).contains(&digits) {
        return format!("{value:.3e}");
    }
    format!("{value:.*}", (3.0 - digits).max(0.0) as usize)
}

/// With `+` in front of what is more.
pub fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}

/// The mean as it was written, and its interval.
pub fn interval(estimate: Estimate, mean: String) -> String {
    match estimate.half_width {
        Some(half_width) => format!("{mean} ± {}", number(half_width)),
        None => mean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (16.0, "16"),
            (131_072.0, "131072"),
            (0.123_456, "0.1235"),
            (1_234.56, "1235"),
            (12.345_6, "12.35"),
            (-0.5, "-0.5000"),
            (1.5e12, "1.500e12"),
            (1.23e-9, "1.230e-9"),
        ] {
            assert_eq!(number(value), expected);
        }
    }
}
