//! To the replica with the least cost, counted in blocks (Dynamo's KV router, `DefaultWorkerSelector` in
//! `lib/kv-router`):
//!
//! ```text
//! cost = overlap_weight * prefill_blocks + active_blocks
//! ```
//!
//! `prefill_blocks` are the tokens that the replica would have to compute, over the size of a block: those
//! of its requests without a first token, and of this one what it is not believed to hold.
//! `active_blocks` are the blocks of its requests and of this one; what several share counts once. Both
//! are the router's own count of what it sent.
//!
//! At temperature 0 the least cost wins, of equals the next in turn; above, a replica is drawn with
//! chances that fall exponentially with its cost, in units of the range of the costs times the
//! temperature.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashMap;

use super::holders::Holders;
use super::prefix_index::{PrefixIndex, PrefixIndexStats};
use super::turn::Turn;
use super::{ReplicaView, Router};
use crate::engine::hash::{BlockHash, PromptHashes};
use crate::engine::kv_events::CacheChange;
use crate::units::SimTime;
use crate::workload::{RequestSpec, rng};

#[derive(Debug)]
pub struct KvCost {
    index: PrefixIndex,
    overlap_weight: f64,
    temperature: f64,
    /// In tokens.
    block_size: u32,
    rng: ChaCha8Rng,
    turn: Turn,
    replicas: Vec<Load>,
    /// Blocks of requests under way, and how many of them have each.
    active: Holders,
    num_users: FxHashMap<(BlockHash, u32), u32>,
    sent: FxHashMap<u64, Sent>,
    /// Of one choice, kept for their memory.
    costs: Vec<f64>,
    shared: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    prefill_tokens: u64,
    /// Those with a hash, each once.
    active_blocks: u64,
}

#[derive(Debug)]
struct Sent {
    hashes: Vec<BlockHash>,
    /// 0 once the first token is there.
    prefill_tokens: u64,
}

impl KvCost {
    pub fn new(
        index: PrefixIndex,
        num_replicas: usize,
        block_size: u32,
        overlap_weight: f64,
        temperature: f64,
        seed: u64,
    ) -> Self {
        Self {
            index,
            overlap_weight,
            temperature,
            block_size,
            rng: rng::stream(seed, "KV cost router", 0),
            turn: Turn::default(),
            replicas: vec![Load::default(); num_replicas],
            active: Holders::new(num_replicas),
            num_users: FxHashMap::default(),
            sent: FxHashMap::default(),
            costs: Vec::new(),
            shared: Vec::new(),
        }
    }

    fn new_tokens(&self, request: &RequestSpec, matched_blocks: u32) -> u64 {
        u64::from(request.prompt.len().saturating_sub(matched_blocks * self.block_size))
    }

    /// Draws a replica that is ready.
    fn draw(&mut self, replicas: &[ReplicaView]) -> usize {
        let ready = || self.costs.iter().zip(replicas).enumerate().filter(|(_, (_, view))| view.is_ready);
        let costs = || ready().map(|(_, (&cost, _))| cost);
        let least = costs().fold(f64::INFINITY, f64::min);
        let range = costs().fold(f64::NEG_INFINITY, f64::max) - least;
        let weight = |cost: f64| {
            if range > 0.0 { (-(cost - least) / range / self.temperature).exp() } else { 1.0 }
        };
        let mut left = self.rng.random::<f64>() * costs().map(weight).sum::<f64>();
        let mut last = 0;
        for (at, (&cost, _)) in ready() {
            last = at;
            left -= weight(cost);
            if left < 0.0 {
                break;
            }
        }
        last
    }
}

impl Router for KvCost {
    fn choose(&mut self, now: SimTime, request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        self.index.look_up(now, request);
        self.active.match_prefix(self.index.hashes(), &mut self.shared);
        let request_blocks = request.prompt.len().div_ceil(self.block_size);
        let block_size = f64::from(self.block_size);
        let mut costs = std::mem::take(&mut self.costs);
        costs.clear();
        let loads = self.replicas.iter().zip(self.index.matches()).zip(&self.shared);
        costs.extend(loads.map(|((load, &matched), &shared)| {
            let prefill_tokens = load.prefill_tokens + self.new_tokens(request, matched);
            let active_blocks = load.active_blocks + u64::from(request_blocks - shared);
            self.overlap_weight * prefill_tokens as f64 / block_size + active_blocks as f64
        }));
        self.costs = costs;
        if self.temperature > 0.0 {
            return self.draw(replicas);
        }
        self.turn.least(replicas, |at, _| self.costs[at])
    }

    fn sent(&mut self, request: &RequestSpec, replica: usize) {
        let prefill_tokens = self.new_tokens(request, self.index.matches()[replica]);
        let hashes = self.index.hashes().to_vec();
        self.index.sent(replica);
        let load = &mut self.replicas[replica];
        load.prefill_tokens += prefill_tokens;
        for &hash in &hashes {
            let users = self.num_users.entry((hash, replica as u32)).or_default();
            *users += 1;
            if *users == 1 {
                load.active_blocks += 1;
                self.active.insert(hash, replica);
            }
        }
        self.sent.insert(request.index, Sent { hashes, prefill_tokens });
    }

    fn started(&mut self, index: u64, replica: usize) {
        if let Some(sent) = self.sent.get_mut(&index) {
            self.replicas[replica].prefill_tokens -= std::mem::take(&mut sent.prefill_tokens);
        }
    }

    fn ended(&mut self, index: u64, replica: usize) {
        self.started(index, replica);
        let Some(sent) = self.sent.remove(&index) else { return };
        for hash in sent.hashes {
            let key = (hash, replica as u32);
            let Some(users) = self.num_users.get_mut(&key) else { continue };
            *users -= 1;
            if *users == 0 {
                self.num_users.remove(&key);
                self.replicas[replica].active_blocks -= 1;
                self.active.remove(hash, replica);
            }
        }
    }

    fn take_prompt_hashes(&mut self) -> Option<PromptHashes> {
        self.index.take_prompt()
    }

    fn reads_events(&self) -> bool {
        self.index.reads_events()
    }

    fn on_events(&mut self, now: SimTime, engine: usize, changes: &[CacheChange]) {
        self.index.on_events(now, engine, changes);
    }

    fn index_stats(&self) -> Option<PrefixIndexStats> {
        Some(self.index.stats())
    }
}
