//! Host time of hashing blocks, which vLLM does in Python: a serialization and a hash of it.
//!
//! ```text
//! prompt = blocks (block_ns + token_ns block_size) + blocks with extra keys extra_keys_ns
//! output = blocks (block_ns + token_ns block_size + append_ns)
//! ```
//!
//! The prompt's full blocks are hashed in the engine core's input thread when the request arrives
//! (`preprocess_add_request` in `v1/engine/core.py`): requests that arrive together wait for one
//! another, the step does not. Blocks that outputs fill are hashed where tokens are appended, in the
//! thread that schedules. Hits do not shorten it: the hashes are what is looked up.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::law::law;
use super::profile::{read_yaml, within_bounds};
use super::{FitError, ProfileError};
use crate::engine::hash::PrefixCachingHashAlgo;

law! {
    /// See the module. Nanoseconds.
    pub struct HashingLaw[] {
        block_ns = 1000.0 in [0.0, 1000000.0] else 0.0,
        token_ns = 15.0 in [0.0, 10000.0] else 0.0,
        /// What a LoRA adapter or an image adds to each of its blocks.
        extra_keys_ns = 300.0 in [0.0, 1000000.0] else 0.0,
        /// What a call for a single block adds.
        append_ns = 300.0 in [0.0, 1000000.0] else 0.0,
    }
}

/// The fitted law of one algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashingFit {
    pub rows: usize,
    /// Over the rows that were fitted.
    pub fit_error: FitError,
    pub law: HashingLaw,
}

/// How fast one machine hashes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HashingProfile {
    /// CPU, Python, vLLM.
    pub measured_on: String,
    pub date: String,
    pub algorithms: BTreeMap<PrefixCachingHashAlgo, HashingFit>,
}

impl HashingProfile {
    /// The one that comes with kvsim; it says on what CPU it was measured.
    ///
    /// # Errors
    /// None: a test reads the file.
    pub fn built_in() -> Result<&'static Self, ProfileError> {
        static READ: OnceLock<Result<HashingProfile, ProfileError>> = OnceLock::new();
        READ.get_or_init(|| Self::from_yaml(include_str!("profiles/hashing.yaml")))
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Reads one as `kvsim calibrate hashing` writes it.
    ///
    /// # Errors
    /// [`ProfileError::Yaml`] with the place, [`ProfileError::OutOfBounds`].
    pub fn from_yaml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = read_yaml(text)?;
        for (algorithm, fit) in &profile.algorithms {
            within_bounds(algorithm.name(), &fit.law)?;
        }
        Ok(profile)
    }

    /// The file's text.
    pub fn to_yaml(&self) -> String {
        // Writing plain data to a string cannot fail.
        serde_yaml::to_string(self).unwrap_or_default()
    }
}

/// What hashing costs a server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockHashing {
    block_size_tokens: u32,
    block_ns: f64,
    extra_keys_ns: f64,
    append_ns: f64,
}

impl BlockHashing {
    /// Hashing that takes no time: caching is off, or times are to be exact.
    pub const FREE: Self = Self { block_size_tokens: 1, block_ns: 0.0, extra_keys_ns: 0.0, append_ns: 0.0 };

    /// `hash_block_size` tokens to a hash.
    pub fn new(law: &HashingLaw, hash_block_size: u32) -> Self {
        Self {
            block_size_tokens: hash_block_size.max(1),
            block_ns: law.block_ns + law.token_ns * f64::from(hash_block_size),
            extra_keys_ns: law.extra_keys_ns,
            append_ns: law.append_ns,
        }
    }

    /// The prompt of a request that arrives, with extra keys in the blocks of `num_keyed_tokens`.
    pub fn prompt_ns(&self, num_tokens: u32, num_keyed_tokens: u32) -> u64 {
        let blocks = f64::from(num_tokens / self.block_size_tokens);
        let keyed = f64::from(num_keyed_tokens.min(num_tokens) / self.block_size_tokens);
        (blocks * self.block_ns + keyed * self.extra_keys_ns).round() as u64
    }

    /// Blocks that became full by output tokens.
    pub fn output_ns(&self, num_blocks: u64) -> u64 {
        (num_blocks as f64 * (self.block_ns + self.append_ns)).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_is_what_the_module_says() {
        let law = HashingLaw { block_ns: 1000.0, token_ns: 10.0, extra_keys_ns: 200.0, append_ns: 300.0 };
        let hashing = BlockHashing::new(&law, 16);
        assert_eq!(hashing.prompt_ns(15, 0), 0);
        assert_eq!(hashing.prompt_ns(100, 0), 6 * 1160);
        assert_eq!(hashing.prompt_ns(100, 40), 6 * 1160 + 2 * 200);
        assert_eq!(hashing.output_ns(3), 3 * 1460);
        assert_eq!(BlockHashing::FREE.prompt_ns(1_000_000, 1_000_000), 0);
        assert_eq!(BlockHashing::FREE.output_ns(1_000_000), 0);
    }

    #[test]
    fn every_algorithm_was_measured() {
        let profile = HashingProfile::built_in().unwrap();
        let measured: Vec<_> = profile.algorithms.keys().copied().collect();
        assert_eq!(measured, PrefixCachingHashAlgo::ALL);
        assert_eq!(&HashingProfile::from_yaml(&profile.to_yaml()).unwrap(), profile);
        // Serializing costs more in CBOR, and hashing more in SHA-256.
        let block_ns = |algorithm| BlockHashing::new(&profile.algorithms[&algorithm].law, 16).block_ns;
        assert!(block_ns(PrefixCachingHashAlgo::Xxhash) < block_ns(PrefixCachingHashAlgo::Sha256));
        assert!(block_ns(PrefixCachingHashAlgo::XxhashCbor) < block_ns(PrefixCachingHashAlgo::Sha256Cbor));
        assert!(block_ns(PrefixCachingHashAlgo::Sha256) < block_ns(PrefixCachingHashAlgo::XxhashCbor));
    }

    #[test]
    fn errors_give_the_place() {
        let error = HashingProfile::from_yaml("measured_on: x\ndate: y\nfast: 1\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3, column 1: "), "{error}");
    }
}
