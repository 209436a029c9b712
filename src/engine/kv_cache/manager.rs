//! What the scheduler asks for blocks (`KVCacheManager` in `v1/core/kv_cache_manager.py`).

use super::block::BlockId;
use super::block_pool::BlockPool;
use super::coordinator::{KvCacheCoordinator, ShortestHit};
use super::journal::JournalEntry;
use super::single_type::NeededTokens;
use crate::engine::config::EngineConfig;
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::prefix_cache_stats::PrefixCacheStats;
use crate::engine::request::{Request, RequestStatus};
use crate::engine::request_table::RequestSlot;

/// Result of a lookup, in tokens. The blocks stay with the manager until the next lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCacheHit {
    pub num_computed_tokens: u32,
    /// Where the longest hit of a single group ends when not all groups could follow; 0 otherwise.
    pub shared_prefix_boundary: u32,
}

/// What [`KvCacheManager::allocate_slots`] is asked for. Numbers are tokens unless named otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocateSlots {
    /// Tokens to compute, drafts included.
    pub num_new_tokens: u32,
    /// Tokens of the last lookup's hit that the request takes.
    pub num_new_computed_tokens: u32,
    /// Take the blocks of the last lookup.
    pub takes_hit: bool,
    pub num_lookahead_tokens: u32,
    /// Tokens that a connector will load.
    pub num_external_computed_tokens: u32,
    /// Do not hash the blocks yet: they are filled later.
    pub delay_cache_blocks: bool,
    /// Refuse unless the whole sequence fits, not only this chunk.
    pub full_sequence_must_fit: bool,
    /// Blocks to leave to others.
    pub reserved_blocks: u32,
    /// Something runs already, so an admission must also leave the watermark free.
    pub has_scheduled_reqs: bool,
}

#[derive(Clone, Debug)]
pub struct KvCacheManager {
    coordinator: KvCacheCoordinator,
    enable_caching: bool,
    enable_kv_cache_events: bool,
    max_model_len: u32,
    watermark_blocks: u32,
    prefix_cache_stats: PrefixCacheStats,
    /// Blocks of the last lookup, by group.
    hit_blocks: Vec<Vec<BlockId>>,
    /// Blocks that the last allocation added to the request's table, by group.
    new_blocks: Vec<Vec<BlockId>>,
    refused: Option<Refused>,
}

/// An admission that the full-sequence gate refused, to know without a new lookup that it would be
/// refused again.
#[derive(Clone, Copy, Debug)]
struct Refused {
    id: u64,
    num_tokens: u32,
    /// Without the watermark, which does not always count.
    required_blocks: i64,
    num_gains: u64,
}

impl KvCacheManager {
    pub fn new(config: &EngineConfig) -> Self {
        let coordinator = KvCacheCoordinator::new(config);
        let num_groups = config.kv_cache_groups.len();
        Self {
            coordinator,
            enable_caching: config.enable_prefix_caching,
            enable_kv_cache_events: config.enable_kv_cache_events,
            max_model_len: config.max_model_len,
            watermark_blocks: (config.watermark * f64::from(config.num_gpu_blocks)) as u32,
            prefix_cache_stats: PrefixCacheStats::default(),
            hit_blocks: vec![Vec::new(); num_groups],
            new_blocks: vec![Vec::new(); num_groups],
            refused: None,
        }
    }

    pub fn block_pool(&self) -> &BlockPool {
        &self.coordinator.block_pool
    }

    pub fn block_pool_mut(&mut self) -> &mut BlockPool {
        &mut self.coordinator.block_pool
    }

    pub fn enable_partial_hash_hits(&self) -> bool {
        self.coordinator.enable_partial_hash_hits
    }

    /// The shortest prompt that can hit anything.
    pub fn shortest_hit(&self) -> ShortestHit {
        self.coordinator.shortest_hit()
    }

    pub fn num_groups(&self) -> usize {
        self.coordinator.managers.len()
    }

