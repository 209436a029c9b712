//! What enters the hash of a block beside its tokens and its parent
//! (vLLM: `generate_block_hash_extra_keys` in `v1/core/kv_cache_utils.py`).

use sha2::{Digest, Sha256};

use crate::prompt::{MmItem, PromptEmbeds, PromptExtras};

/// One extra key of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtraKey<'a> {
    Lora {
        name: &'a str,
        path: &'a str,
    },
    Mm {
        identifier: &'a str,
        /// From the begin of the block to the begin of the item; negative in later blocks of it.
        offset_tokens: i64,
    },
    CacheSalt(&'a str),
    /// SHA-256 of the rows of the block.
    PromptEmbeds([u8; 32]),
}

impl ExtraKey<'_> {
    /// What vLLM writes in front of the key, so that keys of two kinds are never equal.
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Lora { .. } => "lora",
            Self::Mm { .. } => "mm",
            Self::CacheSalt(_) => "cache_salt",
            Self::PromptEmbeds(_) => "prompt_embeds",
        }
    }

    /// The form of KV events.
    pub fn to_event(&self) -> EventExtraKey {
        match *self {
            Self::Lora { name: text, .. } | Self::CacheSalt(text) => EventExtraKey::Text(text.to_owned()),
            Self::Mm { identifier, offset_tokens } => {
                EventExtraKey::MmItem { identifier: identifier.to_owned(), offset_tokens }
            }
            Self::PromptEmbeds(digest) => EventExtraKey::Bytes(digest),
        }
    }
}

/// An extra key as KV events publish it, without its tag (vLLM: `to_event_extra_keys`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventExtraKey {
    /// The name of a LoRA adapter or a cache salt.
    Text(String),
    MmItem {
        identifier: String,
        offset_tokens: i64,
    },
    /// The digest of prompt embeddings.
    Bytes([u8; 32]),
}

/// The third item of the tuple that vLLM hashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockExtraKeys<'a> {
    pub keys: &'a [ExtraKey<'a>],
    /// The tokens after the block that its hash covers. If there are any, the item is the tuple
    /// of the keys (or None) and these.
    pub lookahead_token_ids: &'a [u64],
}

/// Writes the extra keys of the positions `start..end` into `keys`, which it empties first.
///
/// `mm_index` is the first multimodal item to look at: 0, or what the call for the block before
/// returned. A result of no keys is vLLM's None.
pub fn generate_block_hash_extra_keys<'a>(
    extras: &'a PromptExtras,
    start: u32,
    end: u32,
    mm_index: usize,
    keys: &mut Vec<ExtraKey<'a>>,
) -> usize {
    keys.clear();
    if let Some(lora) = &extras.lora {
        keys.push(ExtraKey::Lora { name: &lora.name, path: &lora.path });
    }
    let next_mm_index = push_mm_keys(&extras.mm, start, end, mm_index, keys);
    if let Some(salt) = &extras.cache_salt
        && start == 0
        && !salt.is_empty()
    {
        keys.push(ExtraKey::CacheSalt(salt));
    }
    if let Some(embeds) = &extras.prompt_embeds {
        keys.push(ExtraKey::PromptEmbeds(prompt_embeds_digest(embeds, start, end)));
    }
    next_mm_index
}

/// The same for a block `start..end` whose hash also covers `num_lookahead_tokens` more. The returned
/// index goes back to the items that the next block shares with those tokens
/// (vLLM: `generate_lookahead_block_hash_extra_keys`).
pub fn generate_lookahead_block_hash_extra_keys<'a>(
    extras: &'a PromptExtras,
    start: u32,
    end: u32,
    num_lookahead_tokens: u32,
    mm_index: usize,
    keys: &mut Vec<ExtraKey<'a>>,
) -> usize {
    let mut next = generate_block_hash_extra_keys(extras, start, end + num_lookahead_tokens, mm_index, keys);
    while next > 0 && end_of(&extras.mm[next - 1]) > u64::from(end) {
        next -= 1;
    }
    next
}

/// The position after the last token of an item.
pub(super) fn end_of(item: &MmItem) -> u64 {
    u64::from(item.offset_tokens) + u64::from(item.length_tokens)
}

fn push_mm_keys<'a>(
    items: &'a [MmItem],
    start: u32,
    end: u32,
    mm_index: usize,
    keys: &mut Vec<ExtraKey<'a>>,
) -> usize {
    if items.last().is_none_or(|last| end_of(last) <= u64::from(start)) {
        return mm_index;
    }
    let mut index = mm_index;
    while let Some(item) = items.get(index)
        && item.offset_tokens < end
    {
        if end_of(item) > u64::from(start) {
            let offset_tokens = i64::from(item.offset_tokens) - i64::from(start);
            keys.push(ExtraKey::Mm { identifier: &item.identifier, offset_tokens });
            if end_of(item) > u64::from(end) {
                break;
            }
        }
        index += 1;
    }
    index
}

