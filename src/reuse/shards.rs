//! SHARDS: stack distances from a sample of the blocks (Waldspurger, Park, Garthwaite, Ahmad:
//! "Efficient MRC Construction with SHARDS", FAST 2015).
//!
//! A block is in the sample if its hash is below a threshold, whoever touches it and whenever. The
//! sampled blocks of a chain are a chain again, so that [`PrefixStack`] finds their distances among
//! one another; divided by the share that is sampled they estimate the true ones. Sampled blocks are
//! all that is remembered.
//!
//! The sample is split by other bits of the hash into [`NUM_PARTS`], each of which is a small SHARDS of
//! its own. The estimate is the mean of theirs, and how far they lie apart says how far it may be off.

use rustc_hash::FxHashMap;

use super::chain_hashes::{chain_hashes, mix};
use super::lookups::looked_up_tokens;
use super::{DistanceCounts, PrefixStack};
use crate::engine::hash::BlockHash;
use crate::prompt::TokenRuns;
use crate::workload::trace::TraceRequest;

/// Eight, so that Student's factor is small (2.4 for 95 %) and a part still has many blocks.
pub const NUM_PARTS: usize = 8;
const PART_BITS: u32 = 3;
/// One more than the largest hash that is compared with a threshold.
const HASHES: u64 = 1 << (64 - PART_BITS);

/// A block that is in the sample and was looked up.
#[derive(Clone, Copy, Debug)]
pub struct SampledBlock {
    /// The part of the sample, below [`NUM_PARTS`].
    pub part: usize,
    /// Its place among the full blocks of the prompt.
    pub position: usize,
    /// Blocks that it stands for, those of other parts included.
    pub weight: f64,
    /// Sampled blocks touched since it was; `None` if it was not found.
    pub distance_blocks: Option<u32>,
}

impl SampledBlock {
    /// Blocks that a cache of so many finds of those that it stands for.
    ///
    /// A sampled block at distance d has d others between it and the top, and the cache ends anywhere between the last
    /// of these and the next with the same chance.
    pub fn hit_blocks(&self, cache_blocks: f64) -> f64 {
        let distance = self.distance_blocks.map_or(f64::INFINITY, f64::from);
        self.weight * (cache_blocks / self.weight - distance).clamp(0.0, 1.0)
    }
}

/// Follows requests at one block size, in memory proportional to the sample (and 4 bytes for each
/// request and part).
#[derive(Debug)]
pub struct Shards {
    block_size: u32,
    parts: Vec<Part>,
    hashes: Vec<u64>,
    queries_tokens: u64,
    lookup_blocks: u64,
}

/// What one of the parts has.
#[derive(Debug)]
struct Part {
    /// Blocks with a smaller hash are sampled.
    threshold: u64,
    max_blocks: usize,
    stack: PrefixStack,
    /// The numbers of sampled blocks by their hashes.
    numbers: FxHashMap<u64, BlockHash>,
    free_numbers: Vec<BlockHash>,
    next_number: u32,
    /// One for each threshold that there was.
    epochs: Vec<Epoch>,
    chain: Vec<BlockHash>,
    /// Where those of the chain that are looked up are in the prompt.
    positions: Vec<usize>,
}

/// Lookups while the threshold was the same.
#[derive(Debug)]
struct Epoch {
    /// Blocks that a sampled one stands for, those of other parts included.
    weight: f64,
    distances: DistanceCounts,
    /// Sampled blocks looked up.
    lookup_blocks: u64,
}

impl Epoch {
    fn new(threshold: u64) -> Self {
        let weight = NUM_PARTS as f64 * (HASHES as f64 / threshold as f64);
        Self { weight, distances: DistanceCounts::default(), lookup_blocks: 0 }
    }
}

impl Shards {
    /// Samples a share `rate` of the blocks, above 0 and at most 1. With `max_blocks` it is halved
    /// whenever more than so many are in the sample.
    ///
    /// # Panics
    /// When `block_size` is 0.
    pub fn new(block_size: u32, rate: f64, max_blocks: Option<usize>) -> Self {
        assert!(block_size > 0, "a block has at least one token");
        let threshold = ((HASHES as f64 * rate) as u64).clamp(1, HASHES);
        let part = || Part {
            threshold,
            max_blocks: max_blocks.map_or(usize::MAX, |most| most.div_ceil(NUM_PARTS)),
            stack: PrefixStack::default(),
            numbers: FxHashMap::default(),
            free_numbers: Vec::new(),
            next_number: 0,
            epochs: vec![Epoch::new(threshold)],
            chain: Vec::new(),
            positions: Vec::new(),
        };
        Self {
            block_size,
            parts: (0..NUM_PARTS).map(|_| part()).collect(),
            hashes: Vec::new(),
            queries_tokens: 0,
            lookup_blocks: 0,
        }
    }

    /// Looks up the prompt of a request and touches the blocks of `computed`. Calls `looked_up` for each block of the
    /// sample that is looked up.
    pub fn add(
        &mut self,
        request: &TraceRequest,
        computed: &TokenRuns,
        mut looked_up: impl FnMut(&SampledBlock),
    ) {
        let prompt_tokens = looked_up_tokens(request);
        self.queries_tokens += u64::from(prompt_tokens);
        chain_hashes(computed, &request.extras, self.block_size, &mut self.hashes);
        // As BlockChains::num_lookup_blocks.
        let num_lookup = (prompt_tokens.saturating_sub(1) / self.block_size) as usize;
        self.lookup_blocks += num_lookup as u64;
        for (position, &hash) in self.hashes.iter().enumerate() {
            // Hashed once more, so that the place in the map says nothing of the sample.
            let other = mix(hash, 1);
            let index = (other % NUM_PARTS as u64) as usize;
            let part = &mut self.parts[index];
            if other >> PART_BITS < part.threshold {
                part.push(hash);
                if position < num_lookup {
                    part.positions.push(position);
                }
            }
        }
        for (index, part) in self.parts.iter_mut().enumerate() {
            part.touch(index, &mut looked_up);
        }
    }