    /// Tokens in a block of each group, over all ranks.
    pub fn group_block_sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.coordinator.managers.iter().map(|manager| manager.block_size)
    }

    /// Whether groups hold attention blocks, which can be cut to a number of tokens.
    pub(crate) fn is_mamba_group(&self, group: usize) -> bool {
        self.coordinator.managers[group].spec.is_mamba()
    }

    pub(in crate::engine) fn ensure_slot(&mut self, slot: RequestSlot) {
        self.coordinator.ensure_slot(slot);
    }

    /// The block table of a request in a group.
    pub fn get_blocks(&self, slot: RequestSlot, group: usize) -> &[BlockId] {
        self.coordinator.managers[group].blocks(slot)
    }

    /// Blocks that the last [`Self::allocate_slots`] added to the request's table, by group.
    pub fn new_blocks(&self) -> &[Vec<BlockId>] {
        &self.new_blocks
    }

    /// Stats of lookups since the last call.
    pub fn make_prefix_cache_stats(&mut self) -> PrefixCacheStats {
        std::mem::take(&mut self.prefix_cache_stats)
    }

    pub fn prefix_cache_lookup_enabled(&self, request: &Request) -> bool {
        self.enable_caching && !request.skip_reading_prefix_cache
    }

    pub fn record_prefix_cache_stats(&mut self, request: &Request, num_hits: u32) {
        if self.prefix_cache_lookup_enabled(request) {
            self.prefix_cache_stats.record(request.num_tokens(), num_hits, request.num_preemptions > 0);
        }
    }

    /// Whether the full-sequence gate would refuse this request again, whatever a lookup finds.
    ///
    /// With one group of full attention it asks for the request's blocks less those of its hit that
    /// are in use. A block can only join these by being hit or hashed, so the need has sunk by no more
    /// than the number of times that happened.
    pub fn is_refused_again(&self, request: &Request) -> bool {
        let ([manager], Some(refused)) = (self.coordinator.managers.as_slice(), self.refused) else {
            return false;
        };
        let pool = &self.coordinator.block_pool;
        let gained = (pool.num_gains() - refused.num_gains) as i64;
        manager.spec.is_full()
            && !request.report_cached_blocks
            && (refused.id, refused.num_tokens) == (request.id, request.num_tokens())
            && refused.required_blocks - gained > i64::from(pool.get_num_free_blocks())
    }

    /// Looks for cached blocks of the request's tokens, all but the last, which must be computed to
    /// give logits.
    pub fn get_computed_blocks(&mut self, request: &Request) -> PrefixCacheHit {
        if !self.prefix_cache_lookup_enabled(request) {
            self.hit_blocks.iter_mut().for_each(Vec::clear);
            return PrefixCacheHit::default();
        }
        let (num_computed_tokens, num_uncached) = self.coordinator.find_longest_cache_hit(
            &request.block_hashes,
            request.num_tokens() - 1,
            &mut self.hit_blocks,
        );
        let block_size = self.coordinator.managers[0].block_size;
        self.coordinator.block_pool.note_lookup(
            request.id,
            (request.num_tokens() - 1) / block_size,
            num_computed_tokens,
            &self.hit_blocks,
        );
        if num_computed_tokens > 0 && self.enable_kv_cache_events && request.report_cached_blocks {
            self.coordinator.emit_cached_block_events(request, &self.hit_blocks);
        }
        let shared_prefix_boundary = if num_uncached > 0 { num_computed_tokens + num_uncached } else { 0 };
        PrefixCacheHit { num_computed_tokens, shared_prefix_boundary }
    }

    /// Cuts the blocks of the last lookup to a block-aligned length (`truncate_computed_blocks`).
    pub fn truncate_computed_blocks(&mut self, num_computed_tokens: u32) {
        for (manager, hits) in self.coordinator.managers.iter().zip(&mut self.hit_blocks) {
            hits.truncate((num_computed_tokens / manager.block_size) as usize);
        }
    }

    /// Blocks that a request still needs to hold its whole sequence and `num_tokens` at the end.
    pub fn get_num_blocks_to_allocate(
        &self,
        request: &Request,
        slot: RequestSlot,
        num_tokens: u32,
        num_tokens_main_model: u32,
    ) -> i64 {
        let needed = NeededTokens {
            num_tokens,
            num_tokens_main_model,
            total_computed_tokens: request.num_computed_tokens,
            num_local_computed_tokens: request.num_computed_tokens,
            apply_admission_cap: true,
        };
        self.coordinator.get_num_blocks_to_allocate(slot, &needed, &[])
    }

    /// Gives a request blocks for its next tokens and hashes those that will be full after the
    /// step. False, and only blocks outside of windows given back, if there are too few.
    pub fn allocate_slots(&mut self, request: &Request, slot: RequestSlot, args: &AllocateSlots) -> bool {
        for group in &mut self.new_blocks {
            group.clear();
        }
        // An admission has gates to pass, even if it holds all its blocks.
        if request.status == RequestStatus::Running && self.has_slots(request, slot, args) {
            return true;
        }
        let num_local_computed_tokens = request.num_computed_tokens + args.num_new_computed_tokens;
        let computed_tokens = num_local_computed_tokens + args.num_external_computed_tokens;
        let total_computed_tokens = computed_tokens.min(self.max_model_len);
        let is_admission = matches!(request.status, RequestStatus::Waiting | RequestStatus::Preempted);
        let watermark_blocks =
            if args.has_scheduled_reqs && is_admission { i64::from(self.watermark_blocks) } else { 0 };
        let hits: &[Vec<BlockId>] = if args.takes_hit { &self.hit_blocks } else { &[] };
        let pool = &self.coordinator.block_pool;
        if args.full_sequence_must_fit {
            let full_num_tokens = request.num_tokens().min(self.max_model_len);
            let needed = NeededTokens {
                num_tokens: full_num_tokens,
                num_tokens_main_model: full_num_tokens,
                total_computed_tokens,
                num_local_computed_tokens,
                apply_admission_cap: true,
            };
            let required = self.coordinator.get_num_blocks_to_allocate(slot, &needed, hits);
            if required + watermark_blocks > i64::from(pool.get_num_free_blocks()) {
                let num_gains = pool.num_gains();
                self.note_refusal(request.id, required + watermark_blocks);
                self.refused = Some(Refused {
                    id: request.id,
                    num_tokens: request.num_tokens(),
                    required_blocks: required,
                    num_gains,
                });
                return false;
            }
        }
        let num_tokens_main_model = total_computed_tokens + args.num_new_tokens;
        let num_tokens_need_slot =
            (num_tokens_main_model + args.num_lookahead_tokens).min(self.max_model_len);
        // Steps in flight still read the blocks that only they have moved the window past.
        self.coordinator
            .remove_skipped_blocks(slot, total_computed_tokens.saturating_sub(request.num_in_flight_tokens));
        let needed = NeededTokens {
            num_tokens: num_tokens_need_slot,
            num_tokens_main_model,
            total_computed_tokens: computed_tokens,
            num_local_computed_tokens,
            apply_admission_cap: false,
        };
        let required = self.coordinator.get_num_blocks_to_allocate(slot, &needed, hits);
        let free = i64::from(self.coordinator.block_pool.get_num_free_blocks());
        if required + watermark_blocks > free - i64::from(args.reserved_blocks)
            || !self.coordinator.can_allocate(slot, &needed, hits)
        {
            self.note_refusal(request.id, required + watermark_blocks + i64::from(args.reserved_blocks));
            return false;
        }
        self.coordinator.block_pool.note(JournalEntry::Allocate { request: request.id });
        if hits.iter().any(|group| !group.is_empty()) || args.num_external_computed_tokens > 0 {
            self.coordinator.allocate_new_computed_blocks(
                slot,
                hits,
                num_local_computed_tokens,
                args.num_external_computed_tokens,
            );
        }
        self.coordinator.allocate_new_blocks(
            slot,
            num_tokens_need_slot,
            num_tokens_main_model,
            &mut self.new_blocks,
        );
        if !args.delay_cache_blocks {
            // Drafts may be rejected, so only known tokens count.
            let num_tokens_to_cache = num_tokens_main_model.min(request.num_tokens());
            self.coordinator.cache_blocks(request, slot, num_tokens_to_cache);
        }
        true
    }

    fn note_refusal(&mut self, request: u64, required_blocks: i64) {
        let pool = &mut self.coordinator.block_pool;
        let free_blocks = pool.get_num_free_blocks();
        pool.note(JournalEntry::Refuse { request, required_blocks, free_blocks });
    }

    /// Whether a running request has its slots already, and no block of it becomes full: most decode
    /// steps. Only asked where nothing else would happen, with one group of full attention.
    #[inline]
    fn has_slots(&self, request: &Request, slot: RequestSlot, args: &AllocateSlots) -> bool {
        let [manager] = self.coordinator.managers.as_slice() else { return false };
        let num_tokens = request.num_computed_tokens + args.num_new_tokens;
        let num_slots = (num_tokens + args.num_lookahead_tokens).min(self.max_model_len);
        manager.has_slots(slot, num_slots, num_tokens.min(request.num_tokens()), self.enable_caching)
    }

    pub fn free(&mut self, slot: RequestSlot) {
        self.coordinator.free(slot);
    }

    pub fn remove_skipped_blocks(&mut self, slot: RequestSlot, processed_computed_tokens: u32) {
        self.coordinator.remove_skipped_blocks(slot, processed_computed_tokens);
    }

    pub fn pop_blocks_for_free(&mut self, slot: RequestSlot) -> Vec<BlockId> {
        self.coordinator.pop_blocks_for_free(slot)
    }

    /// Returns blocks taken by [`Self::pop_blocks_for_free`] to the pool, the last ones first.
    pub fn free_popped_blocks(&mut self, blocks: Vec<BlockId>) {
        self.coordinator.block_pool.free_blocks(blocks.into_iter().rev());
    }

    /// Takes the hashes from blocks.
    pub fn evict_blocks(&mut self, blocks: impl Iterator<Item = BlockId>) {
        self.coordinator.block_pool.evict_blocks(blocks);
    }

    /// False while any block is in use.
    pub fn reset_prefix_cache(&mut self) -> bool {
        let done = self.coordinator.block_pool.reset_prefix_cache();
        self.prefix_cache_stats.reset |= done;
        done
    }

    pub fn cache_blocks(&mut self, request: &Request, slot: RequestSlot, num_computed_tokens: u32) {
        self.coordinator.cache_blocks(request, slot, num_computed_tokens);
    }

    /// Tokens of the request that are in the prefix cache (`estimate_cached_tokens`).
    pub fn estimate_cached_tokens(&self, slot: RequestSlot) -> u32 {
        let pool = &self.coordinator.block_pool;
        // The later a block lies in the table, the longer the prefix that its hash stands for.
        let cached_in = |blocks: &[BlockId]| {
            let tokens = |&block: &BlockId| pool.block_hash_num_tokens(block);
            blocks.iter().rev().map(tokens).find(|&tokens| tokens > 0).unwrap_or(0)
        };
        self.coordinator.managers.iter().map(|manager| cached_in(manager.blocks(slot))).min().unwrap_or(0)
    }

    /// Appends the copies that this step's execution makes first, as (source, destination).
    pub fn take_kv_cache_block_copies(&mut self, copies: &mut Vec<(BlockId, BlockId)>) {
        for manager in &mut self.coordinator.managers {
            copies.extend(manager.take_pending_cow_copies());
        }
    }

    pub fn take_events(&mut self) -> Vec<KvCacheEvent> {
        self.coordinator.block_pool.take_events()
    }

    pub fn new_step_starts(&mut self) {
        self.coordinator.new_step_starts();
    }
}
