//! A connector that keeps blocks in tiers: host memory, disk, a remote store.
//!
//! Full blocks are copied to the first tier after the step that computed them; what it evicts goes to
//! the next one, and what is loaded from a lower tier passes through the first. Lookups ask the tiers
//! in order. It plans transfers and is told when they are done; how long they take is the
//! simulation's matter.
//!
//! A tier can be one that several engines have in common: what one stored another hits, and it outlives
//! the engine.
//!
//! Every KV cache group has blocks of its own in the tiers. All of them are of one size in bytes, as
//! in vLLM. A group with a sliding window or chunks stores what it has when it is full, and loads no more
//! than the window or chunk before the hit's end. A Mamba group stores the states at block ends where a step
//! ended, and loads one.
//!
//! vLLM's counterparts are `OffloadingConnector` and the tiered stores behind it; the hit sources
//! are those of `vllm:prompt_tokens_cached_by_source`.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::group_lookup::{TierGroup, longest_hit, lookup_order};
use super::tier::TierKey;
use super::{ExternalMatch, HashSpace, KvConnector, SharedBy, TierPlace, TierStore};
use crate::engine::kv_cache::{BlockId, NULL_BLOCK};
use crate::engine::request::{Request, RequestStatus};

/// A copy between the GPU, or the tier above, and a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Index of the tier.
    pub tier: usize,
    pub direction: Direction,
    pub blocks: Vec<TierKey>,
    /// The request that waits for it, or whose blocks it reads.
    request: Option<u64>,
    /// Transfers from before a reset leave nothing behind.
    generation: u64,
}

impl Transfer {
    /// The request that waits for it, or whose blocks it reads.
    pub fn request(&self) -> Option<u64> {
        self.request
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of the tier, for a request that waits.
    Read,
    /// Into the tier.
    Write,
}

/// What an engine has had of a tier and done to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    pub hit_tokens: u64,
    /// Of these, in blocks that other replicas stored.
    pub hit_tokens_of_others: u64,
    pub written_blocks: u64,
    /// That had to leave for what it wrote.
    pub evicted_blocks: u64,
}

impl TierStats {
    /// Adds those of another engine.
    pub fn add(&mut self, other: &Self) {
        self.hit_tokens += other.hit_tokens;
        self.hit_tokens_of_others += other.hit_tokens_of_others;
        self.written_blocks += other.written_blocks;
        self.evicted_blocks += other.evicted_blocks;
    }
}

#[derive(Debug, Default)]
struct RequestState {
    /// Computed tokens at the last lookup.
    num_computed_tokens: u32,
    /// By group, blocks whose copy has been planned or was not needed.
    num_saved_blocks: Vec<u32>,
    num_reads: u32,
    num_writes: u32,
    /// Ended, and its blocks are kept for the writes.
    is_finished: bool,
}

#[derive(Debug)]
struct Store {
    /// Tokens from one block hash to the next.
    hash_block_size: u32,
    groups: Vec<TierGroup>,
    /// In which groups are looked up. The hits of the first are counted.
    lookup_order: Vec<usize>,
    /// Number of the replica.
    replica: u32,
    space: HashSpace,
    tiers: Vec<TierPlace>,
    stats: Vec<TierStats>,
    requests: FxHashMap<u64, RequestState>,
    planned: Vec<Transfer>,
    /// Of the request at hand, to be stored.
    to_save: Vec<TierKey>,
    generation: u64,
}

/// Shared by the scheduler, which plans, and the replica, which carries out.
#[derive(Clone, Debug)]
pub struct TieredConnector(Rc<RefCell<Store>>);

/// Requests whose transfers have all been done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferDone {
    pub finished_recving: Option<u64>,
    pub finished_sending: Option<u64>,
}

