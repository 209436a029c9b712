//! Texts as tokens, for the formats that hold texts.
//!
//! With a tokenizer of Hugging Face the tokens are those of the model. Without one a rule stands in:
//! so many characters are a token. Equal texts are equal tokens either way, which is all that the
//! prefix cache asks for.
//!
//! A chat template puts some tokens of its own around each message. They are counted, with one
//! number for all messages, and are equal for equal roles.

use std::cell::Cell;

use xxhash_rust::xxh3::xxh3_64;

use super::config::TextConfig;
use super::hf_tokenizer::HfTokenizer;
use super::mistake::Mistake;
use crate::prompt::TokenRuns;
use crate::workload::distribution::MAX_LENGTH_TOKENS;

/// Without a tokenizer texts are compared in pieces of so many tokens: two texts that differ within
/// a piece share none of it. Each piece is one run of ids, which keeps prompts small.
const PIECE_TOKENS: u32 = 16;

/// Ids of texts lie below this; the runs of pieces and templates start at multiples of
/// [`RUN_TOKENS`].
const END_OF_TOKENS: u64 = 1 << 62;
const RUN_TOKENS: u64 = 1 << 10;

pub(super) struct Text {
    tokenizer: Option<HfTokenizer>,
    config: TextConfig,
    /// Some text was read.
    is_used: Cell<bool>,
}

impl Text {
    pub fn new(config: &TextConfig, tokenizer: Option<&HfTokenizer>) -> Self {
        Self { tokenizer: tokenizer.cloned(), config: config.clone(), is_used: Cell::new(false) }
    }

    /// The rule in words, for the report; nothing as long as there was no text.
    pub fn notes(&self) -> Vec<String> {
        if !self.is_used.get() {
            return Vec::new();
        }
        let rule = match &self.tokenizer {
            Some(tokenizer) => format!("texts are tokenised with {}", tokenizer.name()),
            None => format!("{} characters of text count as a token", self.config.characters_per_token),
        };
        let template = self.config.template_tokens_per_message;
        vec![format!("{rule}, and the chat template as {template} tokens for each message")]
    }

    /// Placeholder tokens of an image, if set.
    pub fn image_tokens(&self) -> Option<u32> {
        self.config.image_tokens
    }

    /// Appends what the chat template puts in front of a message of `role`.
    pub fn push_template(&self, tokens: &mut TokenRuns, role: &str) -> Result<(), Mistake> {
        push_run(tokens, run_start(role.as_bytes()), self.config.template_tokens_per_message)
    }

    /// Appends the tokens of a text.
    pub fn push(&self, tokens: &mut TokenRuns, text: &str) -> Result<(), Mistake> {
        self.is_used.set(true);
        match &self.tokenizer {
            Some(tokenizer) => {
                for id in tokenizer.encode(text)? {
                    push_run(tokens, u64::from(id), 1)?;
                }
                Ok(())
            }
            None => self.push_pieces(tokens, text),
        }
    }

    fn push_pieces(&self, tokens: &mut TokenRuns, text: &str) -> Result<(), Mistake> {
        // Thousandths of a character, in whole numbers: a prefix of a text must have the same pieces.
        let token = (self.config.characters_per_token * 1000.0).round() as u64;
        let piece_end = |piece: u64| (piece * u64::from(PIECE_TOKENS) * token).div_ceil(1000);
        let mut rest = text;
        let mut piece = 0;
        while !rest.is_empty() {
            let num_characters = piece_end(piece + 1) - piece_end(piece);
            let (len, found) = take_characters(rest, num_characters);
            let num_tokens =
                if found == num_characters { PIECE_TOKENS } else { (found * 1000).div_ceil(token) as u32 };
            push_run(tokens, run_start(&rest.as_bytes()[..len]), num_tokens)?;
            rest = &rest[len..];
            piece += 1;
        }
        Ok(())
    }
}

/// The bytes of the first `most` characters, and how many there are.
fn take_characters(text: &str, most: u64) -> (usize, u64) {
    let most_bytes = most as usize;
    if text.len() >= most_bytes && text.as_bytes()[..most_bytes].is_ascii() {
        return (most_bytes, most);
    }
    let mut found = 0;
    for (at, _) in text.char_indices() {
        if found == most {
            return (at, found);
        }
        found += 1;
    }
    (text.len(), found)
}

/// Where the ids of a run that stands for some bytes begin.
fn run_start(bytes: &[u8]) -> u64 {
    xxh3_64(bytes) % (END_OF_TOKENS / RUN_TOKENS) * RUN_TOKENS
}

/// Appends a run, unless the whole gets too long.
pub(super) fn push_run(tokens: &mut TokenRuns, start: u64, len: u32) -> Result<(), Mistake> {
    if u64::from(tokens.len()) + u64::from(len) > u64::from(MAX_LENGTH_TOKENS) {
        let most = MAX_LENGTH_TOKENS;
        return Err(Mistake::new(
            "a text of more tokens than can be counted",
            format!("at most {most} tokens"),
        ));
    }
    tokens.push_run(start, len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(characters_per_token: f64, text: &str) -> TokenRuns {
        let config = TextConfig { characters_per_token, ..TextConfig::default() };
        let mut tokens = TokenRuns::new();
        Text::new(&config, None).push(&mut tokens, text).unwrap();
        tokens
    }

    fn shared(a: &TokenRuns, b: &TokenRuns) -> u32 {
        (0..a.len().min(b.len())).take_while(|&at| a.get(at) == b.get(at)).count() as u32
    }

    #[test]
    fn a_token_is_so_many_characters() {
        assert_eq!(tokens(4.0, "").len(), 0);
        assert_eq!(tokens(4.0, "a").len(), 1);
        assert_eq!(tokens(4.0, &"a".repeat(400)).len(), 100);
        assert_eq!(tokens(4.0, &"a".repeat(401)).len(), 101);
        // Characters, not bytes.
        assert_eq!(tokens(2.0, &"語".repeat(100)).len(), 50);
        // 1,000 / 3.7 is 270.3; each piece of 16 tokens is 59 or 60 characters.
        assert_eq!(tokens(3.7, &"a".repeat(1000)).len(), 271);
    }

    #[test]
    fn texts_share_the_pieces_that_they_begin_with() {
        let long: String = (0..200).map(|number| format!("{number:04}")).collect();
        let (whole, part) = (tokens(4.0, &long), tokens(4.0, &long[..640]));
        assert_eq!((whole.len(), part.len(), shared(&whole, &part)), (200, 160, 160));
        // The last 40 characters differ: 10 pieces of 64 characters are equal.
        let other = tokens(4.0, &format!("{}{}", &long[..760], "x".repeat(40)));
        assert_eq!(shared(&whole, &other), 11 * 16);
        assert!(whole.ids(0, 200).all(|id| id < END_OF_TOKENS));
    }
}
