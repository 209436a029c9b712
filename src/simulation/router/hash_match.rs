//! Whether the hashes that a router computes can ever equal those in an engine's KV events.
//!
//! A router hashes a prompt's blocks itself and looks the digests up among those of the events. Two
//! digests are equal exactly when everything that goes into them is: the tokens (the same prompt),
//! the number of tokens in a block, the algorithm, and the seed that the first block's parent is made
//! of; unless two different inputs collide in 128 or 256 bits. So equality of the settings decides,
//! and no digest has to be computed: where all settings agree, router and engine share one
//! identity for each block; where one differs, no block ever matches.

use crate::engine::EngineConfig;
use crate::engine::hash::{PrefixCachingHashAlgo, common_none_hash_seed};

/// How a router hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterHash {
    pub algo: PrefixCachingHashAlgo,
    /// In tokens.
    pub block_size: u32,
    /// As `PYTHONHASHSEED`.
    pub python_hash_seed: Option<String>,
}

impl RouterHash {
    /// Why no hash of this router ever equals one of the engine, if that is so. `python_hash_seed` is
    /// the engine's `PYTHONHASHSEED`.
    pub fn mismatch(&self, engine: &EngineConfig, python_hash_seed: Option<&str>) -> Option<String> {
        if !engine.enable_prefix_caching {
            return Some("prefix caching is off, so there are no KV events".to_owned());
        }
        let (_, hash_block_size) = engine.resolve_kv_cache_block_sizes();
        if self.block_size != hash_block_size {
            return Some(format!(
                "the router hashes blocks of {} tokens, the engines of {hash_block_size}; set the router's \
                 block_size to {hash_block_size}",
                self.block_size
            ));
        }
        let engine_algo = engine.prefix_caching_hash_algo;
        if self.algo != engine_algo {
            return Some(format!(
                "the router hashes with {}, the engines with {engine_algo}; set the router's hash_algo to \
                 {engine_algo}",
                self.algo
            ));
        }
        let own = common_none_hash_seed(self.algo, self.python_hash_seed.as_deref());
        let engines = common_none_hash_seed(engine_algo, python_hash_seed);
        let (Some(own), Some(engines)) = (own, engines) else {
            return Some(format!(
                "with {engine_algo} each process draws a seed of its own; set python_hash_seed to the same \
                 value for the engines and the router"
            ));
        };
        if own != engines {
            return Some(format!(
                "the router's hashes begin with the seed `{own}`, the engines' with `{engines}`; set \
                 python_hash_seed to the same value for both"
            ));
        }
        (engine.num_hash_lookahead_tokens() > 0).then(|| {
            "the engines' hashes also cover the token after each block (EAGLE), the router's do not; set \
             disable_lookahead_block_hashes"
                .to_owned()
        })
    }
}