impl TieredConnector {
    /// For an engine with these groups, whose requests have a hash for each `hash_block_size` tokens.
    pub fn new(hash_block_size: u32, groups: &[TierGroup], tiers: Vec<TierPlace>) -> Self {
        Self(Rc::new(RefCell::new(Store {
            hash_block_size,
            groups: groups.to_vec(),
            lookup_order: lookup_order(groups),
            replica: 0,
            space: HashSpace::default(),
            stats: vec![TierStats::default(); tiers.len()],
            tiers,
            requests: FxHashMap::default(),
            planned: Vec::new(),
            to_save: Vec::new(),
            generation: 0,
        })))
    }

    /// The engine is replica number `replica` of several, and its hashes are those of a space.
    pub fn of_replica(self, replica: u32, space: HashSpace) -> Self {
        {
            let store = &mut *self.0.borrow_mut();
            (store.replica, store.space) = (replica, space);
        }
        self
    }

    /// Takes the transfers that the last step planned.
    pub fn take_transfers(&self) -> Vec<Transfer> {
        std::mem::take(&mut self.0.borrow_mut().planned)
    }

    /// A transfer is done.
    pub fn complete(&self, transfer: &Transfer) -> TransferDone {
        self.0.borrow_mut().complete(transfer)
    }

    /// The server has gone, with its requests and all that its own tiers held. What it has in common with
    /// others stays.
    pub fn restart(&self) {
        let store = &mut *self.0.borrow_mut();
        let own = store.tiers.iter().filter(|tier| tier.store.shared().is_none());
        own.for_each(|tier| tier.store.clear());
        store.space.begin_anew();
        store.generation += 1;
        store.requests.clear();
        store.planned.clear();
    }

    /// The machine has gone, with the memory and disks that its servers shared.
    pub fn lose_node(&self) {
        let store = self.0.borrow();
        let of_node = store.tiers.iter().filter(|tier| tier.store.shared() == Some(SharedBy::Node));
        of_node.for_each(|tier| tier.store.clear());
    }

    /// The stores of its tiers, in order, and what it has done to each since the start.
    pub fn stats(&self) -> Vec<(TierStore, TierStats)> {
        let store = self.0.borrow();
        store.tiers.iter().zip(&store.stats).map(|(tier, stats)| (tier.store.clone(), *stats)).collect()
    }
}

impl Store {
    /// Empties the tiers; what is on its way to them leaves nothing behind.
    fn drop_blocks(&mut self) {
        self.tiers.iter().for_each(|tier| tier.store.clear());
        self.generation += 1;
    }

    fn tier_with(&self, key: TierKey) -> Option<usize> {
        self.tiers.iter().position(|tier| tier.store.contains(key))
    }

    fn state(&mut self, id: u64) -> &mut RequestState {
        let num_groups = self.groups.len();
        let new = || RequestState { num_saved_blocks: vec![0; num_groups], ..RequestState::default() };
        self.requests.entry(id).or_insert_with(new)
    }

    /// Blocks of a group among so many tokens whose hash is known.
    fn num_keys(&self, request: &Request, group: usize, num_tokens: u32) -> u32 {
        let num_hashed_tokens = request.block_hashes.len() as u32 * self.hash_block_size;
        num_tokens.min(num_hashed_tokens) / self.groups[group].block_size
    }

    /// The key of a block that [`Self::num_keys`] counts. A hash stands for its block and all before
    /// it.
    fn key(&self, request: &Request, group: usize, block: u32) -> TierKey {
        let hashes_per_block = self.groups[group].block_size / self.hash_block_size;
        let last = (block + 1) * hashes_per_block - 1;
        TierKey { space: self.space.number(), group: group as u32, hash: request.block_hashes[last as usize] }
    }

    fn plan(&mut self, tier: usize, direction: Direction, blocks: Vec<TierKey>, request: Option<u64>) {
        if !blocks.is_empty() {
            let generation = self.generation;
            self.planned.push(Transfer { tier, direction, blocks, request, generation });
        }
    }

