//! Names of blocks that need no memory of other blocks: 64-bit hashes of everything up to their end.

use std::hash::{Hash, Hasher};

use xxhash_rust::xxh3::Xxh3Default;

use crate::engine::hash::generate_block_hash_extra_keys;
use crate::prompt::{PromptExtras, TokenRuns};

/// The hashes of the full blocks of a sequence, from its begin. Of n distinct blocks, some n^2 / 2^65
/// pairs share a hash: of 10^8, fewer than one in a thousand times.
pub(super) fn chain_hashes(
    tokens: &TokenRuns,
    extras: &PromptExtras,
    block_size: u32,
    hashes: &mut Vec<u64>,
) {
    hashes.clear();
    let has_extras = *extras != PromptExtras::default();
    let (mut keys, mut mm_index, mut hash) = (Vec::new(), 0, 0);
    let mut runs = tokens.runs().iter();
    // What is left of the run that the last block ended in.
    let (mut start, mut len) = (0, 0);
    for block in 0..tokens.len() / block_size {
        let begin = block * block_size;
        if has_extras {
            mm_index = generate_block_hash_extra_keys(extras, begin, begin + block_size, mm_index, &mut keys);
            if !keys.is_empty() {
                let mut of_keys = Xxh3Default::new();
                keys.hash(&mut of_keys);
                hash = mix(hash, of_keys.finish());
            }
        }
        let mut missing = block_size;
        while missing > 0 {
            if len == 0
                && let Some(run) = runs.next()
            {
                (start, len) = (run.start, run.len);
            }
            // Equal tokens are equal runs: no run continues the one before it.
            let taken = len.min(missing);
            hash = mix(mix(hash, start), u64::from(taken));
            (start, len) = (start.wrapping_add(u64::from(taken)), len - taken);
            missing -= taken;
        }
        hashes.push(hash);
    }
}

/// Two words to one: the finaliser of SplitMix64, whose every output bit depends on every input bit.
pub(super) fn mix(hash: u64, word: u64) -> u64 {
    let mut z = hash.rotate_left(29).wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
