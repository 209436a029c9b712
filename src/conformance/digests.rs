//! Digests of the free queue's order and of the hash map's content, kept up to date from the pool's
//! journal, so that a log line does not walk the whole pool.

use crate::engine::hash::BlockDigest;
use crate::engine::kv_cache::{BlockPool, JournalEntry};
use crate::engine::scheduler::Scheduler;

const M: u64 = 0x9E37_79B9_7F4A_7C15;
/// `M * M_INVERSE == 1` modulo 2^64.
const M_INVERSE: u64 = inverse(M);

const fn inverse(odd: u64) -> u64 {
    // Newton's iteration doubles the number of right bits; an odd number is its own inverse to 3.
    let mut x = odd;
    let mut i = 0;
    while i < 5 {
        x = x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x)));
        i += 1;
    }
    x
}

fn mix(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn pair_digest(digest: &BlockDigest, group_id: u32, block: u32) -> u64 {
    let bytes = digest.as_bytes();
    let eight = |part: &[u8]| part.iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
    let head = eight(&bytes[..8]);
    let tail = eight(&bytes[bytes.len() - 8..]);
    mix(head ^ mix(tail ^ mix(u64::from(group_id) << 32 | u64::from(block))))
}

#[derive(Debug)]
pub(super) struct PoolDigests {
    /// Sum of `(id[i] + 1) * M^(i + 1)` over the queue; `None` after a change in its middle.
    free: Option<u64>,
    num_free: usize,
    cached: u64,
    /// `M^i`.
    powers: Vec<u64>,
}

impl PoolDigests {
    pub fn new(pool: &mut BlockPool) -> Self {
        pool.follow();
        let mut powers = vec![1_u64];
        for i in 0..pool.num_gpu_blocks() as usize {
            powers.push(powers[i].wrapping_mul(M));
        }
        Self { free: None, num_free: pool.get_num_free_blocks() as usize, cached: 0, powers }
    }

    /// Follows the scheduler's pool up to now.
    pub fn update(&mut self, scheduler: &mut Scheduler) {
        let (pool, hasher) = scheduler.block_pool_and_hasher();
        let digest = |hash, group_id, block| {
            hasher
                .and_then(|hasher| hasher.digest(hash))
                .map_or(0, |digest| pair_digest(&digest, group_id, block))
        };
        for change in pool.drain_journal() {
            match change {
                JournalEntry::PopLeft(block) => {
                    self.num_free -= 1;
                    let id = u64::from(block.0) + 1;
                    self.free = self.free.map(|sum| sum.wrapping_mul(M_INVERSE).wrapping_sub(id));
                }
                JournalEntry::Prepend(block) => {
                    self.num_free += 1;
                    let id = u64::from(block.0) + 1;
                    self.free = self.free.map(|sum| sum.wrapping_add(id).wrapping_mul(M));
                }
                JournalEntry::Append(block) => {
                    self.num_free += 1;
                    let term = (u64::from(block.0) + 1).wrapping_mul(self.powers[self.num_free]);
                    self.free = self.free.map(|sum| sum.wrapping_add(term));
                }
                JournalEntry::Remove(_) => {
                    self.num_free -= 1;
                    self.free = None;
                }
                JournalEntry::Insert { hash, group_id, block } => {
                    self.cached = self.cached.wrapping_add(digest(hash, group_id, block.0));
                }
                JournalEntry::Erase { hash, group_id, block } => {
                    self.cached = self.cached.wrapping_sub(digest(hash, group_id, block.0));
                }
                JournalEntry::Clear => self.cached = 0,
                // Neither the queue nor the map changes.
                _ => {}
            }
        }
        if self.free.is_none() {
            let step = |sum: u64, id: u64| sum.wrapping_add(id).wrapping_mul(M);
            let ids = pool.free_blocks_in_reverse().map(|block| u64::from(block.0) + 1);
            self.free = Some(ids.fold(0, step));
        }
    }

    pub fn free(&self) -> u64 {
        self.free.unwrap_or_default()
    }

    pub fn cached(&self) -> u64 {
        self.cached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_undoes_a_step() {
        assert_eq!(M.wrapping_mul(M_INVERSE), 1);
    }
}