    /// Notes the blocks of a group to be stored that are full with so many tokens, and looked at no further.
    fn save(&mut self, request: &Request, group: usize, num_tokens: u32, blocks: &[BlockId]) {
        let num_full = self.num_keys(request, group, num_tokens);
        let saved = &mut self.state(request.id).num_saved_blocks[group];
        let first = *saved;
        *saved = first.max(num_full);
        for block in first..num_full {
            // Of a chunk of prefill only the last state is written. What windows have left since it was computed
            // is still stored.
            let is_written = !self.groups[group].is_mamba()
                || blocks.get(block as usize).is_some_and(|&block| block != NULL_BLOCK);
            let key = self.key(request, group, block);
            if is_written && !self.tiers[0].store.contains(key) {
                self.to_save.push(key);
            }
        }
    }

    /// Plans to store what [`Self::save`] has noted of a request.
    fn plan_saves(&mut self, id: u64) {
        let blocks = std::mem::take(&mut self.to_save);
        self.state(id).num_writes += u32::from(!blocks.is_empty());
        self.plan(0, Direction::Write, blocks, Some(id));
    }

    /// Takes blocks into a tier; what leaves it goes on to the next.
    fn insert(&mut self, tier: usize, blocks: &[TierKey]) {
        let store = &self.tiers[tier].store;
        let by = self.replica;
        let evicted: Vec<TierKey> = blocks.iter().filter_map(|&key| store.insert(key, by)).collect();
        self.stats[tier].evicted_blocks += evicted.len() as u64;
        if self.tiers.get(tier + 1).is_some_and(|next| !next.write_through) {
            self.plan_copies(tier + 1, &evicted);
        }
    }

    /// Copies blocks to a tier, unless they are there.
    fn plan_copies(&mut self, tier: usize, blocks: &[TierKey]) {
        let store = &self.tiers[tier].store;
        let new = blocks.iter().copied().filter(|&key| !store.contains(key)).collect();
        self.plan(tier, Direction::Write, new, None);
    }

    fn complete(&mut self, transfer: &Transfer) -> TransferDone {
        let is_current = transfer.generation == self.generation;
        if is_current && transfer.direction == Direction::Write {
            self.stats[transfer.tier].written_blocks += transfer.blocks.len() as u64;
            self.insert(transfer.tier, &transfer.blocks);
            for tier in 1..self.tiers.len() {
                if transfer.tier == 0 && self.tiers[tier].write_through {
                    self.plan_copies(tier, &transfer.blocks);
                }
            }
        }
        if is_current && transfer.direction == Direction::Read && transfer.tier > 0 {
            self.insert(0, &transfer.blocks);
        }
        let mut done = TransferDone::default();
        let Some(id) = transfer.request else { return done };
        let Some(state) = self.requests.get_mut(&id) else { return done };
        match transfer.direction {
            Direction::Read => {
                state.num_reads -= 1;
                done.finished_recving = (state.num_reads == 0).then_some(id);
            }
            Direction::Write => {
                state.num_writes -= 1;
                done.finished_sending = (state.is_finished && state.num_writes == 0).then_some(id);
            }
        }
        if done.finished_sending.is_some() {
            self.requests.remove(&id);
        }
        done
    }
}

impl KvConnector for TieredConnector {
    fn get_num_new_matched_tokens(&mut self, request: &Request, num_computed_tokens: u32) -> ExternalMatch {
        let store = &mut *self.0.borrow_mut();
        store.state(request.id).num_computed_tokens = num_computed_tokens;
        let num_tokens = longest_hit(
            &store.groups,
            &store.lookup_order,
            request.num_tokens(),
            num_computed_tokens,
            |group| store.num_keys(request, group, u32::MAX),
            |group, block| store.tier_with(store.key(request, group, block)).is_some(),
        );
        ExternalMatch::Tokens { num_tokens, load_async: num_tokens > 0 }
    }

