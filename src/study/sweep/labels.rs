//! Names short enough for the head of a column and the axis of a plot.

use crate::chart::number;

const MAX_CELL: usize = 32;

/// For each dotted name its last part, or its last two where it has three or more, and more of them
/// rather than a position; the whole name where that is another's too.
pub(in crate::study) fn labels(names: &[&str]) -> Vec<String> {
    let short = |name: &str| {
        let parts: Vec<&str> = name.split('.').collect();
        let mut from = parts.len() - if parts.len() > 2 { 2 } else { 1 };
        while from > 0 && parts[from].parse::<usize>().is_ok() {
            from -= 1;
        }
        parts[from..].join(".")
    };
    let all: Vec<String> = names.iter().map(|name| short(name)).collect();
    let is_alone = |label: &String| all.iter().filter(|other| *other == label).count() == 1;
    names
        .iter()
        .zip(&all)
        .map(|(name, label)| if is_alone(label) { label.clone() } else { (*name).to_owned() })
        .collect()
}

/// A field's value.
pub(in crate::study) fn value(value: Option<&serde_json::Value>) -> String {
    match value {
        None => String::new(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Number(value)) => value.as_f64().map_or_else(|| value.to_string(), number),
        Some(other) => other.to_string(),
    }
}

/// So many characters that there is room beside it.
pub(in crate::study) fn shorten(text: String) -> String {
    if text.chars().count() <= MAX_CELL {
        return text;
    }
    text.chars().take(MAX_CELL - 3).chain("...".chars()).collect()
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
            "engine.kv_transfer_config.tiers.0.size_gib",
            "gpu",
        ];
        let expected = [
            "ttft.p99_ms",
            "tpot.p99_ms",
            "prefix_cache.hit_rate",
            "external_cache.hit_rate",
            "block_size",
            "tiers.0.size_gib",
            "gpu",
        ];
        assert_eq!(labels(&names), expected);
    }
}
