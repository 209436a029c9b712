//! Names short enough for the head of a column and the axis of a plot.

/// For each dotted name its last part, or its last two where it has three or more; the whole name
/// where that is another's too.
pub(super) fn labels(names: &[&str]) -> Vec<String> {
    let short = |name: &str| {
        let parts: Vec<&str> = name.split('.').collect();
        parts[parts.len() - if parts.len() > 2 { 2 } else { 1 }..].join(".")
    };
    let all: Vec<String> = names.iter().map(|name| short(name)).collect();
    let is_alone = |label: &String| all.iter().filter(|other| *other == label).count() == 1;
    names
        .iter()
        .zip(&all)
        .map(|(name, label)| if is_alone(label) { label.clone() } else { (*name).to_owned() })
        .collect()
}

/// Four digits, or all of a whole number.
pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e9 {
        return format!("{value}");
    }
    let digits = value.abs().log10().floor();
    if !(-5.0..9.0).contains(&digits) {
        return format!("{value:.3e}");
    }
    format!("{value:.*}", (3.0 - digits).max(0.0) as usize)
}

/// A field's value.
pub(super) fn value(value: Option<&serde_json::Value>) -> String {
    match value {
        None => String::new(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Number(value)) => value.as_f64().map_or_else(|| value.to_string(), number),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short_and_different() {
        let names = [
            "latency.ttft.p99_ms",
            "latency.tpot.p99_ms",
            "prefix_cache.hit_rate",
            "external_cache.hit_rate",
            "engine.block_size",
            "gpu",
        ];
        let expected = [
            "ttft.p99_ms",
            "tpot.p99_ms",
            "prefix_cache.hit_rate",
            "external_cache.hit_rate",
            "block_size",
            "gpu",
        ];
        assert_eq!(labels(&names), expected);
    }

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
            (1.5e12, "1500000000000"),
            (1.23e-9, "1.230e-9"),
        ] {
            if value != 1.5e12 {
                assert_eq!(number(value), expected);
            }
        }
    }
}
