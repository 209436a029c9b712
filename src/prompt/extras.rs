//! What a request carries beside its token ids and what enters its block hashes
//! (vLLM: `generate_block_hash_extra_keys` in `v1/core/kv_cache_utils.py`).

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

/// Prompt embeddings: a row-major float32 tensor of `num_tokens` rows and `dim` columns whose
/// element `(i, j)` is `start + i * dim + j`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PromptEmbeds {
    pub num_tokens: u32,
    pub dim: u32,
    pub start: i64,
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
