//! Finds the line of a field in a YAML text, for errors that are found after reading.

/// The line, counted from 1, of the field at `path`, such as `workload.chat.turns`. In flow style,
/// where fields share a line, that of the deepest field found. `None` if not even the first is there.
pub(super) fn line_of(text: &str, path: &str) -> Option<usize> {
    let mut found = None;
    let mut from = 0;
    let mut min_indent = 0;
    for part in path.split('.') {
        let name = part.split('[').next().unwrap_or(part);
        let Some((line, indent)) = find_key(text, name, from, min_indent) else { break };
        found = Some(line + 1);
        from = line + 1;
        min_indent = indent + 1;
    }
    found
}

/// The first line from `from` on with this key at an indent of at least `min_indent`, before the
/// text goes back to a smaller one.
fn find_key(text: &str, name: &str, from: usize, min_indent: usize) -> Option<(usize, usize)> {
    for (line, content) in text.lines().enumerate().skip(from) {
        let item = content.trim_start_matches([' ', '-']);
        if item.is_empty() || item.starts_with('#') {
            continue;
        }
        let indent = content.len() - item.len();
        if indent < min_indent {
            return None;
        }
        let key = item.split(':').next().unwrap_or(item).trim().trim_matches(['"', '\'']);
        if key == name && item.contains(':') {
            return Some((line, indent));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_path() {
        let text = "name: x\n# engine:\nengine:\n  block_size: 4\n\nworkload:\n  chat:\n    turns: {fixed: 1}\n    tenants:\n      - name: a\n        weight: 0\n";
        assert_eq!(line_of(text, "engine.block_size"), Some(4));
        assert_eq!(line_of(text, "workload.chat.turns.fixed"), Some(8));
        assert_eq!(line_of(text, "workload.chat.tenants[0].weight"), Some(11));
        assert_eq!(line_of(text, "engine.nothing"), Some(3));
        assert_eq!(line_of(text, "nothing"), None);
    }
}
