//! The pool against a naive model of its rules: random operations on both, and everything that can
//! be seen of them compared after each.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{
    BlockHashWithGroupId, BlockId, BlockMask, BlockPool, BlockPoolConfig, FullBlocks, JournalEntry,
    NULL_BLOCK,
};
use crate::engine::hash::{BlockHash, RequestBlockHasher};
use crate::engine::kv_events::{BlockStored, KvCacheEvent};
use crate::engine::request::{NewRequest, Request};
use crate::prompt::TokenRuns;

const NUM_GPU_BLOCKS: u32 = 12;
const HASH_BLOCK_SIZE: u32 = 2;
/// By group: one has two hash blocks in a block, one has one.
const BLOCK_SIZES: [u32; 2] = [4, 2];

type Key = (BlockHash, u32);

#[derive(Clone, Debug, Default)]
struct ModelBlock {
    ref_cnt: u32,
    /// The primary hash first.
    hashes: Vec<Key>,
    /// Prefix length of the primary hash.
    num_tokens: u32,
}

/// The rules as lists and linear scans.
struct Model {
    blocks: Vec<ModelBlock>,
    free: VecDeque<u32>,
    /// Equal blocks stay apart, in order of insertion.
    map: Vec<(Key, Vec<u32>)>,
    events: Vec<KvCacheEvent>,
    enable_caching: bool,
    num_lookahead_tokens: u32,
}

impl Model {
    fn new(enable_caching: bool, num_lookahead_tokens: u32) -> Self {
        Self {
            blocks: vec![ModelBlock::default(); NUM_GPU_BLOCKS as usize],
            free: (1..NUM_GPU_BLOCKS).collect(),
            map: Vec::new(),
            events: Vec::new(),
            enable_caching,
            num_lookahead_tokens,
        }
    }

    fn first(&self, key: Key) -> Option<u32> {
        self.map.iter().find(|entry| entry.0 == key).map(|entry| entry.1[0])
    }

    fn under(&self, key: Key) -> &[u32] {
        self.map.iter().find(|entry| entry.0 == key).map_or(&[], |entry| &entry.1)
    }

    fn put(&mut self, key: Key, block: u32) {
        match self.map.iter_mut().find(|entry| entry.0 == key) {
            Some(entry) => entry.1.push(block),
            None => self.map.push((key, vec![block])),
        }
    }

    fn take(&mut self, key: Key, block: u32) {
        for entry in self.map.iter_mut().filter(|entry| entry.0 == key) {
            entry.1.retain(|&other| other != block);
        }
        self.map.retain(|entry| !entry.1.is_empty());
    }

    fn evict(&mut self, block: u32) {
        for key in std::mem::take(&mut self.blocks[block as usize]).hashes {
            self.take(key, block);
            self.events.push(KvCacheEvent::BlockRemoved { block_hash: key.0, group_idx: key.1 });
        }
    }

    /// `evict` without a change of who holds the block.
    fn drop_hashes(&mut self, block: u32) {
        let ref_cnt = self.blocks[block as usize].ref_cnt;
        self.evict(block);
        self.blocks[block as usize].ref_cnt = ref_cnt;
    }

    /// From the front of the queue, and the old hashes go.
    fn get_new_blocks(&mut self, num_blocks: u32) -> Vec<u32> {
        let blocks: Vec<u32> = self.free.drain(..num_blocks as usize).collect();
        for &block in &blocks {
            self.evict(block);
            self.blocks[block as usize].ref_cnt = 1;
        }
        blocks
    }

    fn touch(&mut self, block: u32) {
        self.free.retain(|&other| other != block);
        self.blocks[block as usize].ref_cnt += 1;
    }

    /// Nobody can hit a block without a hash, so it goes to the front, the others to the back.
    fn free_blocks(&mut self, blocks: &[u32]) {
        let mut front = Vec::new();
        for &block in blocks.iter().filter(|&&block| block != 0) {
            let state = &mut self.blocks[block as usize];
            state.ref_cnt -= 1;
            match state.ref_cnt {
                0 if state.hashes.is_empty() || !self.enable_caching => front.push(block),
                0 => self.free.push_back(block),
                _ => {}
            }
        }
        front.extend(&self.free);
        self.free = front.into();
    }

    fn give_hash(&mut self, key: Key, block: u32, num_tokens: u32) {
        let state = &mut self.blocks[block as usize];
        if state.hashes.contains(&key) {
            return;
        }
        if state.hashes.is_empty() {
            state.num_tokens = num_tokens;
        }
        state.hashes.push(key);
        self.put(key, block);
    }