/// SHA-256 of the little-endian values of those rows of `start..end` that exist: past the prompt that
/// is the SHA-256 of nothing.
fn prompt_embeds_digest(embeds: &PromptEmbeds, start: u32, end: u32) -> [u8; 32] {
    let mut sha256 = Sha256::new();
    match embeds {
        PromptEmbeds::Counting { num_tokens, dim, start: first_element } => {
            for row in start..end.min(*num_tokens) {
                let first = i128::from(*first_element) + i128::from(row) * i128::from(*dim);
                for element in first..first + i128::from(*dim) {
                    sha256.update((element as f32).to_le_bytes());
                }
            }
        }
        PromptEmbeds::OfTokens(tokens) => {
            for id in tokens.ids(start, end.min(tokens.len())) {
                sha256.update(id.to_le_bytes());
            }
        }
    }
    sha256.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::LoraRequest;

    fn item(identifier: &str, offset_tokens: u32, length_tokens: u32) -> MmItem {
        MmItem { identifier: identifier.to_owned(), offset_tokens, length_tokens }
    }

    fn mm<'a>(identifier: &'a str, offset_tokens: i64) -> ExtraKey<'a> {
        ExtraKey::Mm { identifier, offset_tokens }
    }

    #[test]
    fn keys_come_in_the_order_lora_mm_salt_embeds() {
        let extras = PromptExtras {
            lora: Some(LoraRequest { name: "alpha".into(), id: 1, path: "/a".into() }),
            mm: vec![item("img", 2, 3)],
            cache_salt: Some("tenant".into()),
            prompt_embeds: Some(PromptEmbeds::Counting { num_tokens: 4, dim: 2, start: 0 }),
        };
        let mut keys = Vec::new();
        generate_block_hash_extra_keys(&extras, 0, 4, 0, &mut keys);
        let tags: Vec<_> = keys.iter().map(ExtraKey::tag).collect();
        assert_eq!(tags, ["lora", "mm", "cache_salt", "prompt_embeds"]);
        let events: Vec<_> = keys[..3].iter().map(ExtraKey::to_event).collect();
        assert_eq!(
            events,
            [
                EventExtraKey::Text("alpha".into()),
                EventExtraKey::MmItem { identifier: "img".into(), offset_tokens: 2 },
                EventExtraKey::Text("tenant".into()),
            ]
        );
        // The second block has neither the item nor the salt.
        generate_block_hash_extra_keys(&extras, 4, 8, 1, &mut keys);
        let tags: Vec<_> = keys.iter().map(ExtraKey::tag).collect();
        assert_eq!(tags, ["lora", "prompt_embeds"]);
        // Its embeddings do not exist: SHA-256 of nothing.
        let ExtraKey::PromptEmbeds(digest) = keys[1] else { panic!("{keys:?}") };
        assert_eq!(digest[..4], [0xe3, 0xb0, 0xc4, 0x42]);
    }

    #[test]
    fn an_item_is_a_key_of_each_block_it_overlaps() {
        let extras = PromptExtras { mm: vec![item("a", 3, 6), item("b", 9, 1)], ..Default::default() };
        let mut keys = Vec::new();
        let mut index = 0;
        let mut blocks = Vec::new();
        for start in [0, 4, 8, 12] {
            index = generate_block_hash_extra_keys(&extras, start, start + 4, index, &mut keys);
            blocks.push(keys.clone());
        }
        assert_eq!(blocks, [vec![mm("a", 3)], vec![mm("a", -1)], vec![mm("a", -5), mm("b", 1)], vec![]]);
    }

    #[test]
    fn a_lookahead_covers_an_item_that_begins_with_the_next_block() {
        let extras = PromptExtras { mm: vec![item("a", 4, 1), item("b", 5, 1)], ..Default::default() };
        let mut keys = Vec::new();
        let index = generate_lookahead_block_hash_extra_keys(&extras, 0, 4, 1, 0, &mut keys);
        assert_eq!(keys, [mm("a", 4)]);
        assert_eq!(index, 0, "the next block needs the item again");
        generate_lookahead_block_hash_extra_keys(&extras, 4, 8, 1, index, &mut keys);
        assert_eq!(keys, [mm("a", 0), mm("b", 1)]);
    }

    #[test]
    fn an_empty_salt_is_no_key() {
        let extras = PromptExtras { cache_salt: Some(String::new()), ..Default::default() };
        let mut keys = Vec::new();
        generate_block_hash_extra_keys(&extras, 0, 4, 0, &mut keys);
        assert!(keys.is_empty());
    }
}
