//! Sizes of caches, in the units that people think in.

use std::str::FromStr;

use serde::Serialize;

use crate::scenario::Scenario;

pub(super) const GIB: f64 = (1_u64 << 30) as f64;

/// A size as it is typed: `40GiB`, `500000tokens` or `28000blocks`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheSize {
    Gib(f64),
    Tokens(u64),
    /// Of the scenario's own block size; other block sizes get the same memory.
    Blocks(u64),
}

impl FromStr for CacheSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const HINT: &str = "give a number and its unit: 40GiB, 500000tokens or 28000blocks";
        let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = (text[..digits].trim(), &text[digits..]);
        let whole = || number.parse().ok().filter(|&it: &u64| (1..=1 << 40).contains(&it)).ok_or(HINT);
        match unit {
            "GiB" => match number.parse() {
                Ok(gib) if gib > 0.0 && gib <= 1e9 => Ok(Self::Gib(gib)),
                _ => Err(HINT.to_owned()),
            },
            "tokens" => Ok(Self::Tokens(whole()?)),
            "blocks" => Ok(Self::Blocks(whole()?)),
            _ => Err(HINT.to_owned()),
        }
    }
}

/// What a cache of a scenario holds for its memory, at one block size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CacheShape {
    /// Tokens in a block, those of all context-parallel ranks together.
    pub block_size_tokens: u32,
    /// Blocks that hold the same tokens, one in each KV cache group.
    pub num_groups: u32,
    /// Of a block, over all ranks.
    pub block_bytes: u64,
}

impl CacheShape {
    pub fn of(scenario: &Scenario) -> Self {
        let (block_size_tokens, _) = scenario.engine.resolve_kv_cache_block_sizes();
        let ranks = u64::from(scenario.file.engine.num_gpus());
        Self {
            block_size_tokens,
            num_groups: scenario.engine.kv_cache_groups.len().max(1) as u32,
            block_bytes: scenario.kv_cache_size.bytes_per_block * ranks,
        }
    }

    /// The whole blocks of a sequence that a cache of so many tokens holds, each with all groups.
    pub fn chain_blocks(&self, tokens: u64) -> u64 {
        tokens / u64::from(self.block_size_tokens)
    }

    /// vLLM's blocks, without the null block.
    pub fn blocks(&self, tokens: u64) -> u64 {
        self.chain_blocks(tokens) * u64::from(self.num_groups)
    }

    /// The tokens that so many of vLLM's blocks hold.
    pub fn tokens_of_blocks(&self, blocks: u64) -> u64 {
        blocks / u64::from(self.num_groups) * u64::from(self.block_size_tokens)
    }

    pub fn gib(&self, tokens: u64) -> f64 {
        self.blocks(tokens) as f64 * self.block_bytes as f64 / GIB
    }

    /// The tokens that fit into so much memory.
    pub fn tokens_of_gib(&self, gib: f64) -> u64 {
        self.tokens_of_blocks((gib * GIB / self.block_bytes as f64) as u64)
    }

    pub fn tokens(&self, size: CacheSize) -> u64 {
        match size {
            CacheSize::Gib(gib) => self.tokens_of_gib(gib),
            CacheSize::Tokens(tokens) => tokens,
            CacheSize::Blocks(blocks) => self.tokens_of_blocks(blocks),
        }
    }
}

/// `count` rising sizes from the first to the last, in equal ratios, each a multiple of `step`.
pub(super) fn spread(first: u64, last: u64, count: usize, step: u64) -> Vec<u64> {
    let ratio = last.max(1) as f64 / first.max(1) as f64;
    let size = |index: usize| {
        let share = if count > 1 { index as f64 / (count - 1) as f64 } else { 1.0 };
        let tokens = first as f64 * ratio.powf(share);
        ((tokens / step as f64).round() as u64).max(1) * step
    };
    let mut sizes: Vec<u64> = (0..count).map(size).collect();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_typed_with_their_unit() {
        assert_eq!("40GiB".parse(), Ok(CacheSize::Gib(40.0)));
        assert_eq!("0.5 GiB".parse(), Ok(CacheSize::Gib(0.5)));
        assert_eq!("500000tokens".parse(), Ok(CacheSize::Tokens(500_000)));
        assert_eq!("28000blocks".parse(), Ok(CacheSize::Blocks(28_000)));
        for wrong in ["40", "GiB", "40GB", "-1GiB", "infGiB", "0blocks", "1.5tokens", ""] {
            assert!(wrong.parse::<CacheSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn blocks_tokens_and_memory_are_one_size() {
        let shape = CacheShape { block_size_tokens: 16, num_groups: 2, block_bytes: 1 << 20 };
        // 2 GiB are 2,048 blocks, which are 1,024 of each group.
        assert_eq!(shape.tokens(CacheSize::Gib(2.0)), 1024 * 16);
        assert_eq!(shape.tokens(CacheSize::Blocks(2049)), 1024 * 16);
        assert_eq!(shape.blocks(1024 * 16 + 15), 2048);
        assert_eq!(shape.gib(1024 * 16), 2.0);
    }

    #[test]
    fn sizes_are_spread_in_equal_ratios() {
        assert_eq!(spread(64, 4096, 4, 64), [64, 256, 1024, 4096]);
        assert_eq!(spread(64, 128, 20, 64), [64, 128]);
        assert_eq!(spread(64, 4096, 1, 64), [4096]);
    }
}
