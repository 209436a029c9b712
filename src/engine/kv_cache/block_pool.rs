//! The pool of KV cache blocks and the prefix cache over them (`BlockPool` in
//! `v1/core/block_pool.py`).

mod invariants;
#[cfg(test)]
mod model_tests;

use rustc_hash::FxHashMap;

use super::block::{BlockHashWithGroupId, BlockId, KvCacheBlock, NULL_BLOCK};
use super::block_hash_map::BlockHashToBlockMap;
use super::free_block_queue::FreeKvCacheBlockQueue;
use super::journal::JournalEntry;
use super::residency::Residency;
use crate::engine::hash::BlockHash;
use crate::engine::kv_events::{BlockStored, CacheChange, KvCacheEvent};
use crate::engine::request::Request;

/// Which of a group's full blocks can ever serve a hit. The others are not hashed
/// (`reachable_block_mask` in `v1/core/single_type_kv_cache_manager.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockMask {
    All,
    /// The last `need` blocks of every `per_segment`, moved right by `shift`.
    SegmentTails {
        per_segment: u32,
        need: u32,
        shift: u32,
    },
}

impl BlockMask {
    fn reachable(self, block_index: u32) -> bool {
        match self {
            Self::All => true,
            Self::SegmentTails { per_segment, need, shift } => {
                block_index >= shift && (block_index - shift) % per_segment >= per_segment - need
            }
        }
    }
}

/// Blocks of a request that have become full.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullBlocks {
    /// The first of them.
    pub num_cached_blocks: u32,
    /// One past the last.
    pub num_full_blocks: u32,
    /// In tokens, over all ranks.
    pub block_size: u32,
    pub group_id: u32,
    /// Which of them to hash.
    pub mask: BlockMask,
}

#[derive(Clone, Debug)]
pub struct BlockPool {
    blocks: Vec<KvCacheBlock>,
    free_block_queue: FreeKvCacheBlockQueue,
    /// One map for each KV cache group: the group id is part of vLLM's key.
    cached_block_hash_to_block: Vec<BlockHashToBlockMap>,
    /// Further hashes of blocks that have more than one (partial entries).
    cached_block_hashes_by_block: FxHashMap<BlockId, Vec<BlockHashWithGroupId>>,
    enable_caching: bool,
    hash_block_size: u32,
    num_hash_lookahead_tokens: u32,
    /// `None` when KV events are off.
    kv_event_queue: Option<Vec<KvCacheEvent>>,
    /// The same events in short; `None` when nobody reads them.
    cache_changes: Option<Vec<CacheChange>>,
    /// `None` when residency is not recorded.
    residency: Option<Residency>,
    now_ns: u64,
    /// `None` when nobody follows.
    journal: Option<Vec<JournalEntry>>,
    /// Blocks that were hit or hashed so far.
    num_gains: u64,
    /// Unhashed blocks of the `free_blocks` call at hand, kept for its capacity.
    blocks_to_evict_first: Vec<BlockId>,
}

/// What a pool is made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPoolConfig {
    pub num_gpu_blocks: u32,
    pub num_groups: usize,
    pub enable_caching: bool,
    pub hash_block_size: u32,
    pub num_hash_lookahead_tokens: u32,
    pub enable_kv_cache_events: bool,
    pub record_residency: bool,
}

impl BlockPool {
    pub(super) fn new(config: BlockPoolConfig) -> Self {
        Self {
            blocks: vec![KvCacheBlock::default(); config.num_gpu_blocks as usize],
            free_block_queue: FreeKvCacheBlockQueue::new(config.num_gpu_blocks),
            cached_block_hash_to_block: vec![BlockHashToBlockMap::default(); config.num_groups],
            cached_block_hashes_by_block: FxHashMap::default(),
            enable_caching: config.enable_caching,
            hash_block_size: config.hash_block_size,
            num_hash_lookahead_tokens: config.num_hash_lookahead_tokens,
            kv_event_queue: config.enable_kv_cache_events.then(Vec::new),
            cache_changes: None,
            residency: config.record_residency.then(|| Residency::new(config.num_gpu_blocks)),
            now_ns: 0,
            journal: None,
            num_gains: 0,
            blocks_to_evict_first: Vec::new(),
        }
    }

    /// The time that residency is measured with, in nanoseconds.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Starts to record every change for [`Self::drain_journal`].
    pub fn follow(&mut self) {
        self.journal.get_or_insert_default();
    }

    pub fn is_followed(&self) -> bool {
        self.journal.is_some()
    }

