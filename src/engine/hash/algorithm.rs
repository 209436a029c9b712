//! The four options of `--prefix-caching-hash-algo` (vLLM: `utils/hashing.py`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_128;

use super::block_hash::BlockDigest;

/// How a block is serialized and hashed. The default is vLLM's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixCachingHashAlgo {
    /// SHA-256 of the pickle.
    #[default]
    Sha256,
    /// SHA-256 of the canonical CBOR.
    Sha256Cbor,
    /// XXH3, 128 bits, of the pickle.
    Xxhash,
    /// XXH3, 128 bits, of the canonical CBOR.
    XxhashCbor,
}

/// A name that is none of the four options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown prefix caching hash algorithm `{name}`: write `sha256`, `sha256_cbor`, `xxhash` or `xxhash_cbor`"
)]
pub struct UnknownHashAlgo {
    pub name: String,
}

impl PrefixCachingHashAlgo {
    pub const ALL: [Self; 4] = [Self::Sha256, Self::Sha256Cbor, Self::Xxhash, Self::XxhashCbor];

    /// vLLM's name of the option.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha256Cbor => "sha256_cbor",
            Self::Xxhash => "xxhash",
            Self::XxhashCbor => "xxhash_cbor",
        }
    }

    /// Whether collisions cannot be made on purpose, so that the seed may be public.
    pub const fn is_cryptographic(self) -> bool {
        matches!(self, Self::Sha256 | Self::Sha256Cbor)
    }

    /// Whether blocks are serialized as CBOR, not as a pickle.
    pub const fn uses_cbor(self) -> bool {
        matches!(self, Self::Sha256Cbor | Self::XxhashCbor)
    }

    /// The digest of serialized bytes: 32 bytes, or 16 in XXH3's canonical (big-endian) order.
    pub fn digest(self, serialized: &[u8]) -> BlockDigest {
        if self.is_cryptographic() {
            BlockDigest::from(<[u8; 32]>::from(Sha256::digest(serialized)))
        } else {
            BlockDigest::from(xxh3_128(serialized).to_be_bytes())
        }
    }
}

impl fmt::Display for PrefixCachingHashAlgo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PrefixCachingHashAlgo {
    type Err = UnknownHashAlgo;

    fn from_str(name: &str) -> Result<Self, UnknownHashAlgo> {
        Self::ALL
            .into_iter()
            .find(|algo| algo.name() == name)
            .ok_or_else(|| UnknownHashAlgo { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_text_and_in_serde() {
        for algo in PrefixCachingHashAlgo::ALL {
            assert_eq!(algo.to_string().parse(), Ok(algo));
            assert_eq!(serde_json::to_value(algo).unwrap(), algo.name());
            assert_eq!(serde_json::from_value::<PrefixCachingHashAlgo>(algo.name().into()).unwrap(), algo);
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_four() {
        let message = "md5".parse::<PrefixCachingHashAlgo>().unwrap_err().to_string();
        for part in ["`md5`", "`sha256`", "`sha256_cbor`", "`xxhash`", "`xxhash_cbor`"] {
            assert!(message.contains(part), "{message}");
        }
    }

    /// Published test vectors: FIPS 180-4 for "abc", and XXH3's empty input with seed 0.
    #[test]
    fn digests_are_the_published_ones() {
        assert_eq!(
            PrefixCachingHashAlgo::Sha256.digest(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(PrefixCachingHashAlgo::Xxhash.digest(b"").to_string(), "99aa06d3014798d86001c324468d497f");
    }
}
