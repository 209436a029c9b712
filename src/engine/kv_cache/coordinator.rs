//! Makes the KV cache groups agree on one hit length (`v1/core/kv_cache_coordinator.py`).

use super::block::BlockId;
use super::block_pool::{BlockPool, BlockPoolConfig};
use super::single_type::{Lookup, NeededTokens, SingleTypeKvCacheManager};
use super::spec::KvCacheSpec;
use crate::engine::config::EngineConfig;
use crate::engine::hash::BlockHash;
use crate::engine::request::Request;
use crate::engine::request_table::RequestSlot;

/// Groups of equal spec, which are looked up together.
#[derive(Clone, Debug)]
struct SpecGroup {
    spec: KvCacheSpec,
    group_ids: Vec<u32>,
    block_size: u32,
    use_eagle: bool,
}

/// The shortest prompt that can hit anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortestHit {
    /// Tokens at its begin that must be in the cache.
    pub matching_tokens: u32,
    /// Its length.
    pub prompt_tokens: u32,
}

#[derive(Clone, Debug)]
pub(super) struct KvCacheCoordinator {
    pub block_pool: BlockPool,
    pub managers: Vec<SingleTypeKvCacheManager>,
    enable_caching: bool,
    scheduler_block_size: u32,
    hash_block_size: u32,
    /// Full attention first: its scan from the left gives the others a tighter bound.
    attention_groups: Vec<SpecGroup>,
    /// Hits may end at a hash boundary inside a block (Mamba groups).
    pub enable_partial_hash_hits: bool,
    /// Buffers of the lookup at hand.
    hit_length_by_group: Vec<Option<u32>>,
}

impl KvCacheCoordinator {
    pub fn new(config: &EngineConfig) -> Self {
        let (scheduler_block_size, hash_block_size) = config.resolve_kv_cache_block_sizes();
        let block_pool = BlockPool::new(BlockPoolConfig {
            num_gpu_blocks: config.num_gpu_blocks,
            num_groups: config.kv_cache_groups.len(),
            enable_caching: config.enable_prefix_caching,
            hash_block_size,
            num_hash_lookahead_tokens: config.num_hash_lookahead_tokens(),
            enable_kv_cache_events: config.enable_kv_cache_events,
            record_residency: config.kv_cache_metrics,
        });
        let mut managers: Vec<_> = (0..config.kv_cache_groups.len())
            .map(|group_id| SingleTypeKvCacheManager::new(config, group_id, scheduler_block_size))
            .collect();
        let use_eagle = config.use_eagle_block_drop();
        let is_hybrid = managers.len() > 1 && config.enable_prefix_caching;
        let enable_partial_hash_hits = is_hybrid && partial_hash_hits_enabled(config, hash_block_size);
        for manager in &mut managers {
            // No group of a case or scenario is marked as the drafter's, so all drop, as in vLLM.
            manager.use_eagle = use_eagle;
            if enable_partial_hash_hits {
                manager.cache_hit_alignment_tokens = hash_block_size;
            }
        }
        let attention_groups = split_groups(&managers, use_eagle);
        Self {
            block_pool,
            hit_length_by_group: vec![None; managers.len()],
            managers,
            enable_caching: config.enable_prefix_caching,
            scheduler_block_size,
            hash_block_size,
            attention_groups,
            enable_partial_hash_hits,
        }
    }

    fn is_hybrid(&self) -> bool {
        self.managers.len() > 1
    }

    pub fn cache_hit_alignment_tokens(&self) -> u32 {
        if self.enable_partial_hash_hits { self.hash_block_size } else { self.scheduler_block_size }
    }

    /// What a prompt needs for any hit. EAGLE matches past the hit and drops that; a prompt's last
    /// token is always computed, but in several groups it may be matched.
    pub fn shortest_hit(&self) -> ShortestHit {
        let hit_tokens = self.cache_hit_alignment_tokens();
        let dropping = self.attention_groups.iter().filter(|group| group.use_eagle && !group.spec.is_mamba());
        let matching_tokens =
            hit_tokens + dropping.map(|group| self.eagle_proof_margin(group)).max().unwrap_or(0);
        let prompt_tokens =
            if self.is_hybrid() { matching_tokens.max(hit_tokens + 1) } else { matching_tokens + 1 };
        ShortestHit { matching_tokens, prompt_tokens }
    }

    pub fn ensure_slot(&mut self, slot: RequestSlot) {
        for manager in &mut self.managers {
            manager.ensure_slot(slot);
        }
    }

    pub fn get_num_blocks_to_allocate(
        &self,
        slot: RequestSlot,
        needed: &NeededTokens,
        new_computed_blocks: &[Vec<BlockId>],
    ) -> i64 {
        self.managers
            .iter()
            .enumerate()
            .map(|(group, manager)| {
                let hits = new_computed_blocks.get(group).map_or(&[][..], Vec::as_slice);
                manager.get_num_blocks_to_allocate(slot, &self.block_pool, needed, hits)
            })
            .sum()
    }