    pub fn drain_journal(&mut self) -> impl Iterator<Item = JournalEntry> + '_ {
        self.journal.iter_mut().flat_map(|journal| journal.drain(..))
    }

    #[inline]
    pub(in crate::engine) fn note(&mut self, entry: JournalEntry) {
        if let Some(journal) = &mut self.journal {
            journal.push(entry);
        }
    }

    /// A request has looked into the cache.
    pub(super) fn note_lookup(
        &mut self,
        request: u64,
        num_blocks: u32,
        hit_tokens: u32,
        hits: &[Vec<BlockId>],
    ) {
        let Some(journal) = &mut self.journal else { return };
        journal.push(JournalEntry::Lookup { request, num_blocks, hit_tokens });
        journal.extend(hits.iter().flatten().map(|&block| JournalEntry::Hit(block)));
    }

    /// Evictions and reuse gaps since the last call, if residency is recorded.
    pub fn residency_mut(&mut self) -> Option<&mut Residency> {
        self.residency.as_mut()
    }

    pub fn num_gpu_blocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    pub fn hash_block_size(&self) -> u32 {
        self.hash_block_size
    }

    pub fn num_hash_lookahead_tokens(&self) -> u32 {
        self.num_hash_lookahead_tokens
    }

    pub fn enable_caching(&self) -> bool {
        self.enable_caching
    }

    pub fn get_num_free_blocks(&self) -> u32 {
        self.free_block_queue.num_free_blocks()
    }

    /// Share of the pool in use, 0 to 1, without the null block.
    pub fn get_usage(&self) -> f64 {
        let total = self.num_gpu_blocks() - 1;
        1.0 - f64::from(self.get_num_free_blocks()) / f64::from(total)
    }

    /// How often a block was hit or came under a hash: a bound on how many more blocks in use a
    /// lookup can hit than at an earlier count.
    pub(super) fn num_gains(&self) -> u64 {
        self.num_gains
    }

    /// The free blocks in eviction order.
    pub fn free_blocks_in_order(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.free_block_queue.iter()
    }

    /// The free blocks, the last to be evicted first.
    pub fn free_blocks_in_reverse(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.free_block_queue.iter().rev()
    }

    /// The number of hashes, over all groups.
    pub fn num_cached_hashes(&self) -> usize {
        self.cached_block_hash_to_block.iter().map(BlockHashToBlockMap::len).sum()
    }

    /// The number of (hash, block) pairs, over all groups.
    pub fn num_cached_pairs(&self) -> usize {
        self.cached_block_hash_to_block.iter().map(BlockHashToBlockMap::num_blocks).sum()
    }

    /// Requests that hold a block, or copies that have not run.
    pub fn ref_cnt(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].ref_cnt
    }

    /// The hashes of a block: none, one, or more where parts of it can be hit.
    pub fn block_hashes(&self, block: BlockId) -> impl Iterator<Item = BlockHashWithGroupId> + '_ {
        let others = self.cached_block_hashes_by_block.get(&block).into_iter().flatten().copied();
        self.block_hash(block).into_iter().chain(others)
    }

    #[inline]
    pub(super) fn block_hash(&self, block: BlockId) -> Option<BlockHashWithGroupId> {
        self.blocks[block.index()].block_hash()
    }

    #[inline]
    pub(super) fn block_hash_num_tokens(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].block_hash_num_tokens
    }

    /// Whether a hit on the block would take it out of the free queue.
    #[inline]
    pub(super) fn is_evictable(&self, block: BlockId) -> bool {
        !block.is_null() && self.blocks[block.index()].ref_cnt == 0
    }

    /// Keeps a block alive beyond its request, for a copy that has not run yet.
    pub(super) fn retain(&mut self, block: BlockId) {
        self.blocks[block.index()].ref_cnt += 1;
        self.note(JournalEntry::Touch(block));
    }

    /// The first block with this hash in each of the groups, or false on a miss in any of them.
    #[inline]
    pub(super) fn get_cached_block(
        &self,
        hash: BlockHash,
        group_ids: &[u32],
        mut found: impl FnMut(usize, BlockId),
    ) -> bool {
        if let [group_id] = group_ids {
            let Some(block) = self.cached_block_hash_to_block[*group_id as usize].get_one_block(hash) else {
                return false;
            };
            found(0, block);
            return true;
        }
        let hit = |&group_id: &u32| self.cached_block_hash_to_block[group_id as usize].get_one_block(hash);
        if !group_ids.iter().all(|id| hit(id).is_some()) {
            return false;
        }
        for (at, id) in group_ids.iter().enumerate() {
            if let Some(block) = hit(id) {
                found(at, block);
            }
        }
        true
    }

    /// Appends the first block with each of these hashes in a group, up to the first miss.
    pub(super) fn get_cached_blocks(&self, hashes: &[BlockHash], group_id: u32, blocks: &mut Vec<BlockId>) {
        self.cached_block_hash_to_block[group_id as usize].get_blocks(hashes, blocks);
    }

    /// Gives full blocks of a request, whose table is `blocks`, their hashes, so that others can hit
    /// them, and queues the event for it.
    pub(super) fn cache_full_blocks(&mut self, request: &Request, blocks: &[BlockId], full: &FullBlocks) {
        let FullBlocks { num_cached_blocks, num_full_blocks, block_size, group_id, mask } = *full;
        if num_cached_blocks >= num_full_blocks {
            return;
        }
        self.note(JournalEntry::CacheFullBlocks {
            request: request.id,
            group_id,
            first: num_cached_blocks,
            end: num_full_blocks,
        });
        let scale = block_size / self.hash_block_size;
        for index in num_cached_blocks..num_full_blocks {
            let block = blocks[index as usize];
            if block.is_null() || !mask.reachable(index) {
                continue;
            }
            let hash = request.block_hashes[((index + 1) * scale - 1) as usize];
            if self.block_hash(block).is_some() {
                // A partly filled block that had its own entry has become full.
                self.remove_cached_block_hashes(block);
            }
            let key = BlockHashWithGroupId { hash, group_id };
            self.insert_block_hash(key, block, (index + 1) * block_size);
            self.note_change(CacheChange::Stored { hash, group_id });
        }
        if self.kv_event_queue.is_some() {
            let stored = (num_cached_blocks..num_full_blocks)
                .filter(|&index| !blocks[index as usize].is_null() && mask.reachable(index));
            self.queue_block_stored(request, full, stored);
        }
    }

    /// Tells listeners of blocks that were hit, without changing them (`kv_cache_report_mode`
    /// "full").
    pub(super) fn emit_cached_block_events(
        &mut self,
        request: &Request,
        num_cached_blocks: u32,
        block_size: u32,
        group_id: u32,
    ) {
        // The last block of a hit that ends inside it may have no hash yet; vLLM ends with an error.
        let num_full_blocks = request.block_hashes.len() as u32 / (block_size / self.hash_block_size);
        let num_cached_blocks = num_cached_blocks.min(num_full_blocks);
        if num_cached_blocks > 0 && self.kv_event_queue.is_some() {
            let range = FullBlocks {
                num_cached_blocks: 0,
                num_full_blocks: num_cached_blocks,
                block_size,
                group_id,
                mask: BlockMask::All,
            };
            self.queue_block_stored(request, &range, 0..num_cached_blocks);
        }
    }

    fn queue_block_stored(
        &mut self,
        request: &Request,
        range: &FullBlocks,
        stored: impl Iterator<Item = u32>,
    ) {
        let Some(queue) = &mut self.kv_event_queue else { return };
        let scale = range.block_size / self.hash_block_size;
        let hash_of = |index: u32| request.block_hashes[((index + 1) * scale - 1) as usize];
        let lookahead = self.num_hash_lookahead_tokens;
        let mut event = BlockStored::new(request, range.block_size, range.group_id, lookahead);
        event.parent_block_hash = range.num_cached_blocks.checked_sub(1).map(hash_of);
        event.set_token_ids(
            request,
            range.num_cached_blocks * range.block_size,
            range.num_full_blocks * range.block_size,
        );
        for index in stored {
            let start = index * range.block_size;
            event.push_block(request, hash_of(index), start, start + range.block_size, lookahead);
        }
        queue.push(KvCacheEvent::BlockStored(event));
    }

    /// Makes a block reachable from the hash boundary at `num_tokens` inside it. Returns the key,
    /// or `None` for the null block.
    pub(super) fn cache_partial_block(
        &mut self,
        request: &Request,
        block: BlockId,
        num_tokens: u32,
        group_id: u32,
    ) -> Option<BlockHashWithGroupId> {
        if block.is_null() {
            return None;
        }
        let num_hash_blocks = num_tokens / self.hash_block_size;
        let hash = request.block_hashes[num_hash_blocks as usize - 1];
        let key = BlockHashWithGroupId { hash, group_id };
        let already_cached = self.block_hash(block) == Some(key)
            || self.cached_block_hash_to_block[group_id as usize].contains(hash, block);
        if !already_cached
            && self.block_hash(block).is_some()
            && self.block_hash_num_tokens(block) < num_tokens
        {
            self.remove_cached_block_hashes(block);
        }
        self.insert_block_hash(key, block, num_tokens);
        if already_cached {
            return Some(key);
        }
        self.note_change(CacheChange::Stored { hash, group_id });
        let lookahead = self.num_hash_lookahead_tokens;
        if let Some(queue) = &mut self.kv_event_queue {
            let start = num_tokens - self.hash_block_size;
            let mut event = BlockStored::new(request, self.hash_block_size, group_id, lookahead);
            event.parent_block_hash =
                (num_hash_blocks > 1).then(|| request.block_hashes[num_hash_blocks as usize - 2]);
            event.set_token_ids(request, start, num_tokens);
            event.push_block(request, hash, start, num_tokens, lookahead);
            queue.push(KvCacheEvent::BlockStored(event));
        }
        Some(key)
    }

    #[inline]
    fn insert_block_hash(&mut self, key: BlockHashWithGroupId, block: BlockId, num_tokens: u32) {
        let state = &mut self.blocks[block.index()];
        let map = &mut self.cached_block_hash_to_block[key.group_id as usize];
        match state.block_hash() {
            None => state.set_block_hash(key, num_tokens),
            Some(primary) => {
                if primary == key || map.contains(key.hash, block) {
                    return;
                }
                self.cached_block_hashes_by_block.entry(block).or_default().push(key);
            }
        }
        map.insert(key.hash, block);
        self.num_gains += 1;
        self.note(JournalEntry::Insert { hash: key.hash, group_id: key.group_id, block });
    }

    /// Takes all hashes from a block, with an event for each. True if there were any.
    #[inline]
    fn remove_cached_block_hashes(&mut self, block: BlockId) -> bool {
        let Some(primary) = self.blocks[block.index()].reset_hash() else { return false };
        self.remove_cached_block_hash(primary, block);
        if !self.cached_block_hashes_by_block.is_empty()
            && let Some(others) = self.cached_block_hashes_by_block.remove(&block)
        {
            for key in others {
                self.remove_cached_block_hash(key, block);
            }
        }
        true
    }

    #[inline]
    fn remove_cached_block_hash(&mut self, key: BlockHashWithGroupId, block: BlockId) {
        if self.cached_block_hash_to_block[key.group_id as usize].pop(key.hash, block) {
            self.note(JournalEntry::Erase { hash: key.hash, group_id: key.group_id, block });
            self.note_change(CacheChange::Removed { hash: key.hash, group_id: key.group_id });
            if let Some(queue) = &mut self.kv_event_queue {
                queue.push(KvCacheEvent::BlockRemoved { block_hash: key.hash, group_idx: key.group_id });
            }
        }
    }

    /// Moves the hashes of `source` to `destination`, without events: the request that owns
    /// `source` goes on writing into it, and the cache keeps a private copy.
    pub(super) fn move_block_hashes(&mut self, source: BlockId, destination: BlockId) {
        let num_tokens = self.block_hash_num_tokens(source);
        let primary = self.blocks[source.index()].reset_hash();
        let others = self.cached_block_hashes_by_block.remove(&source).unwrap_or_default();
        for key in primary.into_iter().chain(others) {
            self.cached_block_hash_to_block[key.group_id as usize].pop(key.hash, source);
            self.note(JournalEntry::Erase { hash: key.hash, group_id: key.group_id, block: source });
            self.insert_block_hash(key, destination, num_tokens);
        }
    }

    /// Ends the life of a block's content: its hashes go, and its residency is recorded.
    #[inline]
    fn maybe_evict_cached_block(&mut self, block: BlockId) {
        let cached = self.remove_cached_block_hashes(block);
        if let Some(residency) = &mut self.residency {
            residency.on_block_evicted(block, self.now_ns, cached);
        }
    }

    /// Hands out the first `num_blocks` free blocks; their old hashes are evicted.
    ///
    /// # Panics
    /// When fewer are free: the caller has counted before.
    pub(super) fn get_new_blocks(&mut self, num_blocks: u32, out: &mut Vec<BlockId>) {
        assert!(num_blocks <= self.get_num_free_blocks(), "cannot get {num_blocks} free blocks");
        let first = out.len();
        self.free_block_queue.popleft_n(num_blocks, |block| out.push(block));
        for &block in &out[first..] {
            self.note(JournalEntry::PopLeft(block));
            let cached = self.enable_caching && self.remove_cached_block_hashes(block);
            let state = &mut self.blocks[block.index()];
            debug_assert_eq!(state.ref_cnt, 0);
            debug_assert!(!state.has_hash(), "block {block:?} is handed out with a hash");
            state.ref_cnt = 1;
            if let Some(residency) = &mut self.residency {
                if self.enable_caching {
                    residency.on_block_allocated_anew(block, self.now_ns, cached);
                } else {
                    residency.on_block_allocated(block, self.now_ns);
                }
            }
        }
    }

    /// A request takes a block that it hit: not an eviction candidate any more.
    pub(super) fn touch(&mut self, blocks: &[BlockId]) {
        if let Some(journal) = &mut self.journal {
            journal.extend(
                blocks.iter().filter(|block| !block.is_null()).map(|&block| JournalEntry::Touch(block)),
            );
        }
        for &block in blocks {
            if block.is_null() {
                continue;
            }
            let state = &mut self.blocks[block.index()];
            if state.ref_cnt == 0 {
                self.free_block_queue.remove(block);
                if let Some(journal) = &mut self.journal {
                    journal.push(JournalEntry::Remove(block));
                }
            }
            state.ref_cnt += 1;
            self.num_gains += 1;
            if let Some(residency) = &mut self.residency {
                residency.on_block_accessed(block, self.now_ns);
            }
        }
    }

    /// Gives blocks back, the first to be evicted first. A block without a hash can serve nobody
    /// and goes to the front of the queue, one with a hash to the back.
    pub(super) fn free_blocks(&mut self, ordered_blocks: impl Iterator<Item = BlockId>) {
        debug_assert!(self.blocks_to_evict_first.is_empty());
        let (states, first) = (&mut self.blocks, &mut self.blocks_to_evict_first);
        let (journal, enable_caching) = (&mut self.journal, self.enable_caching);
        let evicted_last = ordered_blocks.filter(|block| {
            let state = &mut states[block.index()];
            if block.is_null() {
                return false;
            }
            debug_assert!(state.ref_cnt > 0, "block {block:?} is freed more often than held");
            state.ref_cnt -= 1;
            if let Some(journal) = journal {
                journal.push(JournalEntry::Release(*block));
            }
            if state.ref_cnt > 0 {
                return false;
            }
            let evict_last = state.has_hash() && enable_caching;
            match (evict_last, &mut *journal) {
                (false, _) => first.push(*block),
                (true, Some(journal)) => journal.push(JournalEntry::Append(*block)),
                (true, None) => {}
            }
            evict_last
        });
        self.free_block_queue.append_n(evicted_last);
        while let Some(block) = self.blocks_to_evict_first.pop() {
            self.free_block_queue.prepend(block);
            self.note(JournalEntry::Prepend(block));
        }
    }

    /// Takes the hashes from blocks whose content is not what it was said to be.
    pub(super) fn evict_blocks(&mut self, blocks: impl Iterator<Item = BlockId>) {
        for block in blocks {
            self.maybe_evict_cached_block(block);
        }
    }

    /// Drops every hash; false, and nothing changed, while any block is in use.
    pub(super) fn reset_prefix_cache(&mut self) -> bool {
        if self.get_num_free_blocks() + 1 != self.num_gpu_blocks() {
            return false;
        }
        for map in &mut self.cached_block_hash_to_block {
            map.clear();
        }
        self.cached_block_hashes_by_block.clear();
        for block in &mut self.blocks {
            *block = KvCacheBlock::default();
        }
        if let Some(residency) = &mut self.residency {
            residency.reset();
        }
        self.note(JournalEntry::Clear);
        self.note_change(CacheChange::Cleared);
        if let Some(queue) = &mut self.kv_event_queue {
            queue.push(KvCacheEvent::AllBlocksCleared);
        }
        true
    }

    /// Starts to record changes for [`Self::take_cache_changes`]; the first is that nothing is there,
    /// for those who remember the pool of a server before this one.
    pub fn record_cache_changes(&mut self) {
        self.cache_changes.get_or_insert_with(|| vec![CacheChange::Cleared]);
    }

    /// The changes since the last call, in place of what `changes` holds.
    pub fn take_cache_changes(&mut self, changes: &mut Vec<CacheChange>) {
        changes.clear();
        if let Some(own) = &mut self.cache_changes {
            std::mem::swap(own, changes);
        }
    }

    #[inline]
    fn note_change(&mut self, change: CacheChange) {
        if let Some(changes) = &mut self.cache_changes {
            changes.push(change);
        }
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<KvCacheEvent> {
        self.kv_event_queue.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
