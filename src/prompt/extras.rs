//! What a request carries beside its token ids and what enters its block hashes
//! (vLLM: `generate_block_hash_extra_keys` in `v1/core/kv_cache_utils.py`).

use super::TokenRuns;

/// A LoRA adapter. Name and path are hashed; the id limits how many adapters share a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LoraRequest {
    pub name: String,
    pub id: u64,
    pub path: String,
}

/// A multimodal item, such as an image: equal identifiers mean equal content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MmItem {
    pub identifier: String,
    /// Position in the prompt of its first placeholder token.
    pub offset_tokens: u32,
    pub length_tokens: u32,
}

/// Prompt embeddings, a row for each token of the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PromptEmbeds {
    /// A row-major float32 tensor of `num_tokens` rows and `dim` columns whose element `(i, j)` is
    /// `start + i * dim + j`.
    Counting { num_tokens: u32, dim: u32, start: i64 },
    /// What a client makes of these tokens, whatever it is: rows of equal tokens are equal, others
    /// are not. Digests of blocks are of the tokens, since the numbers are not known.
    OfTokens(TokenRuns),
}

impl PromptEmbeds {
    pub fn num_tokens(&self) -> u32 {
        match self {
            Self::Counting { num_tokens, .. } => *num_tokens,
            Self::OfTokens(tokens) => tokens.len(),
        }
    }
}

/// All of these of one request; [`Default`] is a plain text request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PromptExtras {
    pub lora: Option<LoraRequest>,
    /// Sorted by offset.
    pub mm: Vec<MmItem>,
    pub cache_salt: Option<String>,
    pub prompt_embeds: Option<PromptEmbeds>,
}