    /// The hit rate of an LRU cache of so many blocks, as each part of the sample has it.
    pub fn hit_rates(&self, cache_blocks: u64) -> [f64; NUM_PARTS] {
        let mut rates = [0.0; NUM_PARTS];
        for (rate, part) in rates.iter_mut().zip(&self.parts) {
            *rate = self.of_queries(part.hit_blocks(cache_blocks as f64, self.lookup_blocks as f64));
        }
        rates
    }

    /// The same of a cache without end.
    pub fn infinite_hit_rates(&self) -> [f64; NUM_PARTS] {
        let mut rates = [0.0; NUM_PARTS];
        for (rate, part) in rates.iter_mut().zip(&self.parts) {
            *rate = self.of_queries(part.hit_blocks(f64::INFINITY, self.lookup_blocks as f64));
        }
        rates
    }

    fn of_queries(&self, hit_blocks: f64) -> f64 {
        if self.queries_tokens == 0 {
            return 0.0;
        }
        hit_blocks * f64::from(self.block_size) / self.queries_tokens as f64
    }

    /// In tokens.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The tokens of all prompts that look into the cache: exact.
    pub fn queries_tokens(&self) -> u64 {
        self.queries_tokens
    }

    /// An estimate.
    pub fn unique_blocks(&self) -> u64 {
        let of_part = |part: &Part| part.stack.num_blocks() as f64 * part.weight();
        (self.parts.iter().map(of_part).sum::<f64>() / NUM_PARTS as f64).round() as u64
    }

    /// The smallest cache that finds all that can be found, in blocks: an estimate.
    pub fn enough_blocks(&self) -> u64 {
        let epochs = self.parts.iter().flat_map(|part| &part.epochs);
        let of_epoch = |epoch: &Epoch| epoch.distances.end() as f64 * epoch.weight;
        epochs.map(of_epoch).fold(0.0, f64::max).ceil() as u64
    }

    /// The blocks in the sample.
    pub fn sampled_blocks(&self) -> u64 {
        self.parts.iter().map(|part| part.stack.num_blocks()).sum()
    }

    /// Blocks that a block of each part stands for now.
    pub fn weights(&self) -> [f64; NUM_PARTS] {
        std::array::from_fn(|part| self.parts[part].weight())
    }

    /// The share of all blocks that is sampled now.
    pub fn rate(&self) -> f64 {
        let shares = self.parts.iter().map(|part| part.threshold as f64 / HASHES as f64);
        shares.sum::<f64>() / NUM_PARTS as f64
    }
}

impl Part {
    fn weight(&self) -> f64 {
        self.epochs.last().map_or(0.0, |epoch| epoch.weight)
    }

    /// Appends a block to the chain that is touched next.
    fn push(&mut self, hash: u64) {
        let number = *self.numbers.entry(hash).or_insert_with(|| {
            self.free_numbers.pop().unwrap_or_else(|| {
                self.next_number += 1;
                BlockHash(self.next_number - 1)
            })
        });
        self.chain.push(number);
    }

    fn touch(&mut self, index: usize, looked_up: &mut impl FnMut(&SampledBlock)) {
        if let Some(epoch) = self.epochs.last_mut() {
            let positions = &self.positions;
            let num_lookup = positions.len();
            epoch.lookup_blocks += num_lookup as u64;
            self.stack.touch(&self.chain, |part| {
                let len = part.len.min(num_lookup.saturating_sub(part.first));
                if let Some(reuse) = part.reuse
                    && len > 0
                {
                    epoch.distances.add(reuse.distance_blocks, len as u32);
                }
                for ahead in 0..len {
                    looked_up(&SampledBlock {
                        part: index,
                        position: positions[part.first + ahead],
                        weight: epoch.weight,
                        distance_blocks: part.reuse.map(|reuse| reuse.distance_blocks + ahead as u32),
                    });
                }
            });
        }
        self.positions.clear();
        self.chain.clear();
        while self.numbers.len() > self.max_blocks && self.threshold > 1 {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.threshold /= 2;
        let Self { threshold, stack, numbers, free_numbers, .. } = self;
        numbers.retain(|&hash, &mut number| {
            let stays = mix(hash, 1) >> PART_BITS < *threshold;
            if !stays {
                stack.remove(number);
                free_numbers.push(number);
            }
            stays
        });
        // The order of a map is nobody's business.
        free_numbers.sort_unstable();
        self.epochs.push(Epoch::new(*threshold));
    }

    /// Blocks of all `lookup_blocks` that a cache finds.
    ///
    /// A sampled block at distance d has d others between it and the top, and the cache ends anywhere
    /// between the last of these and the next with the same chance. What is missing in the sample or
    /// too much, seen from the number of lookups, is due to few blocks that are touched often, and
    /// counts at the smallest distance (the paper's SHARDS_adj).
    fn hit_blocks(&self, cache_blocks: f64, lookup_blocks: f64) -> f64 {
        let mut hits = 0.0;
        let mut sampled = 0.0;
        for epoch in &self.epochs {
            let end = cache_blocks / epoch.weight;
            let found = epoch
                .distances
                .counts()
                .map(|(distance, count)| count as f64 * (end - distance as f64).clamp(0.0, 1.0));
            hits += found.sum::<f64>() * epoch.weight;
            sampled += epoch.lookup_blocks as f64 * epoch.weight;
        }
        let adjustment = (lookup_blocks - sampled) * (cache_blocks / self.weight()).min(1.0);
        hits + adjustment
    }
}