    fn stored(&self, request: &Request, group: u32, start: u32, end: u32, size: u32) -> BlockStored {
        let parent = (start / HASH_BLOCK_SIZE).checked_sub(1);
        BlockStored {
            block_hashes: Vec::new(),
            parent_block_hash: parent.map(|at| request.block_hashes[at as usize]),
            token_ids: request.all_token_ids.ids(start, end).collect(),
            block_size: size,
            lora_id: None,
            lora_name: None,
            extra_keys: Vec::new(),
            group_idx: group,
            session_id: None,
            lookahead_token_ids: (self.num_lookahead_tokens > 0).then(Vec::new),
        }
    }

    fn add_to_event(&self, event: &mut BlockStored, request: &Request, end: u32) {
        event.block_hashes.push(hash_at(request, end));
        event.extra_keys.push(None);
        if let Some(lookahead) = &mut event.lookahead_token_ids {
            lookahead.push(
                (end..end + self.num_lookahead_tokens).map(|at| request.all_token_ids.get(at)).collect(),
            );
        }
    }

    /// `kept` says of each block whether it is to be hashed.
    fn cache_full_blocks(&mut self, request: &Request, table: &Table, end: u32, kept: impl Fn(u32) -> bool) {
        let (group, size, start) = (table.group, table.block_size(), table.num_cached);
        let mut event = self.stored(request, group, start * size, end * size, size);
        for index in start..end {
            let block = table.blocks[index as usize].0;
            let num_tokens = (index + 1) * size;
            if block == 0 || !kept(index) {
                continue;
            }
            self.drop_hashes(block);
            self.give_hash((hash_at(request, num_tokens), group), block, num_tokens);
            self.add_to_event(&mut event, request, num_tokens);
        }
        self.events.push(KvCacheEvent::BlockStored(event));
    }

    /// One more hash for a block, in place of those of shorter prefixes.
    fn cache_partial_block(&mut self, request: &Request, group: u32, block: u32, num_tokens: u32) {
        let key = (hash_at(request, num_tokens), group);
        if block == 0 || self.blocks[block as usize].hashes.contains(&key) {
            return;
        }
        if self.blocks[block as usize].num_tokens < num_tokens {
            self.drop_hashes(block);
        }
        self.give_hash(key, block, num_tokens);
        let start = num_tokens - HASH_BLOCK_SIZE;
        let mut event = self.stored(request, group, start, num_tokens, HASH_BLOCK_SIZE);
        self.add_to_event(&mut event, request, num_tokens);
        self.events.push(KvCacheEvent::BlockStored(event));
    }

    fn move_block_hashes(&mut self, source: u32, destination: u32) {
        let ModelBlock { hashes, num_tokens, .. } = self.blocks[source as usize].clone();
        self.blocks[source as usize].hashes.clear();
        self.blocks[source as usize].num_tokens = 0;
        for key in hashes {
            self.take(key, source);
            self.give_hash(key, destination, num_tokens);
        }
    }

    fn reset_prefix_cache(&mut self) -> bool {
        if self.blocks.iter().any(|state| state.ref_cnt > 0) {
            return false;
        }
        self.map.clear();
        self.blocks.fill(ModelBlock::default());
        self.events.push(KvCacheEvent::AllBlocksCleared);
        true
    }
}

/// The hash of the prefix of `num_tokens` tokens.
fn hash_at(request: &Request, num_tokens: u32) -> BlockHash {
    request.block_hashes[(num_tokens / HASH_BLOCK_SIZE) as usize - 1]
}

/// The blocks of a request in one group.
struct Table {
    request: usize,
    group: u32,
    blocks: Vec<BlockId>,
    num_cached: u32,
}

impl Table {
    fn block_size(&self) -> u32 {
        BLOCK_SIZES[self.group as usize]
    }
}

/// Somebody who knows of the pool only what its journal says.
struct Follower {
    free: VecDeque<u32>,
    pairs: Vec<(Key, u32)>,
    ref_cnts: Vec<u32>,
}

