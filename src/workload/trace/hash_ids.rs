//! Prompts as lists of hash ids, each of which stands for the same number of tokens.

use super::fields::Range;
use super::json::Json;
use super::mistake::Mistake;
use crate::prompt::TokenRuns;

/// Token ids of hash ids lie below this, those of parts without an id from here up.
const END_OF_TOKENS: u64 = 1 << 62;

/// Reads lists of hash ids into one buffer.
pub(super) struct HashIds {
    /// The tokens of an id; the last of a prompt stands for what remains.
    id_tokens: u32,
    ids: Vec<u64>,
    has_lists: bool,
    /// Parts of prompts that have no id are nobody else's.
    next_rest_token: u64,
}

impl HashIds {
    pub fn new(id_tokens: u32) -> Self {
        Self { id_tokens, ids: Vec::new(), has_lists: false, next_rest_token: END_OF_TOKENS }
    }

    /// `None` before the first list.
    pub fn id_tokens(&self) -> Option<u32> {
        self.has_lists.then_some(self.id_tokens)
    }

    pub fn range(&self) -> Range {
        Range { what: "a list of whole numbers", min: 0, max: u64::MAX }
    }

    /// Takes another number of tokens for an id.
    pub fn set_id_tokens(&mut self, id_tokens: u32) {
        self.id_tokens = id_tokens;
    }

    /// Reads the list of a row; it is kept until the next.
    #[inline]
    pub fn read(&mut self, json: &mut Json<'_>) -> Result<(), Mistake> {
        self.ids.clear();
        self.has_lists = true;
        let range = self.range();
        if json.peek() != Some(b'[') {
            return Err(json.unexpected(range.to_string()));
        }
        json.list(|json| {
            self.ids.push(range.read(json)?);
            Ok(())
        })
    }

    /// Takes the ids of a row from somewhere else.
    pub fn set(&mut self, ids: impl Iterator<Item = Result<u64, Mistake>>) -> Result<(), Mistake> {
        self.ids.clear();
        self.has_lists = true;
        for id in ids {
            self.ids.push(id?);
        }
        Ok(())
    }

    /// The prompt of so many tokens, which the ids cover to its end.
    pub fn prompt(&self, input_tokens: u32) -> Result<TokenRuns, Mistake> {
        let needed = input_tokens.div_ceil(self.id_tokens);
        if self.ids.len() as u64 != u64::from(needed) {
            return Err(self.mismatch(input_tokens, &needed.to_string()));
        }
        Ok(self.runs(input_tokens))
    }

    /// The prompt of so many tokens; the ids may leave out what does not fill a whole one.
    pub fn prompt_with_rest(&mut self, input_tokens: u32) -> Result<TokenRuns, Mistake> {
        let (whole, all) = (input_tokens / self.id_tokens, input_tokens.div_ceil(self.id_tokens));
        let num_ids = self.ids.len() as u64;
        if num_ids != u64::from(whole) && num_ids != u64::from(all) {
            let needed = if whole == all { whole.to_string() } else { format!("{whole} or {all}") };
            return Err(self.mismatch(input_tokens, &needed));
        }
        let mut prompt = self.runs(input_tokens);
        let rest = input_tokens - prompt.len();
        prompt.push_run(self.next_rest_token, rest);
        self.next_rest_token += u64::from(rest);
        Ok(prompt)
    }

    /// Id `h` is the run of token ids from `h * id_tokens`. Ids so large that these would be too
    /// large, such as hashes of 64 bits, are folded.
    fn runs(&self, input_tokens: u32) -> TokenRuns {
        let id_tokens = u64::from(self.id_tokens);
        let end = END_OF_TOKENS / id_tokens;
        let mut prompt = TokenRuns::with_capacity(self.ids.len());
        for &id in &self.ids {
            let id = if id < end { id } else { id % end };
            let left = input_tokens - prompt.len();
            prompt.push_run(id * id_tokens, left.min(self.id_tokens));
        }
        prompt
    }

    fn mismatch(&self, input_tokens: u32, needed: &str) -> Mistake {
        Mistake::new(
            format!("{} ids of {} tokens each", self.ids.len(), self.id_tokens),
            format!("{needed} to cover the prompt's {input_tokens} tokens"),
        )
    }
}
