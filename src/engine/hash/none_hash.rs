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

/// The seed that other processes with these settings have too; `None` when each draws its own.
pub fn common_none_hash_seed(algo: PrefixCachingHashAlgo, python_hash_seed: Option<&str>) -> Option<&str> {
    python_hash_seed.or(algo.is_cryptographic().then_some(DEFAULT_NONE_HASH_SEED))
}

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
    match common_none_hash_seed(algo, python_hash_seed) {
        Some(seed) => Cow::Borrowed(seed),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As vLLM 0.33.0 computes it without `PYTHONHASHSEED`.
    #[test]
    fn the_public_seed_gives_vllms_hash() {
        for (algo, expected) in [
            (
                PrefixCachingHashAlgo::Sha256,
                "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
            ),
            (
                PrefixCachingHashAlgo::Sha256Cbor,
                "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
            ),
        ] {
            let seed = resolve_none_hash_seed(algo, None, &[7; 32]);
            assert_eq!(init_none_hash(algo, &seed).to_string(), expected);
        }
    }

    /// An empty `PYTHONHASHSEED` is set, so it counts.
    #[test]
    fn the_environment_wins_over_both_seeds() {
        for algo in PrefixCachingHashAlgo::ALL {
            assert_eq!(resolve_none_hash_seed(algo, Some(""), &[7; 32]), "");
        }
        let random = resolve_none_hash_seed(PrefixCachingHashAlgo::Xxhash, None, &[7; 32]);
        assert_eq!(random, "07".repeat(32));
    }
}
