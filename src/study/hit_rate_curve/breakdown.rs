//! Hits of the one pass over time, by tenant, by turn and by depth, at a few sizes. From a sample they are the means
//! of what its parts say, with the interval of these.

use serde::Serialize;

use super::pass::CONFIDENCE;
use crate::reuse::{Found, SampledBlock};
use crate::study::statistics::Estimate;
use crate::units::SimTime;
use crate::workload::trace::TraceRequest;

/// Twice as many bins of time make the width double.
const MAX_TIME_BINS: usize = 120;
const FIRST_TIME_BIN: SimTime = SimTime::from_ms(1_000);
/// Later turns are counted together.
const MAX_TURNS: usize = 20;
/// The first bin of depth, in tokens; each further one ends at twice as many.
const FIRST_DEPTH_TOKENS: u64 = 1_024;

/// Lookups that have something in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Begin of the bin in seconds, the name of the tenant, the turn from 0, or the depth in tokens.
    pub key: String,
    /// Of a depth: those whose prompts reach it.
    pub requests: u64,
    pub queries_tokens: u64,
    /// By size.
    pub hits_tokens: Vec<u64>,
    /// By size: of the 95 % interval around a sampled hit rate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hit_rate_half_widths: Vec<f64>,
}

/// What lookups are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    Time,
    Tenant,
    Turn,
    Depth,
}

impl Grouping {
    pub const ALL: [Self; 4] = [Self::Time, Self::Tenant, Self::Turn, Self::Depth];

    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time_s",
            Self::Tenant => "tenant",
            Self::Turn => "turn",
            Self::Depth => "depth_tokens",
        }
    }
}

/// The groups of one block size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// What the hits of groups are at; the last is a cache without end.
    pub sizes: Vec<String>,
    pub time_bin_s: f64,
    pub time: Vec<Group>,
    /// Empty when there is only one tenant without a name.
    pub tenant: Vec<Group>,
    pub turn: Vec<Group>,
    pub depth: Vec<Group>,
}

