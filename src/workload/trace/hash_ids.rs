//! Prompts as lists of hash ids, each of which stands for the same number of tokens.

use super::fields::Range;
use super::json::Json;
use super::mistake::Mistake;
use crate::prompt::TokenRuns;

/// Token ids of hash ids lie below this.
const END_OF_TOKENS: u64 = 1 << 62;

/// Reads lists of hash ids into one buffer.
pub(super) struct HashIds {
    /// The tokens of an id; the last of a prompt stands for what remains.
    id_tokens: u32,
    range: Range,
    ids: Vec<u64>,
}

impl HashIds {
    pub fn new(id_tokens: u32) -> Self {
        let max = END_OF_TOKENS / u64::from(id_tokens) - 1;
        Self { id_tokens, range: Range { what: "a list of whole numbers", min: 0, max }, ids: Vec::new() }
    }

    pub fn range(&self) -> Range {
        self.range
    }

    /// Reads the list of a row; it is kept until the next.
    pub fn read(&mut self, json: &mut Json<'_>) -> Result<(), Mistake> {
        self.ids.clear();
        if json.peek() != Some(b'[') {
            return Err(json.unexpected(self.range.to_string()));
        }
        json.list(|json| {
            self.ids.push(self.range.read(json)?);
            Ok(())
        })
    }

    /// The prompt of so many tokens: id `h` is the run of token ids from `h * id_tokens`.
    pub fn prompt(&self, input_tokens: u32) -> Result<TokenRuns, Mistake> {
        let needed = input_tokens.div_ceil(self.id_tokens);
        if self.ids.len() as u64 != u64::from(needed) {
            return Err(Mistake::new(
                format!("{} ids of {} tokens each", self.ids.len(), self.id_tokens),
                format!("{needed} to cover `input_length`, {input_tokens}"),
            ));
        }
        let mut prompt = TokenRuns::new();
        for id in &self.ids {
            let left = input_tokens - prompt.len();
            prompt.push_run(id * u64::from(self.id_tokens), left.min(self.id_tokens));
        }
        Ok(prompt)
    }
}