impl Follower {
    fn follow(&mut self, change: JournalEntry) {
        match change {
            JournalEntry::PopLeft(block) => {
                assert_eq!(self.free.pop_front(), Some(block.0));
                self.ref_cnts[block.index()] = 1;
            }
            JournalEntry::Touch(block) => self.ref_cnts[block.index()] += 1,
            JournalEntry::Release(block) => self.ref_cnts[block.index()] -= 1,
            JournalEntry::Remove(block) => self.free.retain(|&other| other != block.0),
            JournalEntry::Prepend(block) => self.free.push_front(block.0),
            JournalEntry::Append(block) => self.free.push_back(block.0),
            JournalEntry::Insert { hash, group_id, block } => self.pairs.push(((hash, group_id), block.0)),
            JournalEntry::Erase { hash, group_id, block } => {
                let pair = ((hash, group_id), block.0);
                let at = self.pairs.iter().position(|&other| other == pair).expect("a pair was inserted");
                self.pairs.remove(at);
            }
            JournalEntry::Clear => self.pairs.clear(),
            JournalEntry::Lookup { .. }
            | JournalEntry::Hit(_)
            | JournalEntry::Refuse { .. }
            | JournalEntry::Allocate { .. }
            | JournalEntry::CacheFullBlocks { .. }
            | JournalEntry::Preempt { .. }
            | JournalEntry::Free { .. } => {}
        }
    }
}

struct World {
    pool: BlockPool,
    model: Model,
    follower: Follower,
    requests: Vec<Request>,
    tables: Vec<Table>,
    /// Blocks that are held outside of any table.
    loose: Vec<BlockId>,
}

impl World {
    fn new(enable_caching: bool, num_lookahead_tokens: u32) -> Self {
        let mut pool = BlockPool::new(BlockPoolConfig {
            num_gpu_blocks: NUM_GPU_BLOCKS,
            num_groups: BLOCK_SIZES.len(),
            enable_caching,
            hash_block_size: HASH_BLOCK_SIZE,
            num_hash_lookahead_tokens: num_lookahead_tokens,
            enable_kv_cache_events: true,
            record_residency: false,
        });
        pool.follow();
        let mut hasher = RequestBlockHasher::identity(HASH_BLOCK_SIZE, num_lookahead_tokens);
        // Prefixes that are equal up to different places, so that hits and duplicates are common.
        let requests = (0..4_u64)
            .map(|id| {
                let mut prompt_token_ids = TokenRuns::from_run(0, 5 + 2 * id as u32);
                prompt_token_ids.push_run(100 * (id / 2), 14);
                let request = NewRequest { id, prompt_token_ids, max_tokens: 1, ..NewRequest::default() };
                Request::new(request, Some(&mut hasher))
            })
            .collect();
        Self {
            pool,
            model: Model::new(enable_caching, num_lookahead_tokens),
            follower: Follower {
                free: (1..NUM_GPU_BLOCKS).collect(),
                pairs: Vec::new(),
                ref_cnts: vec![0; NUM_GPU_BLOCKS as usize],
            },
            requests,
            tables: Vec::new(),
            loose: Vec::new(),
        }
    }

    /// Takes `num_blocks` from both, as far as there are so many.
    fn get_new_blocks(&mut self, num_blocks: u32) -> Vec<BlockId> {
        let num_blocks = num_blocks.min(self.pool.get_num_free_blocks());
        let mut blocks = Vec::new();
        self.pool.get_new_blocks(num_blocks, &mut blocks);
        assert_eq!(ids(&blocks), self.model.get_new_blocks(num_blocks));
        blocks
    }

    fn free(&mut self, blocks: &[BlockId]) {
        self.pool.free_blocks(blocks.iter().copied());
        self.model.free_blocks(&ids(blocks));
    }

    /// Takes the hits of a request and makes a table of them.
    fn start(&mut self, request: usize, group: u32) {
        let mut table = Table { request, group, blocks: Vec::new(), num_cached: 0 };
        let hashes = &self.requests[request].block_hashes;
        let scale = (table.block_size() / HASH_BLOCK_SIZE) as usize;
        let full_hashes = hashes.iter().skip(scale - 1).step_by(scale);
        for &hash in full_hashes {
            let mut hit = None;
            let found = self.pool.get_cached_block(hash, &[group], |_, block| hit = Some(block));
            assert_eq!((found, hit.map(|block| block.0)), (hit.is_some(), self.model.first((hash, group))));
            let Some(block) = hit else { break };
            table.blocks.push(block);
        }
        table.num_cached = table.blocks.len() as u32;
        self.pool.touch(&table.blocks);
        for block in ids(&table.blocks) {
            self.model.touch(block);
        }
        self.tables.push(table);
    }