impl Breakdown {
    pub fn groups(&self, grouping: Grouping) -> &[Group] {
        match grouping {
            Grouping::Time => &self.time,
            Grouping::Tenant => &self.tenant,
            Grouping::Turn => &self.turn,
            Grouping::Depth => &self.depth,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Counts {
    requests: u64,
    queries_tokens: u64,
    /// Those that were looked up.
    blocks: u64,
    found: Hits,
}

/// What was found of some lookups.
#[derive(Clone, Debug, Default)]
struct Hits {
    /// Of each part of a sample, at each size. Whole numbers where every block is looked at.
    tokens: Vec<f64>,
    /// Blocks that were looked up as each part of a sample has it.
    sampled_blocks: Vec<f64>,
}

impl Hits {
    fn add(&mut self, more: &Self) {
        for (sums, values) in
            [(&mut self.tokens, &more.tokens), (&mut self.sampled_blocks, &more.sampled_blocks)]
        {
            sums.resize(values.len().max(sums.len()), 0.0);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }

    fn clear(&mut self) {
        self.tokens.fill(0.0);
        self.sampled_blocks.fill(0.0);
    }
}

impl Counts {
    fn add(&mut self, queries_tokens: u64, blocks: u64, found: &Hits) {
        self.requests += 1;
        self.queries_tokens += queries_tokens;
        self.blocks += blocks;
        self.found.add(found);
    }
}

/// Counts while requests come.
#[derive(Debug)]
pub(super) struct Grouper {
    block_size: u64,
    /// In blocks; the last has no end.
    capacities: Vec<u64>,
    num_parts: usize,
    time_bin: SimTime,
    time: Vec<Counts>,
    tenants: Vec<Counts>,
    turns: Vec<Counts>,
    depths: Vec<Counts>,
    /// Of the request that is being looked up.
    found: Hits,
}

fn at(list: &mut Vec<Counts>, index: usize) -> &mut Counts {
    if index >= list.len() {
        list.resize(index + 1, Counts::default());
    }
    &mut list[index]
}

fn depth_bin(tokens: u64) -> usize {
    (tokens / FIRST_DEPTH_TOKENS).checked_ilog2().map_or(0, |bin| bin as usize + 1)
}

/// The depths of a bin, in tokens.
fn depths_of(bin: usize) -> (u64, u64) {
    let begin = if bin == 0 { 0 } else { FIRST_DEPTH_TOKENS << (bin - 1) };
    (begin, FIRST_DEPTH_TOKENS << bin)
}

impl Grouper {
    /// Of caches of so many blocks, and of one without end, seen by so many parts of a sample; one part is all blocks.
    pub fn new(block_size: u32, mut capacities: Vec<u64>, num_parts: usize) -> Self {
        capacities.push(u64::MAX);
        Self {
            block_size: u64::from(block_size),
            found: Hits {
                tokens: vec![0.0; num_parts * capacities.len()],
                sampled_blocks: vec![0.0; num_parts],
            },
            capacities,
            num_parts,
            time_bin: FIRST_TIME_BIN,
            time: Vec::new(),
            tenants: Vec::new(),
            turns: Vec::new(),
            depths: Vec::new(),
        }
    }

    /// Some blocks of the request that [`Self::request`] names next.
    pub fn found(&mut self, found: Found) {
        let (first, len) = (found.first as u64, u64::from(found.len));
        let distance = u64::from(found.reuse.distance_blocks);
        for (index, &capacity) in self.capacities.iter().enumerate() {
            let hits = len.min(capacity.saturating_sub(distance));
            self.found.tokens[index] += (hits * self.block_size) as f64;
            let (mut begin, end) = (first * self.block_size, (first + hits) * self.block_size);
            while begin < end {
                let bin = depth_bin(begin);
                let bin_end = depths_of(bin).1.min(end);
                let found = &mut at(&mut self.depths, bin).found;
                found.tokens.resize(self.capacities.len(), 0.0);
                found.tokens[index] += (bin_end - begin) as f64;
                begin = bin_end;
            }
        }
    }

    /// A block of a sample, of the request that [`Self::request`] names next.
    pub fn sampled(&mut self, block: &SampledBlock) {
        let num_sizes = self.capacities.len();
        let of_depth = &mut at(&mut self.depths, depth_bin(block.position as u64 * self.block_size)).found;
        of_depth.tokens.resize(self.num_parts * num_sizes, 0.0);
        of_depth.sampled_blocks.resize(self.num_parts, 0.0);
        for found in [&mut self.found, of_depth] {
            found.sampled_blocks[block.part] += block.weight;
            let tokens = &mut found.tokens[block.part * num_sizes..];
            for (tokens, &capacity) in tokens.iter_mut().zip(&self.capacities) {
                *tokens += block.hit_blocks(capacity as f64) * self.block_size as f64;
            }
        }
    }

    /// Takes what was found for a request that looked up so many tokens.
    pub fn request(&mut self, request: &TraceRequest, queries_tokens: u64) {
        if queries_tokens > 0 {
            let bin = self.time_bin_of(request.at.unwrap_or_default());
            let turn = (request.turn as usize).min(MAX_TURNS);
            // The last token is never looked up.
            let blocks = (queries_tokens - 1) / self.block_size;
            for counts in [
                at(&mut self.time, bin),
                at(&mut self.tenants, request.tenant as usize),
                at(&mut self.turns, turn),
            ] {
                counts.add(queries_tokens, blocks, &self.found);
            }
            for bin in 0..=depth_bin(queries_tokens - 1) {
                let (begin, end) = depths_of(bin);
                let counts = at(&mut self.depths, bin);
                counts.requests += 1;
                counts.queries_tokens += queries_tokens.min(end) - begin;
                let blocks_before = |tokens: u64| tokens.div_ceil(self.block_size).min(blocks);
                counts.blocks += blocks_before(end) - blocks_before(begin);
            }
        }
        self.found.clear();
    }

    /// Joins bins in pairs until the time is in one of them.
    fn time_bin_of(&mut self, time: SimTime) -> usize {
        loop {
            let bin = (time.as_ns() / self.time_bin.as_ns()) as usize;
            if bin < MAX_TIME_BINS {
                return bin;
            }
            self.time_bin = self.time_bin + self.time_bin;
            let pairs = self.time.chunks(2).map(|pair| {
                let mut sum = Counts::default();
                for counts in pair {
                    sum.requests += counts.requests;
                    sum.queries_tokens += counts.queries_tokens;
                    sum.blocks += counts.blocks;
                    sum.found.add(&counts.found);
                }
                sum
            });
            self.time = pairs.collect();
        }
    }

    /// `sizes` names the capacities that the groups were made for; `weights` are those of the parts of a sample.
    pub fn breakdown(&self, mut sizes: Vec<String>, tenants: &[String], weights: &[f64]) -> Breakdown {
        sizes.push("infinite".to_owned());
        let groups = |list: &[Counts], key: &dyn Fn(usize) -> String| -> Vec<Group> {
            let all = list.iter().enumerate().filter(|(_, counts)| counts.requests > 0);
            all.map(|(index, counts)| self.group(key(index), counts, weights)).collect()
        };
        let time_bin_s = self.time_bin.as_secs_f64();
        let turn = |turn: usize| if turn == MAX_TURNS { format!("{turn}+") } else { turn.to_string() };
        let depth = |bin: usize| {
            let (begin, end) = depths_of(bin);
            format!("{begin}-{}", end - 1)
        };
        let tenant = |index: usize| tenants.get(index).cloned().unwrap_or_else(|| index.to_string());
        Breakdown {
            sizes,
            time_bin_s,
            time: groups(&self.time, &|bin| format!("{}", bin as f64 * time_bin_s)),
            tenant: if tenants.is_empty() { Vec::new() } else { groups(&self.tenants, &tenant) },
            turn: groups(&self.turns, &turn),
            depth: groups(&self.depths, &depth),
        }
    }

    fn group(&self, key: String, counts: &Counts, weights: &[f64]) -> Group {
        let Counts { requests, queries_tokens, blocks, found } = counts;
        let num_sizes = self.capacities.len();
        let tokens_of = |part: usize, size: usize| found.tokens.get(part * num_sizes + size).copied();
        let mut group = Group {
            key,
            requests: *requests,
            queries_tokens: *queries_tokens,
            hits_tokens: Vec::with_capacity(num_sizes),
            hit_rate_half_widths: Vec::new(),
        };
        for (size, &capacity) in self.capacities.iter().enumerate() {
            if weights.is_empty() {
                group.hits_tokens.push(tokens_of(0, size).unwrap_or_default() as u64);
                continue;
            }
            // As the whole sample is corrected: what is missing in a part, or too much, is due to few blocks that are
            // touched often.
            let of_part = |(part, weight): (usize, &f64)| {
                let sampled = found.sampled_blocks.get(part).copied().unwrap_or_default();
                let missing = (*blocks as f64 - sampled) * (capacity as f64 / weight).min(1.0);
                let hits = tokens_of(part, size).unwrap_or_default() + missing * self.block_size as f64;
                hits / *queries_tokens as f64
            };
            let rates: Vec<f64> = weights.iter().enumerate().map(of_part).collect();
            let estimate = Estimate::of(&rates, CONFIDENCE);
            let rate = estimate.map_or(0.0, |estimate| estimate.mean.clamp(0.0, 1.0));
            group.hits_tokens.push((rate * *queries_tokens as f64).round() as u64);
            group.hit_rate_half_widths.extend(estimate.and_then(|estimate| estimate.half_width));
        }
        group
    }
}
