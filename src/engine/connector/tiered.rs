//! A connector that keeps blocks in tiers: host memory, disk, a remote store.
//!
//! Full blocks are copied to the first tier after the step that computed them; what it evicts goes to
//! the next one, and what is loaded from a lower tier passes through the first. Lookups ask the tiers
//! in order. It plans transfers and is told when they are done; how long they take is the
//! simulation's matter.
//!
//! vLLM's counterparts are `OffloadingConnector` and the tiered stores behind it; the hit sources
//! are those of `vllm:prompt_tokens_cached_by_source`.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::tier::Tier;
use super::{EvictionOrder, ExternalMatch, KvConnector};
use crate::engine::hash::BlockHash;
use crate::engine::kv_cache::BlockId;
use crate::engine::request::Request;

/// Where a tier lies; vLLM's `CacheHitSource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierKind {
    Host,
    Disk,
    /// Another machine (`p2p` in vLLM's metrics).
    Remote,
}

/// What a tier is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierConfig {
    pub kind: TierKind,
    pub capacity_blocks: usize,
    pub eviction: EvictionOrder,
}

/// A copy between the GPU, or the tier above, and a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Index of the tier.
    pub tier: usize,
    pub direction: Direction,
    pub hashes: Vec<BlockHash>,
    /// The request that waits for it, or whose blocks it reads.
    request: Option<u64>,
    /// Transfers from before a reset leave nothing behind.
    generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of the tier, for a request that waits.
    Read,
    /// Into the tier.
    Write,
}

/// What has been read from and written to the tiers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierStats {
    pub hit_tokens: u64,
    pub written_blocks: u64,
    pub evicted_blocks: u64,
    pub held_blocks: u64,
}

#[derive(Debug, Default)]
struct RequestState {
    /// First block and number of blocks of the last match.
    matched: (usize, usize),
    /// Blocks whose copy has been planned or was not needed.
    num_saved_blocks: usize,
    num_reads: u32,
    num_writes: u32,
    /// Ended, and its blocks are kept for the writes.
    is_finished: bool,
}

#[derive(Debug)]
struct Store {
    block_size: u32,
    tiers: Vec<Tier>,
    stats: Vec<(TierKind, TierStats)>,
    requests: FxHashMap<u64, RequestState>,
    planned: Vec<Transfer>,
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
    /// For an engine with one group of full attention and blocks of `block_size` tokens.
    pub fn new(block_size: u32, tiers: &[TierConfig]) -> Self {
        Self(Rc::new(RefCell::new(Store {
            block_size,
            stats: tiers.iter().map(|tier| (tier.kind, TierStats::default())).collect(),
            tiers: tiers.iter().map(|tier| Tier::new(tier.capacity_blocks, tier.eviction)).collect(),
            requests: FxHashMap::default(),
            planned: Vec::new(),
            generation: 0,
        })))
    }

    /// Takes the transfers that the last step planned.
    pub fn take_transfers(&self) -> Vec<Transfer> {
        std::mem::take(&mut self.0.borrow_mut().planned)
    }

    /// A transfer is done.
    pub fn complete(&self, transfer: &Transfer) -> TransferDone {
        self.0.borrow_mut().complete(transfer)
    }

    /// Stats of each tier since the start.
    pub fn stats(&self) -> Vec<(TierKind, TierStats)> {
        let store = self.0.borrow();
        let with_held = |((kind, stats), tier): (&(TierKind, TierStats), &Tier)| {
            (*kind, TierStats { held_blocks: tier.len() as u64, ..stats.clone() })
        };
        store.stats.iter().zip(&store.tiers).map(with_held).collect()
    }
}

impl Store {
    fn tier_with(&self, hash: BlockHash) -> Option<usize> {
        self.tiers.iter().position(|tier| tier.contains(hash))
    }

    fn plan(&mut self, tier: usize, direction: Direction, hashes: Vec<BlockHash>, request: Option<u64>) {
        if !hashes.is_empty() {
            let generation = self.generation;
            self.planned.push(Transfer { tier, direction, hashes, request, generation });
        }
    }

