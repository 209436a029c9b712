//! Reads JSON in place: one pass over the bytes of a row, no tree, nothing allocated for numbers and
//! plain strings.
//!
//! The rows of traces are lists of small numbers. On those this is three times as fast as a general
//! parser into typed fields (`cargo bench --bench trace_parsing`), and each mistake is told with the
//! value that was found.

use std::borrow::Cow;

use super::mistake::Mistake;

/// As deep as objects and lists may be nested, so that no row can exhaust the stack.
const MAX_DEPTH: u32 = 128;

/// A place in a text of JSON (RFC 8259).
#[derive(Clone, Debug)]
pub(super) struct Json<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

impl<'a> Json<'a> {
    pub const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// The next byte that is not white space; the place is then at it.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    /// Steps over `byte` if it comes next.
    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Reads an object; `field` is called for each name and must read or [`skip`](Self::skip) its
    /// value.
    pub fn object(
        &mut self,
        mut field: impl FnMut(&mut Self, &str) -> Result<(), Mistake>,
    ) -> Result<(), Mistake> {
        if self.peek() != Some(b'{') {
            return Err(self.unexpected("a JSON object"));
        }
        self.enter()?;
        if !self.take(b'}') {
            loop {
                let name = self.string()?;
                if !self.take(b':') {
                    return Err(self.malformed("`:`"));
                }
                field(self, &name)?;
                if !self.take(b',') {
                    break;
                }
            }
            if !self.take(b'}') {
                return Err(self.malformed("`,` or `}`"));
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a list; `item` is called for each value and must read or [`skip`](Self::skip) it.
    #[inline]
    pub fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), Mistake>) -> Result<(), Mistake> {
        if self.peek() != Some(b'[') {
            return Err(self.unexpected("a list"));
        }
        self.enter()?;
        if !self.take(b']') {
            loop {
                item(self)?;
                if !self.take(b',') {
                    break;
                }
            }
            if !self.take(b']') {
                return Err(self.malformed("`,` or `]`"));
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), Mistake> {
        if self.depth == MAX_DEPTH {
            return Err(Mistake::new("values nested too deeply", format!("at most {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    /// Reads a whole number of 0 or more that fits 64 bits; `None`, and the place stays, if something
    /// else comes next.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.u64_within(0, u64::MAX)
    }

    /// Reads a whole number from `min` to `max`; `None`, and the place stays, if something else comes
    /// next.
    #[inline]
    pub fn u64_within(&mut self, min: u64, max: u64) -> Option<u64> {
        self.peek()?;
        let (value, end) = self.scan_u64(self.at)?;
        if value < min || value > max {
            return None;
        }
        self.at = end;
        Some(value)
    }

    /// Reads a list of two whole numbers; `None`, and the place stays, if something else comes next.
    #[inline]
    pub fn pair(&mut self) -> Option<(u64, u64)> {
        let mut ahead = Self { text: self.text, at: self.at, depth: 0 };
        if !ahead.take(b'[') {
            return None;
        }
        let first = ahead.u64()?;
        if !ahead.take(b',') {
            return None;
        }
        let second = ahead.u64()?;
        if !ahead.take(b']') {
            return None;
        }
        self.at = ahead.at;
        Some((first, second))
    }

    /// The whole number that begins at a place, and where it ends.
    #[inline]
    fn scan_u64(&self, start: usize) -> Option<(u64, usize)> {
        let digits = &self.text[start..];
        let mut value = 0_u64;
        let mut len = 0;
        while let Some(digit) = digits.get(len).map(|byte| byte.wrapping_sub(b'0'))
            && digit < 10
        {
            // 19 digits always fit; the 20th may not.
            value = if len < 19 {
                value * 10 + u64::from(digit)
            } else {
                value.checked_mul(10)?.checked_add(u64::from(digit))?
            };
            len += 1;
        }
        let is_whole = match digits.get(len) {
            Some(b'.' | b'e' | b'E') => false,
            _ => len == 1 || (len > 1 && digits[0] != b'0'),
        };
        is_whole.then_some((value, start + len))
    }

    /// Reads a number and returns its text; `None`, and the place stays, if something else comes next.
    pub fn number(&mut self) -> Option<&'a str> {
        self.peek()?;
        let rest = &self.text[self.at..];
        let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let minus = usize::from(rest[0] == b'-');
        let whole = digits(minus);
        if whole == 0 || (whole > 1 && rest[minus] == b'0') {
            return None;
        }
        let mut len = minus + whole;
        if rest.get(len) == Some(&b'.') {
            let fraction = digits(len + 1);
            if fraction == 0 {
                return None;
            }
            len += 1 + fraction;
        }
        if matches!(rest.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
            let exponent = digits(len + 1 + sign);
            if exponent == 0 {
                return None;
            }
            len += 1 + sign + exponent;
        }
        self.at += len;
        std::str::from_utf8(&rest[..len]).ok()
    }

    /// Reads `true` or `false`; `None`, and the place stays, if something else comes next.
    pub fn bool(&mut self) -> Option<bool> {
        [(true, "true"), (false, "false")]
            .into_iter()
            .find_map(|(value, word)| self.word(word).then_some(value))
    }

    /// Steps over `null` if it comes next.
    pub fn null(&mut self) -> bool {
        self.word("null")
    }

    fn word(&mut self, word: &str) -> bool {
        self.peek();
        let is_next = self.text[self.at..].starts_with(word.as_bytes());
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    /// Reads a string.
    #[inline]
    pub fn string(&mut self) -> Result<Cow<'a, str>, Mistake> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a string"));
        }
        let (content, has_escapes) = self.raw_string()?;
        let text = std::str::from_utf8(content).map_err(|error| self.not_utf8(content, error))?;
        if has_escapes { self.unescape(text).map(Cow::Owned) } else { Ok(Cow::Borrowed(text)) }
    }

    /// Steps over a string whose quote comes next: its content, and whether that has escapes.
    #[inline]
    fn raw_string(&mut self) -> Result<(&'a [u8], bool), Mistake> {
        // Names are short: looking at each byte is faster than to prepare a search.
        const SHORT: usize = 24;
        let start = self.at + 1;
        let rest = self.text.get(start..).unwrap_or_default();
        let plain =
            rest.iter().take(SHORT).take_while(|&&byte| byte >= b' ' && byte != b'"' && byte != b'\\');
        let len = plain.count();
        if rest.get(len) == Some(&b'"') {
            self.at = start + len + 1;
            return Ok((&rest[..len], false));
        }
        self.raw_long_string(start)
    }

    fn raw_long_string(&mut self, start: usize) -> Result<(&'a [u8], bool), Mistake> {
        let mut has_escapes = false;
        let mut end = start;
        loop {
            let Some(step) = memchr::memchr2(b'"', b'\\', self.text.get(end..).unwrap_or_default()) else {
                self.at = self.text.len();
                return Err(self.malformed("the end of a string"));
            };
            end += step;
            if self.text[end] == b'"' {
                break;
            }
            has_escapes = true;
            end += 2;
        }
        self.at = end + 1;
        let content = &self.text[start..end];
        if content.iter().any(|&byte| byte < b' ') {
            self.at = start + content.iter().position(|&byte| byte < b' ').unwrap_or(0);
            return Err(self.malformed("an escape for a control character"));
        }
        Ok((content, has_escapes))
    }

    /// The place is behind the string.
    fn unescape(&self, text: &str) -> Result<String, Mistake> {
        // serde_json knows the escapes, of surrogate pairs too.
        let quoted = format!("\"{text}\"");
        serde_json::from_str(&quoted).map_err(|error| {
            let column = self.at - text.len() - 1 + error.column().saturating_sub(1);
            Mistake::new(format!("invalid JSON (an escape that there is not) at column {column}"), "a string")
        })
    }

    /// Steps over a value of any kind.
    pub fn skip(&mut self) -> Result<(), Mistake> {
        match self.peek() {
            Some(b'{') => self.object(|json, _| json.skip()),
            Some(b'[') => self.list(Self::skip),
            Some(b'"') => self.string().map(drop),
            _ if self.number().is_some() || self.null() || self.bool().is_some() => Ok(()),
            _ => Err(self.malformed("a value")),
        }
    }

    /// Steps over a value of any kind and returns its text.
    pub fn raw(&mut self) -> Result<&'a [u8], Mistake> {
        self.peek();
        let start = self.at;
        self.skip()?;
        Ok(&self.text[start..self.at])
    }

    /// Nothing but white space may be left.
    pub fn end(&mut self) -> Result<(), Mistake> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.malformed("the end of the row")),
        }
    }

    /// A mistake about the value that comes next, which is not what was `expected`; or about the
    /// JSON, if that is no value.
    #[cold]
    pub fn unexpected(&mut self, expected: impl Into<String>) -> Mistake {
        let start = self.at;
        let found = match self.peek() {
            Some(b'{') => "an object".to_owned(),
            Some(b'[') => "a list".to_owned(),
            Some(b'"') => match self.string() {
                Ok(text) => shortened(&text),
                Err(mistake) => return mistake.expecting(expected),
            },
            _ => match self.skip() {
                Ok(()) => {
                    let text = String::from_utf8_lossy(&self.text[start..self.at]);
                    format!("`{}`", text.trim())
                }
                Err(mistake) => return mistake.expecting(expected),
            },
        };
        Mistake::new(found, expected)
    }

    #[cold]
    fn malformed(&mut self, wanted: &str) -> Mistake {
        let column = self.at + 1;
        let found = match self.text.get(self.at) {
            None => format!("a row that ends at column {column}, where {wanted} should be"),
            // No JSON, or no text at all.
            Some(_) => match std::str::from_utf8(&self.text[self.at..]) {
                Err(error) if error.valid_up_to() == 0 => {
                    let found = format!("bytes that are not UTF-8 at column {column}");
                    return Mistake::new(found, "UTF-8 text");
                }
                _ => format!("invalid JSON at column {column}, where {wanted} should be"),
            },
        };
        Mistake::new(found, "valid JSON")
    }

    fn not_utf8(&self, content: &[u8], error: std::str::Utf8Error) -> Mistake {
        let column = self.at - content.len() + error.valid_up_to();
        Mistake::new(format!("bytes that are not UTF-8 at column {column}"), "UTF-8 text")
    }
}

/// A text in quotes, cut where it gets long.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a whole text with this reader into what serde_json makes of it.
    fn value(json: &mut Json<'_>) -> Result<serde_json::Value, Mistake> {
        use serde_json::Value;
        Ok(match json.peek() {
            Some(b'{') => {
                let mut map = serde_json::Map::new();
                json.object(|json, name| {
                    map.insert(name.to_owned(), value(json)?);
                    Ok(())
                })?;
                Value::Object(map)
            }
            Some(b'[') => {
                let mut list = Vec::new();
                json.list(|json| {
                    list.push(value(json)?);
                    Ok(())
                })?;
                Value::Array(list)
            }
            Some(b'"') => json.string()?.into_owned().into(),
            _ if json.null() => Value::Null,
            _ => match json.bool() {
                Some(value) => value.into(),
                None => match json.u64() {
                    Some(number) => number.into(),
                    None => match json.number() {
                        Some(text) => serde_json::from_str(text).unwrap(),
                        None => return Err(json.unexpected("a value")),
                    },
                },
            },
        })
    }

