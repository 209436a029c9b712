//! Finds the first line at which two logs differ, and the key in it.

use std::fmt;

use serde_json::Value;

/// The first difference of our log from the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Counted from 1.
    pub line: usize,
    pub ours: Option<String>,
    pub expected: Option<String>,
    /// The keys of the line whose values differ; none when a line is a digest.
    pub keys: Vec<String>,
}

/// Compares line by line; `None` if all are equal.
pub fn first_difference(ours: &str, expected: &str) -> Option<Difference> {
    let (mut our_lines, mut expected_lines) = (ours.lines(), expected.lines());
    let mut line = 0;
    loop {
        line += 1;
        match (our_lines.next(), expected_lines.next()) {
            (None, None) => return None,
            (Some(a), Some(b)) if a == b => {}
            (a, b) => {
                let keys = match (a, b) {
                    (Some(a), Some(b)) => differing_keys(a, b),
                    _ => Vec::new(),
                };
                return Some(Difference {
                    line,
                    ours: a.map(str::to_owned),
                    expected: b.map(str::to_owned),
                    keys,
                });
            }
        }
    }
}

fn differing_keys(ours: &str, expected: &str) -> Vec<String> {
    let (Ok(Value::Object(ours)), Ok(Value::Object(expected))) =
        (serde_json::from_str(ours), serde_json::from_str(expected))
    else {
        return Vec::new();
    };
    let mut keys: Vec<String> = Vec::new();
    for key in expected.keys().chain(ours.keys()) {
        if ours.get(key) != expected.get(key) && !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}

impl Difference {
    fn value(line: Option<&String>, key: &str) -> String {
        let value = line.and_then(|line| serde_json::from_str::<Value>(line).ok());
        value
            .and_then(|value| value.get(key).map(Value::to_string))
            .unwrap_or_else(|| "(not there)".to_owned())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "line {} differs", self.line)?;
        for key in &self.keys {
            writeln!(f, "  {key}")?;
            writeln!(f, "    ours:     {}", Self::value(self.ours.as_ref(), key))?;
            writeln!(f, "    expected: {}", Self::value(self.expected.as_ref(), key))?;
        }
        let whole = |line: &Option<String>| line.clone().unwrap_or_else(|| "(end of the log)".to_owned());
        writeln!(f, "  ours:     {}", whole(&self.ours))?;
        write!(f, "  expected: {}", whole(&self.expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_and_its_keys_are_named() {
        let expected = "{\"a\":1}\n{\"a\":1,\"b\":[2]}\n";
        assert_eq!(first_difference(expected, expected), None);
        let difference = first_difference("{\"a\":1}\n{\"a\":1,\"b\":[3]}\n", expected).unwrap();
        assert_eq!((difference.line, difference.keys), (2, vec!["b".to_owned()]));
        let missing = first_difference("{\"a\":1}\n", expected).unwrap();
        assert_eq!((missing.line, missing.ours), (2, None));
    }
}
