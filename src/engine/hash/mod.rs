//! Block hashes: vLLM's own, byte for byte, and an exact identity in their place.
//!
//! vLLM names a full block by a hash over its parent's hash, its tokens and its extra keys. The
//! digest costs a serialization and a SHA-256, while a simulation mostly asks whether two blocks are
//! equal. So the engine keys its maps by [`BlockHash`], and one [`RequestBlockHasher`] makes them in
//! one of two ways: as places in a trie of all token runs ([`RequestBlockHasher::identity`]), or as
//! numbers for real digests ([`RequestBlockHasher::digests`]), which KV events, conformance logs and
//! routers that hash need.
//!
//! The algorithms are vLLM 0.33.0's four ([`PrefixCachingHashAlgo`]); `vllm/utils/hashing.py` and
//! `vllm/v1/core/kv_cache_utils.py` are the reference.

mod algorithm;
mod block_hash;
mod block_numbers;
mod cbor;
mod digest_chain;
mod extra_keys;
mod hash_function;
mod identity;
mod none_hash;
mod pickle;
mod request_hasher;

pub use algorithm::{PrefixCachingHashAlgo, UnknownHashAlgo};
pub use block_hash::{BlockDigest, BlockHash, ExternalBlockHash};
pub use extra_keys::{
    BlockExtraKeys, EventExtraKey, ExtraKey, generate_block_hash_extra_keys,
    generate_lookahead_block_hash_extra_keys,
};
pub use hash_function::HashFunction;
pub use none_hash::{DEFAULT_NONE_HASH_SEED, common_none_hash_seed, init_none_hash, resolve_none_hash_seed};
pub use request_hasher::{HashCursor, PromptHashes, RequestBlockHasher};