    /// Takes blocks into a tier; what leaves it goes on to the next.
    fn insert(&mut self, tier: usize, hashes: &[BlockHash]) {
        let evicted: Vec<BlockHash> =
            hashes.iter().filter_map(|&hash| self.tiers[tier].insert(hash)).collect();
        self.stats[tier].1.evicted_blocks += evicted.len() as u64;
        if let Some(next) = self.tiers.get(tier + 1) {
            let new = evicted.into_iter().filter(|&hash| !next.contains(hash)).collect();
            self.plan(tier + 1, Direction::Write, new, None);
        }
    }

    fn complete(&mut self, transfer: &Transfer) -> TransferDone {
        let is_current = transfer.generation == self.generation;
        if is_current && transfer.direction == Direction::Write {
            self.stats[transfer.tier].1.written_blocks += transfer.hashes.len() as u64;
            self.insert(transfer.tier, &transfer.hashes);
        }
        if is_current && transfer.direction == Direction::Read && transfer.tier > 0 {
            self.insert(0, &transfer.hashes);
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
        let first = (num_computed_tokens / store.block_size) as usize;
        let hashes = request.block_hashes.get(first..).unwrap_or_default();
        let count = hashes.iter().take_while(|&&hash| store.tier_with(hash).is_some()).count();
        store.requests.entry(request.id).or_default().matched = (first, count);
        let num_tokens = count as u32 * store.block_size;
        ExternalMatch::Tokens { num_tokens, load_async: num_tokens > 0 }
    }

    fn update_state_after_alloc(
        &mut self,
        request: &Request,
        _block_ids: &[&[BlockId]],
        num_external_tokens: u32,
    ) {
        let store = &mut *self.0.borrow_mut();
        if num_external_tokens == 0 {
            return;
        }
        let (first, _) = store.requests.entry(request.id).or_default().matched;
        let count = (num_external_tokens / store.block_size) as usize;
        let mut reads: Vec<Vec<BlockHash>> = vec![Vec::new(); store.tiers.len()];
        for &hash in &request.block_hashes[first..first + count] {
            if let Some(tier) = store.tier_with(hash) {
                store.tiers[tier].touch(hash);
                store.stats[tier].1.hit_tokens += u64::from(store.block_size);
                reads[tier].push(hash);
            }
        }
        let num_reads = reads.iter().filter(|hashes| !hashes.is_empty()).count() as u32;
        store.requests.entry(request.id).or_default().num_reads = num_reads;
        for (tier, hashes) in reads.into_iter().enumerate() {
            store.plan(tier, Direction::Read, hashes, Some(request.id));
        }
    }

    fn on_scheduled(&mut self, request: &Request, num_computed_tokens: u32) {
        let store = &mut *self.0.borrow_mut();
        let num_full = (num_computed_tokens / store.block_size) as usize;
        let num_full = num_full.min(request.block_hashes.len());
        let state = store.requests.entry(request.id).or_default();
        if state.num_saved_blocks >= num_full {
            return;
        }
        let first = std::mem::replace(&mut state.num_saved_blocks, num_full);
        let tier = &store.tiers[0];
        let new: Vec<BlockHash> = request.block_hashes[first..num_full]
            .iter()
            .copied()
            .filter(|&hash| !tier.contains(hash))
            .collect();
        state.num_writes += u32::from(!new.is_empty());
        store.plan(0, Direction::Write, new, Some(request.id));
    }

    fn request_finished(&mut self, request: &Request, _block_ids: &[&[BlockId]]) -> bool {
        let store = &mut *self.0.borrow_mut();
        let Some(state) = store.requests.get_mut(&request.id) else { return false };
        state.is_finished = true;
        let keeps_blocks = state.num_writes > 0;
        if !keeps_blocks && state.num_reads == 0 {
            store.requests.remove(&request.id);
        }
        keeps_blocks
    }

    fn reset_cache(&mut self) -> bool {
        let store = &mut *self.0.borrow_mut();
        store.tiers.iter_mut().for_each(Tier::clear);
        store.generation += 1;
        true
    }
}
