//! What to type instead of what the YAML reader did not understand.

/// A hint for the message of a type or name error, if one is known.
pub(super) fn hint(message: &str) -> Option<String> {
    if let Some((unknown, known)) = unknown_name(message) {
        return nearest(unknown, &known).map(|near| format!("did you mean `{near}`?"));
    }
    for (wanted, hint) in [
        ("expected u32", "give a whole number of 0 or more, without a unit"),
        ("expected u64", "give a whole number of 0 or more, without a unit"),
        ("expected f64", "give a number, such as 0.5, without a unit"),
        ("invalid u", "give a whole number of 0 or more, without a unit"),
        ("invalid i", "give a whole number, without a unit"),
        ("invalid f", "give a number, such as 0.5, without a unit"),
        ("invalid bool", "give true or false"),
        ("expected string", "give a text"),
        ("expected a sequence", "give a list: [a, b], or a line with `- ` for each item"),
        ("expected sequence", "give a list: [a, b], or a line with `- ` for each item"),
        ("expected mapping", "give fields below it, each on a line `name: value`"),
    ] {
        if message.contains(wanted) {
            return Some(hint.to_owned());
        }
    }
    let missing = message.split("missing field `").nth(1)?.split('`').next()?;
    Some(format!("add a line `{missing}: ...`"))
}

/// The name that is not known, and those that are.
fn unknown_name(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest =
        message.split("unknown field `").nth(1).or_else(|| message.split("unknown variant `").nth(1))?;
    let (unknown, rest) = rest.split_once('`')?;
    let known = rest.trim_start_matches(|c: char| !c.is_alphabetic());
    let known = known.trim_start_matches("expected one of ").trim_start_matches("expected ");
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    Some((unknown, known.split(|c| !is_name(c)).filter(|name| !name.is_empty()).collect()))
}

/// The known name that takes the fewest edits, if that is few enough to be a slip.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|&candidate| (distance(name, candidate), candidate))
        .filter(|&(edits, candidate)| edits <= (candidate.len() / 3).max(2))
        .min()
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised() {
        let message = "unknown field `block_sise`, expected one of block_size, watermark";
        assert_eq!(hint(message).unwrap(), "did you mean `block_size`?");
        assert_eq!(hint("unknown field `zebra`, expected one of block_size, watermark"), None);
        assert_eq!(hint("missing field `model`").unwrap(), "add a line `model: ...`");
        assert!(hint("invalid u32").unwrap().contains("whole number"));
        assert_eq!((distance("kitten", "sitting"), distance("", "abc")), (3, 3));
    }
}