    fn parse(text: &[u8]) -> Option<serde_json::Value> {
        let mut json = Json::new(text);
        let value = value(&mut json).ok()?;
        json.end().ok().map(|()| value)
    }

    #[test]
    fn it_accepts_what_serde_json_accepts() {
        for text in [
            "0",
            "-0",
            "10",
            "01",
            "1.",
            ".5",
            "1.5e+3",
            "1e",
            "-",
            "18446744073709551615",
            "18446744073709551616",
            "\"\"",
            "\"a\\u00e9\\n\\ud83d\\ude00\"",
            "\"\\x\"",
            "\"\\ud83d\"",
            "\"\u{1}\"",
            "\"unfinished",
            "\"\\\"",
            "[]",
            "[ ]",
            "[1,]",
            "[1 2]",
            "[1, [2, {}]]",
            "{}",
            "{\"a\" : 1}",
            "{\"a\": 1,}",
            "{a: 1}",
            "{\"a\" 1}",
            "true",
            "tru",
            "null",
            "nul",
            "NaN",
            "Infinity",
            "",
            " ",
            "1 1",
            "{\"a\": 1}}",
            "\u{feff}1",
            "'a'",
        ] {
            assert_eq!(parse(text.as_bytes()), serde_json::from_str(text).ok(), "{text}");
        }
        assert_eq!(parse(b"\"\xff\""), None);
        assert_eq!(parse("[".repeat(100_000).as_bytes()), None);
    }

    proptest! {
        #[test]
        fn texts_like_json_are_read_as_serde_json_reads_them(text in "[\\[\\]{}:, \n\"\\\\abu0-9.eE+-]{0,12}") {
            let expected = serde_json::from_str::<serde_json::Value>(&text).ok();
            // serde_json keeps the last of equal names too, but in the first one's place.
            prop_assert_eq!(parse(text.as_bytes()), expected, "{}", text);
        }

        #[test]
        fn skipping_accepts_the_same(text in "[\\[\\]{}:, \"\\\\a0-9.e-]{0,10}") {
            let mut json = Json::new(text.as_bytes());
            let skipped = json.skip().is_ok() && json.end().is_ok();
            prop_assert_eq!(skipped, serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
        }
    }
}
