//! What kind of KV cache a group of layers needs (`v1/kv_cache_interface.py`).

/// The spec of one KV cache group. Sizes in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KvCacheSpec {
    /// `FullAttentionSpec`: every block is kept until the request ends.
    FullAttention { block_size: u32 },
    /// `SlidingWindowSpec`: only the last `sliding_window` tokens are read.
    SlidingWindow { block_size: u32, sliding_window: u32 },
    /// `ChunkedLocalAttentionSpec`: only the current chunk is read.
    ChunkedLocalAttention { block_size: u32, attention_chunk_size: u32 },
    /// `MambaSpec` in cache mode "align": a block is the state after its last token.
    Mamba { block_size: u32 },
}

impl KvCacheSpec {
    pub const fn full(block_size: u32) -> Self {
        Self::FullAttention { block_size }
    }

    /// Tokens in a block of one rank.
    pub const fn block_size(&self) -> u32 {
        match *self {
            Self::FullAttention { block_size }
            | Self::SlidingWindow { block_size, .. }
            | Self::ChunkedLocalAttention { block_size, .. }
            | Self::Mamba { block_size } => block_size,
        }
    }

    pub const fn is_full(&self) -> bool {
        matches!(self, Self::FullAttention { .. })
    }

    pub const fn is_mamba(&self) -> bool {
        matches!(self, Self::Mamba { .. })
    }

    /// `KVCacheSpecKind`, as KV events name it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::FullAttention { .. } => "full_attention",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::ChunkedLocalAttention { .. } => "chunked_local_attention",
            Self::Mamba { .. } => "mamba",
        }
    }

    /// The window that KV events publish.
    pub const fn sliding_window(&self) -> Option<u32> {
        match *self {
            Self::SlidingWindow { sliding_window, .. } => Some(sliding_window),
            _ => None,
        }
    }

    /// What makes the spec unusable, if anything does.
    pub const fn problem(&self) -> Option<&'static str> {
        match *self {
            Self::SlidingWindow { sliding_window: 0, .. } => Some("sliding_window is 0"),
            Self::ChunkedLocalAttention { attention_chunk_size: 0, .. } => Some("chunk_size is 0"),
            _ if self.block_size() == 0 => Some("block_size is 0"),
            _ => None,
        }
    }

    /// Most blocks that a request holds at once, for kinds that give blocks back while it runs
    /// (`max_admission_blocks_per_request`).
    pub fn max_admission_blocks_per_request(
        &self,
        max_in_flight_tokens: u32,
        max_model_len: u32,
    ) -> Option<u32> {
        match *self {
            Self::SlidingWindow { block_size, sliding_window } => {
                let tokens = (sliding_window - 1).saturating_add(max_in_flight_tokens).min(max_model_len);
                // One more, since the window need not start at a block's first token.
                Some(tokens.div_ceil(block_size) + 1)
            }
            Self::ChunkedLocalAttention { block_size, attention_chunk_size } => {
                let tokens = attention_chunk_size.saturating_add(max_in_flight_tokens).min(max_model_len);
                Some(tokens.div_ceil(block_size))
            }
            Self::FullAttention { .. } | Self::Mamba { .. } => None,
        }
    }
}