    fn cache_full_blocks(&mut self, at: usize, mask: BlockMask, kept: impl Fn(u32) -> bool) {
        let table = &mut self.tables[at];
        let request = &self.requests[table.request];
        let num_hashed = request.block_hashes.len() as u32 * HASH_BLOCK_SIZE / table.block_size();
        let end = num_hashed.min(table.blocks.len() as u32);
        let (start, size, group) = (table.num_cached, table.block_size(), table.group);
        let full = FullBlocks {
            num_cached_blocks: start,
            num_full_blocks: end,
            block_size: size,
            group_id: group,
            mask,
        };
        self.pool.cache_full_blocks(request, &table.blocks, &full);
        if start < end {
            self.model.cache_full_blocks(request, table, end, kept);
            table.num_cached = end;
        }
    }

    fn cache_partial_block(&mut self, at: usize, choice: u32) {
        let table = &self.tables[at];
        let request = &self.requests[table.request];
        let num_boundaries = (table.blocks.len() as u32 * table.block_size() / HASH_BLOCK_SIZE)
            .min(request.block_hashes.len() as u32);
        if num_boundaries == 0 {
            return;
        }
        let num_tokens = (choice % num_boundaries + 1) * HASH_BLOCK_SIZE;
        let index = (num_tokens - 1) / table.block_size();
        if index >= table.num_cached && num_tokens.is_multiple_of(table.block_size()) {
            // The whole block, which is for `cache_full_blocks` to hash.
            return;
        }
        let block = table.blocks[index as usize];
        let key = self.pool.cache_partial_block(request, block, num_tokens, table.group);
        assert_eq!(key.is_none(), block.is_null());
        self.model.cache_partial_block(request, table.group, block.0, num_tokens);
    }

    /// A window moves on: leading blocks are freed, the later ones first.
    fn drop_leading_blocks(&mut self, at: usize, num_blocks: usize) {
        let table = &mut self.tables[at];
        let end = num_blocks.min(table.blocks.len());
        let mut dropped: Vec<BlockId> =
            table.blocks[..end].iter_mut().map(|block| std::mem::replace(block, NULL_BLOCK)).collect();
        dropped.reverse();
        self.free(&dropped);
    }

    fn move_block_hashes(&mut self, at: usize, choice: usize) {
        let blocks = &self.tables[at].blocks;
        let Some(&source) = blocks.get(choice % blocks.len().max(1)) else { return };
        if source.is_null() || self.model.blocks[source.index()].hashes.is_empty() {
            return;
        }
        if let Some(&copy) = self.get_new_blocks(1).first() {
            self.loose.push(copy);
            self.pool.move_block_hashes(source, copy);
            self.model.move_block_hashes(source.0, copy.0);
        }
    }

    fn emit_cached_block_events(&mut self, at: usize) {
        let table = &self.tables[at];
        let request = &self.requests[table.request];
        let (size, group) = (table.block_size(), table.group);
        self.pool.emit_cached_block_events(request, table.num_cached, size, group);
        if table.num_cached > 0 {
            let mut event = self.model.stored(request, group, 0, table.num_cached * size, size);
            for index in 0..table.num_cached {
                self.model.add_to_event(&mut event, request, (index + 1) * size);
            }
            self.model.events.push(KvCacheEvent::BlockStored(event));
        }
    }

