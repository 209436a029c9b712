//! The digest of a block, its key in a map and its form in KV events, and the compact identity that
//! the engine uses in place of the digest (vLLM: `v1/core/kv_cache_utils.py`).

use std::fmt;

/// What the engine keys its maps by. Equal exactly when vLLM's digests are equal, within one
/// [`RequestBlockHasher`](super::RequestBlockHasher); the number itself has no meaning outside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u32);

/// vLLM's hash of a block: 32 bytes of SHA-256 or 16 of XXH3.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockDigest {
    /// The bytes behind `len` are zero.
    bytes: [u8; 32],
    len: u8,
}

/// How KV events publish a digest (vLLM: `ExternalBlockHash`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExternalBlockHash {
    /// The low 64 bits of the digest as a big-endian number.
    Int(u64),
    Bytes(BlockDigest),
}

impl BlockDigest {
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The key of a block of one KV cache group: the digest, then the group id as 4 big-endian bytes
    /// (vLLM: `make_block_hash_with_group_id`).
    pub fn with_group_id(&self, group_id: u32) -> Vec<u8> {
        [self.as_bytes(), &group_id.to_be_bytes()].concat()
    }

    /// The low 64 bits of the digest as a big-endian number.
    pub fn low_u64(&self) -> u64 {
        self.as_bytes()[self.as_bytes().len() - 8..]
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// The form of KV events; `as_int` is `VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES`
    /// (vLLM: `maybe_convert_block_hash`).
    pub fn external(&self, as_int: bool) -> ExternalBlockHash {
        if as_int { ExternalBlockHash::Int(self.low_u64()) } else { ExternalBlockHash::Bytes(*self) }
    }
}

impl From<[u8; 32]> for BlockDigest {
    fn from(bytes: [u8; 32]) -> Self {
        Self { bytes, len: 32 }
    }
}

impl From<[u8; 16]> for BlockDigest {
    fn from(short: [u8; 16]) -> Self {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&short);
        Self { bytes, len: 16 }
    }
}

/// Lowercase hexadecimal, as in conformance logs.
impl fmt::Display for BlockDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlockDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_follow_from_the_bytes() {
        let digest = BlockDigest::from(std::array::from_fn::<u8, 16, _>(|i| 0xf0 + i as u8));
        assert_eq!(digest.to_string(), "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        assert_eq!(digest.external(true), ExternalBlockHash::Int(0xf8f9_fafb_fcfd_feff));
        assert_eq!(digest.external(false), ExternalBlockHash::Bytes(digest));
        let key = digest.with_group_id(0x0102_0304);
        assert_eq!((&key[..16], &key[16..]), (digest.as_bytes(), [1, 2, 3, 4].as_slice()));
    }
}
