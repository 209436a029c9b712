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
        self.peek()?;
        let digits = &self.text[self.at..];
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
        if !is_whole {
            return None;
        }
        self.at += len;
        Some(value)
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
    fn raw_string(&mut self) -> Result<(&'a [u8], bool), Mistake> {
        let start = self.at + 1;
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
        if let Some(control) = content.iter().position(|&byte| byte < b' ') {
            self.at = start + control;
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

    /// Nothing but white space may be left.
    pub fn end(&mut self) -> Result<(), Mistake> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.malformed("the end of the row")),
        }
    }

    /// A mistake about the value that comes next, which is not what was `expected`; or about the
    /// JSON, if that is no value.
    pub fn unexpected(&mut self, expected: impl Into<String>) -> Mistake {
        let start = self.at;
        let found = match self.peek() {
            Some(b'{') => "an object".to_owned(),
            Some(b'[') => "a list".to_owned(),
            Some(b'"') => match self.string() {
                Ok(text) => shortened(&text),
                Err(mistake) => return Mistake { expected: expected.into(), ..mistake },
            },
            _ => match self.skip() {
                Ok(()) => {
                    let text = String::from_utf8_lossy(&self.text[start..self.at]);
                    format!("`{}`", text.trim())
                }
                Err(mistake) => return Mistake { expected: expected.into(), ..mistake },
            },
        };
        Mistake::new(found, expected)
    }

    fn malformed(&mut self, wanted: &str) -> Mistake {
        let column = self.at + 1;
        let found = match self.text.get(self.at) {
            None => format!("a row that ends at column {column}, where {wanted} should be"),
            Some(_) => format!("invalid JSON at column {column}, where {wanted} should be"),
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
