//! What kind of text a trace begins with: enough to tell the formats apart.

use super::json::Json;

/// The names at the beginning of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Objects of JSON, one after the other: the names in the first.
    Object(Vec<String>),
    /// A list of objects: the names in the first.
    List(Vec<String>),
    /// Lines: what the commas of the first set apart.
    Columns(Vec<String>),
}

impl Head {
    /// Looks at the first bytes of a trace; what is cut off at their end does not count. `None` where there is
    /// nothing but white space.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        (!bytes.trim_ascii().is_empty()).then(|| Self::of_text(bytes))
    }

    fn of_text(bytes: &[u8]) -> Self {
        let mut json = Json::new(bytes);
        match json.peek() {
            Some(b'{') => Self::Object(names(json)),
            Some(b'[') => {
                let mut first = Vec::new();
                // Ends at the first object, or at what is cut off.
                let _ = json.list(|json| {
                    first = names(json.clone());
                    Err(super::mistake::Mistake::new("", ""))
                });
                Self::List(first)
            }
            _ => {
                let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
                let line = String::from_utf8_lossy(line);
                let column = |name: &str| name.trim().trim_matches('"').to_owned();
                Self::Columns(line.split(',').map(column).collect())
            }
        }
    }

    /// What a file begins with, for messages.
    pub fn describe(&self) -> String {
        let names = |names: &[String]| match names {
            [] => "no names".to_owned(),
            names => {
                let mut told: Vec<String> =
                    names.iter().take(MAX_TOLD_NAMES).map(|name| format!("{:?}", told(name))).collect();
                if names.len() > MAX_TOLD_NAMES {
                    told.push(format!("{} more", names.len() - MAX_TOLD_NAMES));
                }
                told.join(", ")
            }
        };
        match self {
            Self::Object(fields) => format!("a JSON object with {}", names(fields)),
            Self::List(fields) => format!("a JSON list of objects with {}", names(fields)),
            Self::Columns(columns) if columns.iter().any(|column| is_binary(column)) => {
                "bytes that are no text".to_owned()
            }
            Self::Columns(columns) => format!("a line with {}", names(columns)),
        }
    }

    pub fn is_object_with(&self, all: &[&str]) -> bool {
        matches!(self, Self::Object(names) if has_all(names, all))
    }

    pub fn is_list_with(&self, all: &[&str]) -> bool {
        matches!(self, Self::List(names) if has_all(names, all))
    }

    pub fn has_columns(&self, all: &[&str]) -> bool {
        matches!(self, Self::Columns(names) if has_all(names, all))
    }
}

/// Messages have room for so many names, and for so many characters of each.
const MAX_TOLD_NAMES: usize = 12;
const MAX_TOLD_CHARACTERS: usize = 40;

fn told(name: &str) -> String {
    match name.char_indices().nth(MAX_TOLD_CHARACTERS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

fn is_binary(text: &str) -> bool {
    text.chars().any(|char| char == char::REPLACEMENT_CHARACTER || (char.is_control() && char != '\t'))
}

fn has_all(names: &[String], all: &[&str]) -> bool {
    all.iter().all(|wanted| names.iter().any(|name| name == wanted))
}

fn names(mut json: Json<'_>) -> Vec<String> {
    let mut names = Vec::new();
    // An object that is cut off, or no object, has the names that were seen.
    let _ = json.object(|json, name| {
        names.push(name.to_owned());
        json.skip()
    });
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn names_are_those_of_the_first_row() {
        assert_eq!(
            Head::of(b" {\"a\": {\"x\": 1}, \"b\": [2]}\n{\"c\": 1}"),
            Some(Head::Object(texts(&["a", "b"])))
        );
        assert_eq!(Head::of(b"[\n{\"a\": 1}, {\"c\": 1}]"), Some(Head::List(texts(&["a"]))));
        assert_eq!(Head::of(b"A, \"b c\",d\r\n1,2,3\n"), Some(Head::Columns(texts(&["A", "b c", "d"]))));
    }

    #[test]
    fn what_is_cut_off_does_not_count() {
        assert_eq!(Head::of(b"{\"a\": 1, \"b\": \"xy"), Some(Head::Object(texts(&["a", "b"]))));
        assert_eq!(Head::of(b"{\"a\": 1, \"bc"), Some(Head::Object(texts(&["a"]))));
        assert_eq!(Head::of(b"[{\"a\": [1, 2"), Some(Head::List(texts(&["a"]))));
        assert_eq!(Head::of(b""), None);
        assert_eq!(Head::of(b" \n\r\n"), None);
    }

    #[test]
    fn messages_stay_short() {
        let describe = |bytes: &[u8]| Head::of(bytes).unwrap().describe();
        assert_eq!(describe(b"\xff\xfe\x00\x01 noise"), "bytes that are no text");
        assert_eq!(describe("é".repeat(50).as_bytes()), format!("a line with \"{}...\"", "é".repeat(40)));
        let many: Vec<String> = (0..100).map(|column| column.to_string()).collect();
        let told = describe(many.join(",").as_bytes());
        assert!(told.ends_with("\"10\", \"11\", 88 more"), "{told}");
    }
}
