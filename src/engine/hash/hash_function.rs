//! vLLM's hash function of a block: serialize the tuple of parent, tokens and extra keys, then hash
//! the bytes (vLLM: `hash_block_tokens` in `v1/core/kv_cache_utils.py`, `utils/hashing.py`).

use std::ops::Range;

use super::algorithm::PrefixCachingHashAlgo;
use super::block_hash::BlockDigest;
use super::cbor;
use super::extra_keys::{BlockExtraKeys, ExtraKey};
use super::pickle::Pickler;
use crate::prompt::TokenRuns;

/// One of the four algorithms, with the buffers that it serializes into.
#[derive(Clone, Debug)]
pub struct HashFunction {
    algo: PrefixCachingHashAlgo,
    pickler: Pickler,
    cbor: Vec<u8>,
}

impl HashFunction {
    pub fn new(algo: PrefixCachingHashAlgo) -> Self {
        Self { algo, pickler: Pickler::default(), cbor: Vec::new() }
    }

    /// The hash of a string alone, which is how `NONE_HASH` is made.
    pub fn hash_text(&mut self, text: &str) -> BlockDigest {
        let serialized = if self.algo.uses_cbor() {
            self.cbor.clear();
            cbor::encode_text(text, &mut self.cbor);
            &self.cbor
        } else {
            self.pickler.start();
            self.pickler.string(text);
            self.pickler.finish()
        };
        self.algo.digest(serialized)
    }

    /// The hash of the block of the positions `range` of `tokens`, which must exist. `parent` is the
    /// hash of the block before, or `NONE_HASH`.
    pub fn hash_block_tokens(
        &mut self,
        parent: &BlockDigest,
        tokens: &TokenRuns,
        range: Range<u32>,
        extra: BlockExtraKeys<'_>,
    ) -> BlockDigest {
        let algo = self.algo;
        algo.digest(self.serialize_block(parent, tokens, range, extra))
    }

    /// The bytes that are hashed.
    pub fn serialize_block(
        &mut self,
        parent: &BlockDigest,
        tokens: &TokenRuns,
        range: Range<u32>,
        extra: BlockExtraKeys<'_>,
    ) -> &[u8] {
        if self.algo.uses_cbor() {
            self.cbor.clear();
            cbor::encode_block(parent, tokens, range, extra, &mut self.cbor);
            &self.cbor
        } else {
            pickle_block(&mut self.pickler, parent, tokens, range, extra)
        }
    }
}

fn pickle_block<'p>(
    pickler: &'p mut Pickler,
    parent: &BlockDigest,
    tokens: &TokenRuns,
    range: Range<u32>,
    extra: BlockExtraKeys<'_>,
) -> &'p [u8] {
    pickler.start();
    pickler.begin_tuple(3);
    pickler.bytes(parent.as_bytes());
    pickler.begin_tuple(range.len());
    for run in tokens.slice(range.start, range.end) {
        for i in 0..u64::from(run.len) {
            pickler.unsigned(run.start.wrapping_add(i));
        }
    }
    pickler.end_tuple(range.len());
    if extra.lookahead_token_ids.is_empty() {
        pickle_extra_keys(pickler, extra.keys);
    } else {
        let len = 1 + extra.lookahead_token_ids.len();
        pickler.begin_tuple(len);
        pickle_extra_keys(pickler, extra.keys);
        for &token in extra.lookahead_token_ids {
            pickler.unsigned(token);
        }
        pickler.end_tuple(len);
    }
    pickler.end_tuple(3);
    pickler.finish()
}

fn pickle_extra_keys(pickler: &mut Pickler, keys: &[ExtraKey<'_>]) {
    if keys.is_empty() {
        return pickler.none();
    }
    pickler.begin_tuple(keys.len());
    for key in keys {
        let len = match key {
            ExtraKey::Lora { .. } | ExtraKey::Mm { .. } => 3,
            ExtraKey::CacheSalt(_) | ExtraKey::PromptEmbeds(_) => 2,
        };
        pickler.begin_tuple(len);
        pickler.constant(key.tag());
        match *key {
            ExtraKey::Lora { name, path } => {
                pickler.string(name);
                pickler.string(path);
            }
            ExtraKey::Mm { identifier, offset_tokens } => {
                pickler.string(identifier);
                pickler.signed(offset_tokens);
            }
            ExtraKey::CacheSalt(salt) => pickler.string(salt),
            ExtraKey::PromptEmbeds(digest) => pickler.bytes(&digest),
        }
        pickler.end_tuple(len);
    }
    pickler.end_tuple(keys.len());
}