    fn update_state_after_alloc(
        &mut self,
        request: &Request,
        block_ids: &[&[BlockId]],
        num_external_tokens: u32,
    ) {
        let store = &mut *self.0.borrow_mut();
        let num_computed_tokens = store.state(request.id).num_computed_tokens;
        let end = num_computed_tokens + num_external_tokens;
        let mut reads: Vec<Vec<TierKey>> = vec![Vec::new(); store.tiers.len()];
        for (group, blocks) in block_ids.iter().enumerate() {
            let TierGroup { block_size, .. } = store.groups[group];
            // What lies before a window is not there to be saved; a state that was hit is not a new one.
            let num_skipped = blocks.iter().take_while(|&&block| block == NULL_BLOCK).count() as u32;
            let num_hits = num_computed_tokens / block_size;
            let num_left =
                if store.groups[group].is_mamba() { num_skipped.max(num_hits) } else { num_skipped };
            let saved = &mut store.state(request.id).num_saved_blocks[group];
            *saved = (*saved).max(num_left);
            if num_external_tokens == 0 {
                continue;
            }
            let computed = num_computed_tokens.div_ceil(block_size);
            let is_null = |block: &&BlockId| **block == NULL_BLOCK;
            let first = computed + blocks.iter().skip(computed as usize).take_while(is_null).count() as u32;
            for block in first..end.div_ceil(block_size).min(store.num_keys(request, group, u32::MAX)) {
                let key = store.key(request, group, block);
                let Some(tier) = store.tier_with(key) else { continue };
                let is_counted = group == store.lookup_order[0];
                let num_tokens = if is_counted { u64::from(block_size) } else { 0 };
                let is_of_another = store.tiers[tier].store.hit(key, store.replica, num_tokens);
                let stats = &mut store.stats[tier];
                stats.hit_tokens += num_tokens;
                stats.hit_tokens_of_others += if is_of_another { num_tokens } else { 0 };
                reads[tier].push(key);
            }
        }
        if num_external_tokens > 0 {
            let num_reads = reads.iter().filter(|blocks| !blocks.is_empty()).count() as u32;
            store.state(request.id).num_reads = num_reads;
        }
        for (tier, blocks) in reads.into_iter().enumerate() {
            store.plan(tier, Direction::Read, blocks, Some(request.id));
        }
    }

    fn on_scheduled<'a>(
        &mut self,
        request: &Request,
        num_computed_tokens: u32,
        blocks: &dyn Fn(usize) -> &'a [BlockId],
    ) {
        let store = &mut *self.0.borrow_mut();
        (0..store.groups.len())
            .for_each(|group| store.save(request, group, num_computed_tokens, blocks(group)));
        store.plan_saves(request.id);
    }

    fn request_finished(&mut self, request: &Request, block_ids: &[&[BlockId]]) -> bool {
        let store = &mut *self.0.borrow_mut();
        if !store.requests.contains_key(&request.id) {
            return false;
        }
        // With async scheduling the last tokens became known after the step that computed them was planned. The
        // very last was never computed.
        let num_tokens = match request.status {
            RequestStatus::FinishedAborted => request.num_computed_tokens,
            _ => request.num_prompt_tokens.max(request.num_tokens() - 1),
        };
        for (group, blocks) in block_ids.iter().enumerate() {
            // A state that nobody was told of goes with the request.
            if !store.groups[group].is_mamba() {
                store.save(request, group, num_tokens, blocks);
            }
        }
        store.plan_saves(request.id);
        let state = store.state(request.id);
        state.is_finished = true;
        let keeps_blocks = state.num_writes > 0;
        if !keeps_blocks && state.num_reads == 0 {
            store.requests.remove(&request.id);
        }
        keeps_blocks
    }

    fn reset_cache(&mut self) -> bool {
        self.0.borrow_mut().drop_blocks();
        true
    }
}