    /// Whether the pool has all blocks that the allocation takes. Where it does not, although
    /// [`Self::get_num_blocks_to_allocate`] says so, vLLM ends with an error; here the request waits.
    pub fn can_allocate(
        &self,
        slot: RequestSlot,
        needed: &NeededTokens,
        new_computed_blocks: &[Vec<BlockId>],
    ) -> bool {
        if !self.managers.iter().any(|manager| manager.spec.is_mamba()) {
            return true;
        }
        let pool = &self.block_pool;
        let taken = |(group, manager): (usize, &SingleTypeKvCacheManager)| {
            let hits = new_computed_blocks.get(group).map_or(&[][..], Vec::as_slice);
            if manager.spec.is_mamba() {
                manager.num_mamba_blocks_taken(slot, pool, needed, hits)
            } else {
                manager.get_num_blocks_to_allocate(slot, pool, needed, hits)
            }
        };
        let num_taken: i64 = self.managers.iter().enumerate().map(taken).sum();
        num_taken <= i64::from(pool.get_num_free_blocks())
    }

    /// Gives the request its hits, and blocks for the tokens that a connector will load. All groups
    /// touch their hits before any takes a new block, which could be another group's hit.
    pub fn allocate_new_computed_blocks(
        &mut self,
        slot: RequestSlot,
        new_computed_blocks: &[Vec<BlockId>],
        num_local_computed_tokens: u32,
        num_external_computed_tokens: u32,
    ) {
        if self.managers.iter().any(|manager| manager.is_tracked(slot)) {
            return;
        }
        for (group, manager) in self.managers.iter_mut().enumerate() {
            manager.add_local_computed_blocks(
                slot,
                &mut self.block_pool,
                new_computed_blocks.get(group).map_or(&[][..], Vec::as_slice),
                num_local_computed_tokens,
                num_external_computed_tokens,
            );
        }
        if num_external_computed_tokens > 0 {
            for manager in &mut self.managers {
                manager.allocate_external_computed_blocks(
                    slot,
                    &mut self.block_pool,
                    num_local_computed_tokens,
                    num_external_computed_tokens,
                );
            }
        }
    }

    pub fn allocate_new_blocks(
        &mut self,
        slot: RequestSlot,
        num_tokens: u32,
        num_tokens_main_model: u32,
        new_blocks: &mut [Vec<BlockId>],
    ) {
        for (manager, new_blocks) in self.managers.iter_mut().zip(new_blocks) {
            manager.allocate_new_blocks(
                slot,
                &mut self.block_pool,
                num_tokens,
                num_tokens_main_model,
                new_blocks,
            );
        }
    }

    /// The longest prefix that a later hit could match.
    fn align_cacheable(&self, num_tokens: u32) -> u32 {
        if self.enable_partial_hash_hits {
            // Rounding would register a tail again that a request has made its own.
            return num_tokens;
        }
        num_tokens - num_tokens % self.scheduler_block_size
    }

    fn get_num_cacheable_tokens(&self, num_computed_tokens: u32, group: usize) -> u32 {
        if !self.is_hybrid() {
            return num_computed_tokens;
        }
        let aligned = self.align_cacheable(num_computed_tokens);
        let manager = &self.managers[group];
        if manager.use_eagle && aligned > 0 {
            // EAGLE matches one block past the boundary and drops it.
            return num_computed_tokens.min(aligned + manager.block_size);
        }
        aligned
    }

    #[inline]
    pub fn cache_blocks(&mut self, request: &Request, slot: RequestSlot, num_computed_tokens: u32) {
        if !self.enable_caching {
            return;
        }
        for group in 0..self.managers.len() {
            let num_tokens = self.get_num_cacheable_tokens(num_computed_tokens, group);
            self.managers[group].cache_blocks(request, slot, &mut self.block_pool, num_tokens);
        }
    }

    pub fn emit_cached_block_events(&mut self, request: &Request, hits: &[Vec<BlockId>]) {
        for (manager, hits) in self.managers.iter().zip(hits) {
            self.block_pool.emit_cached_block_events(
                request,
                hits.len() as u32,
                manager.spec.block_size(),
                manager.kv_cache_group_id,
            );
        }
    }

    pub fn free(&mut self, slot: RequestSlot) {
        for manager in &mut self.managers {
            manager.free(slot, &mut self.block_pool);
        }
    }

    /// Takes the blocks of all groups from the request, without giving them to the pool.
    pub fn pop_blocks_for_free(&mut self, slot: RequestSlot) -> Vec<BlockId> {
        let mut blocks = Vec::new();
        for manager in &mut self.managers {
            manager.pop_blocks_for_free(slot, &mut blocks);
        }
        blocks
    }

