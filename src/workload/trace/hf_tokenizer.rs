//! A tokenizer of Hugging Face, read from its `tokenizer.json`.
//!
//! Built with the feature `tokenizers`; without it none can be made.

use super::mistake::Mistake;

/// Turns texts into the token ids of a model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HfTokenizer {
    name: String,
    #[cfg(feature = "tokenizers")]
    tokenizer: std::sync::Arc<tokenizers::Tokenizer>,
}

#[cfg(feature = "tokenizers")]
impl HfTokenizer {
    /// Reads the content of a `tokenizer.json`; `name` is what the report calls it.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn new(name: &str, json: &[u8]) -> Result<Self, String> {
        let tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(|error| error.to_string())?;
        Ok(Self { name: name.to_owned(), tokenizer: std::sync::Arc::new(tokenizer) })
    }

    /// Without the special tokens that a template would add.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, Mistake> {
        let encoding = self.tokenizer.encode_fast(text, false);
        let encoding = encoding.map_err(|error| {
            Mistake::new(format!("a text that {} cannot encode: {error}", self.name), "another text")
        })?;
        Ok(encoding.get_ids().to_vec())
    }
}

#[cfg(not(feature = "tokenizers"))]
impl HfTokenizer {
    /// Refuses: this build has no tokenizers.
    ///
    /// # Errors
    /// Always.
    pub fn new(_name: &str, _json: &[u8]) -> Result<Self, String> {
        Err("this kvsim was built without tokenizers: build it with `--features tokenizers`, or leave \
             `tokenizer` out and count characters"
            .to_owned())
    }

    pub(super) fn encode(&self, _text: &str) -> Result<Vec<u32>, Mistake> {
        Ok(Vec::new())
    }
}

impl HfTokenizer {
    /// What the report calls it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(all(test, feature = "tokenizers"))]
mod tests {
    use super::*;

    /// Made up: words and their numbers.
    const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "hello": 1, "world": 2}, "unk_token": "[UNK]"}}"#;

    #[test]
    fn texts_become_the_ids_of_the_tokenizer() {
        let tokenizer = HfTokenizer::new("words", WORDS.as_bytes()).unwrap();
        assert_eq!(tokenizer.encode("hello big world").unwrap(), [1_u32, 0, 2]);
        assert!(tokenizer.encode("").unwrap().is_empty());
        assert!(HfTokenizer::new("words", b"{}").is_err());
    }
}
