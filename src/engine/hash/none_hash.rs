//! `NONE_HASH`, the parent of every first block (vLLM: `resolve_none_hash_seed` and `init_none_hash`
//! in `v1/core/kv_cache_utils.py`).

use std::borrow::Cow;
use std::fmt::Write;

use super::algorithm::PrefixCachingHashAlgo;
use super::block_hash::BlockDigest;
use super::hash_function::HashFunction;

/// The seed of the cryptographic algorithms. It is public: independent processes shall compute
/// equal hashes, and the strength of SHA-256 does not rest on a secret.
pub const DEFAULT_NONE_HASH_SEED: &str = "vllm-none-hash";

/// The string that `NONE_HASH` is the hash of: `PYTHONHASHSEED` if it is set, else the public seed
/// for a cryptographic algorithm, else `random` in hexadecimal.
///
/// vLLM draws `random` from the operating system. The engine has no randomness of its own: the
/// caller derives the bytes from the seed of the run.
pub fn resolve_none_hash_seed<'a>(
    algo: PrefixCachingHashAlgo,
    python_hash_seed: Option<&'a str>,
    random: &[u8; 32],
) -> Cow<'a, str> {
    match python_hash_seed {
        Some(seed) => Cow::Borrowed(seed),
        None if algo.is_cryptographic() => Cow::Borrowed(DEFAULT_NONE_HASH_SEED),
        None => Cow::Owned(random.iter().fold(String::with_capacity(64), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a string takes every character");
            hex
        })),
    }
}

/// `NONE_HASH` of a seed.
pub fn init_none_hash(algo: PrefixCachingHashAlgo, seed: &str) -> BlockDigest {
    HashFunction::new(algo).hash_text(seed)
}