    fn apply(&mut self, (operation, a, b): (u8, u32, u32)) {
        let caching = self.model.enable_caching;
        let table = (!self.tables.is_empty()).then(|| a as usize % self.tables.len().max(1));
        match (operation, table) {
            (0 | 1, _) => self.start(a as usize % self.requests.len(), b % BLOCK_SIZES.len() as u32),
            (2 | 3, Some(at)) => {
                let blocks = self.get_new_blocks(b % 4);
                self.tables[at].blocks.extend(blocks);
            }
            (4 | 5, Some(at)) if caching => self.cache_full_blocks(at, BlockMask::All, |_| true),
            (6, Some(at)) if caching => {
                // The last block of every two, one place to the right: the even ones from 2 on.
                let mask = BlockMask::SegmentTails { per_segment: 2, need: 1, shift: b % 2 };
                let parity = (1 + b) % 2;
                self.cache_full_blocks(at, mask, |index| index % 2 == parity && index > b % 2);
            }
            (7, Some(at)) if caching => self.cache_partial_block(at, b),
            (8, Some(at)) => {
                let mut blocks = self.tables.remove(at).blocks;
                blocks.reverse();
                self.free(&blocks);
            }
            (9, Some(at)) => self.drop_leading_blocks(at, b as usize % 4),
            (10, _) => {
                let evicted = [1 + a % (NUM_GPU_BLOCKS - 1), 1 + b % (NUM_GPU_BLOCKS - 1)];
                self.pool.evict_blocks(evicted.into_iter().map(BlockId));
                evicted.into_iter().for_each(|block| self.model.drop_hashes(block));
            }
            (11, _) => {
                if b % 4 == 0 {
                    for table in std::mem::take(&mut self.tables) {
                        self.free(&table.blocks);
                    }
                    let loose = std::mem::take(&mut self.loose);
                    self.free(&loose);
                }
                assert_eq!(self.pool.reset_prefix_cache(), self.model.reset_prefix_cache());
            }
            (12, Some(at)) if caching => self.move_block_hashes(at, b as usize),
            (13, Some(at)) if caching => self.emit_cached_block_events(at),
            (14, Some(at)) => {
                let held: Vec<_> = self.tables[at].blocks.iter().copied().filter(|b| !b.is_null()).collect();
                if let Some(&block) = held.get(b as usize % held.len().max(1)) {
                    self.pool.retain(block);
                    self.model.blocks[block.index()].ref_cnt += 1;
                    self.loose.push(block);
                }
            }
            (15, _) => {
                let loose = std::mem::take(&mut self.loose);
                self.free(&loose);
            }
            _ => {}
        }
    }

    fn compare(&mut self) {
        let (pool, model, follower) = (&mut self.pool, &mut self.model, &mut self.follower);
        pool.drain_journal().for_each(|change| follower.follow(change));
        let free: Vec<u32> = pool.free_blocks_in_order().map(|block| block.0).collect();
        assert_eq!(model.free, free, "free queue");
        assert_eq!(follower.free, free, "free queue by the journal");
        for (id, expected) in (0..).zip(&model.blocks).skip(1) {
            let state = &pool.blocks[id as usize];
            let others = pool.cached_block_hashes_by_block.get(&BlockId(id)).into_iter().flatten();
            let key = |key: &BlockHashWithGroupId| (key.hash, key.group_id);
            let hashes: Vec<Key> = state.block_hash().iter().chain(others).map(key).collect();
            let seen = (state.ref_cnt, state.block_hash_num_tokens, hashes);
            assert_eq!(seen, (expected.ref_cnt, expected.num_tokens, expected.hashes.clone()), "block {id}");
            assert_eq!(follower.ref_cnts[id as usize], expected.ref_cnt, "block {id} by the journal");
        }
        for (hash, group) in
            self.requests.iter().flat_map(|r| &r.block_hashes).flat_map(|&h| [(h, 0), (h, 1)])
        {
            let map = &pool.cached_block_hash_to_block[group as usize];
            assert_eq!(map.get_one_block(hash).map(|block| block.0), model.first((hash, group)));
            for id in 0..NUM_GPU_BLOCKS {
                let expected = model.under((hash, group)).contains(&id);
                assert_eq!(map.contains(hash, BlockId(id)), expected);
                assert_eq!(follower.pairs.contains(&((hash, group), id)), expected, "pairs by the journal");
            }
        }
        assert_eq!(pool.num_cached_hashes(), model.map.len());
        assert_eq!(pool.num_cached_pairs(), model.map.iter().map(|entry| entry.1.len()).sum::<usize>());
        assert_eq!(follower.pairs.len(), pool.num_cached_pairs());
        assert_eq!(pool.take_events(), std::mem::take(&mut model.events));
        let mut holders = [0; NUM_GPU_BLOCKS as usize];
        for block in self.tables.iter().flat_map(|table| &table.blocks).chain(&self.loose) {
            holders[block.index()] += 1;
        }
        pool.check_invariants(&holders);
    }
}

fn ids(blocks: &[BlockId]) -> Vec<u32> {
    blocks.iter().map(|block| block.0).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn behaves_as_the_model(
        operations in prop::collection::vec((0_u8..16, 0_u32..1000, 0_u32..1000), 0..150),
        enable_caching in prop::bool::weighted(0.9),
        num_lookahead_tokens in 0_u32..2,
    ) {
        let mut world = World::new(enable_caching, num_lookahead_tokens);
        for operation in operations {
            world.apply(operation);
            world.compare();
        }
    }
}