    #[inline]
    pub fn remove_skipped_blocks(&mut self, slot: RequestSlot, processed_computed_tokens: u32) {
        for manager in &mut self.managers {
            manager.remove_skipped_blocks(slot, &mut self.block_pool, processed_computed_tokens);
        }
    }

    /// Fills `hits`, one list for each group, and returns the hit length and by how much a single
    /// group's hit is longer, both in tokens.
    ///
    /// Every kind of attention accepts the candidate length or shortens it; then all are asked
    /// again, until nobody does.
    pub fn find_longest_cache_hit(
        &mut self,
        block_hashes: &[BlockHash],
        max_cache_hit_length: u32,
        hits: &mut [Vec<BlockId>],
    ) -> (u32, u32) {
        let mut hit_length = max_cache_hit_length;
        let mut longest_hit_length = 0;
        self.hit_length_by_group.fill(None);
        let is_simple_hybrid = self.attention_groups.len() == 2 && self.attention_groups[0].spec.is_full();
        // Each group drops its block for EAGLE once for a candidate length.
        let mut eagle_verified = 0_u64;
        loop {
            let mut current = hit_length;
            for (index, group) in self.attention_groups.iter().enumerate() {
                let first = group.group_ids[0] as usize;
                if group.spec.is_full()
                    && let Some(length) = self.hit_length_by_group[first]
                {
                    // What full attention hit stays a hit when cut.
                    current = current.min(length);
                    continue;
                }
                let drop_eagle_block = group.use_eagle && eagle_verified & (1 << index) == 0;
                let max_length = if drop_eagle_block && self.is_hybrid() && !group.spec.is_mamba() {
                    let hashed = block_hashes.len() as u32 * self.hash_block_size;
                    (current + self.eagle_proof_margin(group)).min(hashed)
                } else {
                    current
                };
                let lookup = Lookup {
                    pool: &self.block_pool,
                    block_hashes,
                    max_length,
                    group_ids: &group.group_ids,
                    block_size: group.block_size,
                    drop_eagle_block,
                    alignment_tokens: self.cache_hit_alignment_tokens(),
                };
                let length = SingleTypeKvCacheManager::find_longest_cache_hit(&group.spec, &lookup, hits);
                if drop_eagle_block {
                    eagle_verified |= 1 << index;
                } else if length < current {
                    eagle_verified = 0;
                }
                current = length;
                for &group_id in &group.group_ids {
                    self.hit_length_by_group[group_id as usize] = Some(length);
                }
                longest_hit_length = longest_hit_length.max(current);
            }
            if current >= hit_length {
                break;
            }
            hit_length = current;
            if is_simple_hybrid || !self.is_hybrid() {
                break;
            }
        }
        for group in self.attention_groups.iter().filter(|group| group.spec.is_full()) {
            for &group_id in &group.group_ids {
                hits[group_id as usize].truncate(hit_length.div_ceil(group.block_size) as usize);
            }
        }
        (hit_length, longest_hit_length.saturating_sub(hit_length))
    }

    /// How far past a hit EAGLE has to match before it drops.
    fn eagle_proof_margin(&self, group: &SpecGroup) -> u32 {
        let fine = self.enable_partial_hash_hits && supports_fine_grained_hash_lookup(&group.spec);
        if fine && group.block_size > self.hash_block_size { self.hash_block_size } else { group.block_size }
    }

    pub fn new_step_starts(&mut self) {
        for manager in &mut self.managers {
            manager.new_step_starts();
        }
    }
}

/// Kinds whose lookup can end inside a block.
fn supports_fine_grained_hash_lookup(spec: &KvCacheSpec) -> bool {
    spec.is_full() || spec.is_mamba()
}

/// `partial_hash_hits_enabled` in `v1/core/kv_cache_utils.py`.
fn partial_hash_hits_enabled(config: &EngineConfig, hash_block_size: u32) -> bool {
    let has_coarse_mamba = config.kv_cache_groups.iter().any(|spec| {
        spec.is_mamba()
            && (spec.block_size() > hash_block_size
                || (config.decode_context_parallel_size > 1 && spec.block_size() == hash_block_size))
    });
    has_coarse_mamba
        && config.kv_cache_groups.iter().all(|spec| {
            supports_fine_grained_hash_lookup(spec) || config.group_block_size(spec) == hash_block_size
        })
}

fn split_groups(managers: &[SingleTypeKvCacheManager], use_eagle: bool) -> Vec<SpecGroup> {
    let mut groups: Vec<SpecGroup> = Vec::new();
    for manager in managers {
        match groups.iter_mut().find(|group| group.spec == manager.spec) {
            Some(group) => group.group_ids.push(manager.kv_cache_group_id),
            None => groups.push(SpecGroup {
                spec: manager.spec,
                group_ids: vec![manager.kv_cache_group_id],
                block_size: manager.block_size,
                use_eagle,
            }),
        }
    }
    groups.sort_by_key(|group| !group.spec.is_full());
    groups
}
