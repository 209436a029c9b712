//! What is always true of the pool between two calls.

use super::{BlockHashToBlockMap, BlockId, BlockPool, NULL_BLOCK};

impl BlockPool {
    /// Checks the pool against itself and against those who hold its blocks: `num_holders` says of
    /// each block, by id, how many do.
    ///
    /// # Panics
    /// With the block and the rule when one is broken.
    pub(in crate::engine) fn check_invariants(&self, num_holders: &[u32]) {
        assert_eq!(num_holders.len(), self.blocks.len());
        let mut is_free = vec![false; self.blocks.len()];
        for block in self.free_block_queue.iter() {
            assert!(!block.is_null(), "the null block is in the free queue");
            let twice = std::mem::replace(&mut is_free[block.index()], true);
            assert!(!twice, "{block:?} is in the free queue twice");
        }
        let num_free = is_free.iter().filter(|&&free| free).count();
        assert_eq!(self.get_num_free_blocks() as usize, num_free, "blocks in the free queue");
        assert_eq!(self.free_block_queue.iter().rev().count(), num_free, "blocks from the tail back");

        let mut num_pairs = 0;
        for (id, state) in (0..).zip(&self.blocks) {
            let block = BlockId(id);
            if block != NULL_BLOCK {
                let holders = num_holders[block.index()];
                assert_eq!(state.ref_cnt, holders, "ref_cnt of {block:?} and the number of its holders");
                assert_eq!(is_free[block.index()], holders == 0, "{block:?} is free when nobody holds it");
            }
            num_pairs += self.check_hashes(block);
        }
        let others: usize = self.cached_block_hashes_by_block.values().map(Vec::len).sum();
        let with_primary = self.blocks.iter().filter(|state| state.has_hash()).count();
        assert_eq!(with_primary + others, num_pairs, "a block has a second hash and no first");
        // The hashes of a block are distinct and all in the map, so equal numbers are equal sets.
        assert_eq!(self.num_cached_pairs(), num_pairs, "the map names a block that lacks the hash");
        assert!(
            self.cached_block_hash_to_block.iter().all(BlockHashToBlockMap::is_consistent),
            "the map keeps an empty list of duplicates"
        );
    }

    /// The hashes of a block are in the map; returns their number.
    fn check_hashes(&self, block: BlockId) -> usize {
        let state = &self.blocks[block.index()];
        let has_tokens = state.block_hash_num_tokens > 0;
        assert_eq!(has_tokens, state.has_hash(), "{block:?} has tokens when it has a hash");
        let Some(primary) = state.block_hash() else { return 0 };
        assert!(!block.is_null(), "the null block has a hash");
        let others = self.cached_block_hashes_by_block.get(&block).map_or(&[][..], Vec::as_slice);
        let mut keys = vec![primary];
        keys.extend_from_slice(others);
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{block:?} has {key:?} twice");
            let map = &self.cached_block_hash_to_block[key.group_id as usize];
            assert!(map.contains(key.hash, block), "{block:?} has {key:?}, the map does not");
        }
        keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::BlockPoolConfig;
    use super::*;
    use crate::engine::hash::BlockHash;
    use crate::engine::kv_cache::block::BlockHashWithGroupId;

    /// Two blocks of four are held, the first of them with a hash.
    fn pool() -> (BlockPool, [u32; 5]) {
        let mut pool = BlockPool::new(BlockPoolConfig {
            num_gpu_blocks: 5,
            num_groups: 1,
            enable_caching: true,
            hash_block_size: 1,
            num_hash_lookahead_tokens: 0,
            enable_kv_cache_events: false,
            record_residency: false,
        });
        pool.get_new_blocks(2, &mut Vec::new());
        pool.insert_block_hash(BlockHashWithGroupId { hash: BlockHash(7), group_id: 0 }, BlockId(1), 1);
        (pool, [0, 1, 1, 0, 0])
    }

    #[test]
    fn a_pool_in_order_passes() {
        let (pool, holders) = pool();
        pool.check_invariants(&holders);
    }

    #[test]
    #[should_panic = "ref_cnt of BlockId(2)"]
    fn a_leaked_block_is_found() {
        let (pool, mut holders) = pool();
        holders[2] = 0;
        pool.check_invariants(&holders);
    }

    #[test]
    #[should_panic = "BlockId(1) is free when nobody holds it"]
    fn a_held_block_in_the_free_queue_is_found() {
        let (mut pool, holders) = pool();
        pool.free_block_queue.append_n(std::iter::once(BlockId(1)));
        pool.check_invariants(&holders);
    }

    #[test]
    #[should_panic = "the map does not"]
    fn a_hash_that_the_map_lacks_is_found() {
        let (mut pool, holders) = pool();
        pool.cached_block_hash_to_block[0].pop(BlockHash(7), BlockId(1));
        pool.check_invariants(&holders);
    }

    #[test]
    #[should_panic = "a block that lacks the hash"]
    fn a_hash_that_the_block_lacks_is_found() {
        let (mut pool, holders) = pool();
        pool.cached_block_hash_to_block[0].insert(BlockHash(7), BlockId(2));
        pool.check_invariants(&holders);
    }
}
