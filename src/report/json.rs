//! JSON by hand, for lines whose every byte is fixed: no spaces, characters above ASCII escaped; and
//! the usual one for whole files.

use std::fmt::Write;

/// Appends a string literal.
pub(crate) fn string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    number(out, format_args!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
}

/// Appends a list of what `item` writes.
pub(crate) fn list<T>(
    out: &mut String,
    items: impl IntoIterator<Item = T>,
    mut item: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (index, value) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        item(out, value);
    }
    out.push(']');
}

/// Appends what `value` displays, which must be JSON already.
pub(crate) fn number(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{value}");
}

pub(crate) fn numbers<T: std::fmt::Display>(out: &mut String, items: impl IntoIterator<Item = T>) {
    list(out, items, |out, item| number(out, item));
}

/// Appends `null` or what `some` writes.
pub(crate) fn option<T>(out: &mut String, value: Option<T>, some: impl FnOnce(&mut String, T)) {
    match value {
        Some(value) => some(out, value),
        None => out.push_str("null"),
    }
}

/// A file with a field on each line.
pub(crate) fn pretty(value: &impl serde::Serialize) -> String {
    // Structs of numbers and texts always are JSON.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_python_does() {
        let mut out = String::new();
        string(&mut out, "a\"\\\n\u{1}é\u{7f}😀");
        assert_eq!(out, r#""a\"\\\n\u0001\u00e9\u007f\ud83d\ude00""#);
    }
}
