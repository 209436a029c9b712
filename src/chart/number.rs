//! Numbers for people.

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

/// The same with commas between thousands.
pub fn grouped(value: f64) -> String {
    let text = number(value);
    let end = text.find(['.', 'e']).unwrap_or(text.len());
    let begin = usize::from(text.starts_with('-'));
    let mut grouped = text[..begin].to_owned();
    for (index, digit) in text[begin..end].chars().enumerate() {
        if index > 0 && (end - begin - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &text[end..]
}

/// With `+` in front of what is more.
pub fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}

/// A mean as it was written, and half the width of its interval.
pub fn interval(half_width: Option<f64>, mean: String) -> String {
    match half_width {
        Some(half_width) => format!("{mean} ± {}", number(half_width)),
        None => mean,
    }
}

/// Without zeros at the end, and short: `0.5`, `1,500`, `20k`, `1.5M`.
pub fn tick(value: f64) -> String {
    let size = value.abs();
    let is_round = |unit: f64| (value / unit * 10.0).fract() == 0.0;
    let (scaled, suffix) = match size {
        _ if size >= 1e12 || (size > 0.0 && size < 1e-4) => return format!("{value:e}"),
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e4 && is_round(1e3) => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = grouped(scaled);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
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

    #[test]
    fn thousands_are_grouped_and_ticks_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (999.0, "999"),
            (-1_234.0, "-1,234"),
            (131_072.0, "131,072"),
            (1_234_567.0, "1,234,567"),
            (12_345.6, "12,346"),
            (0.25, "0.2500"),
        ] {
            assert_eq!(grouped(value), expected);
        }
        for (value, expected) in [
            (0.5, "0.5"),
            (0.0, "0"),
            (1_500.0, "1,500"),
            (20_000.0, "20k"),
            (1.5e6, "1.5M"),
            (16_384.0, "16,384"),
            (-12.0, "-12"),
        ] {
            assert_eq!(tick(value), expected);
        }
    }
}
