//! Hits of the one pass over time, by tenant, by turn and by depth, at a few sizes.

use serde::Serialize;

use crate::reuse::Found;
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
    hits_tokens: Vec<u64>,
}

impl Counts {
    fn add(&mut self, queries_tokens: u64, hits_tokens: &[u64]) {
        self.requests += 1;
        self.queries_tokens += queries_tokens;
        self.add_hits(hits_tokens);
    }

    fn add_hits(&mut self, hits_tokens: &[u64]) {
        self.hits_tokens.resize(hits_tokens.len(), 0);
        self.hits_tokens.iter_mut().zip(hits_tokens).for_each(|(sum, hits)| *sum += hits);
    }

    fn group(&self, key: String, num_sizes: usize) -> Group {
        let mut hits_tokens = self.hits_tokens.clone();
        hits_tokens.resize(num_sizes, 0);
        Group { key, requests: self.requests, queries_tokens: self.queries_tokens, hits_tokens }
    }
}

/// Counts while requests come.
#[derive(Debug)]
pub(super) struct Grouper {
    block_size: u64,
    /// In blocks; the last has no end.
    capacities: Vec<u64>,
    time_bin: SimTime,
    time: Vec<Counts>,
    tenants: Vec<Counts>,
    turns: Vec<Counts>,
    depths: Vec<Counts>,
    /// Of the request that is being looked up.
    hits_tokens: Vec<u64>,
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
    /// Of caches of so many blocks, and of one without end.
    pub fn new(block_size: u32, mut capacities: Vec<u64>) -> Self {
        capacities.push(u64::MAX);
        Self {
            block_size: u64::from(block_size),
            hits_tokens: vec![0; capacities.len()],
            capacities,
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
            self.hits_tokens[index] += hits * self.block_size;
            let (mut begin, end) = (first * self.block_size, (first + hits) * self.block_size);
            while begin < end {
                let bin = depth_bin(begin);
                let bin_end = depths_of(bin).1.min(end);
                let counts = at(&mut self.depths, bin);
                counts.hits_tokens.resize(self.capacities.len(), 0);
                counts.hits_tokens[index] += bin_end - begin;
                begin = bin_end;
            }
        }
    }

    /// Takes what was found for a request that looked up so many tokens.
    pub fn request(&mut self, request: &TraceRequest, queries_tokens: u64) {
        if queries_tokens > 0 {
            let bin = self.time_bin_of(request.at.unwrap_or_default());
            at(&mut self.time, bin).add(queries_tokens, &self.hits_tokens);
            at(&mut self.tenants, request.tenant as usize).add(queries_tokens, &self.hits_tokens);
            let turn = (request.turn as usize).min(MAX_TURNS);
            at(&mut self.turns, turn).add(queries_tokens, &self.hits_tokens);
            for bin in 0..=depth_bin(queries_tokens - 1) {
                let (begin, end) = depths_of(bin);
                let counts = at(&mut self.depths, bin);
                counts.requests += 1;
                counts.queries_tokens += queries_tokens.min(end) - begin;
            }
        }
        self.hits_tokens.fill(0);
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
                    if !counts.hits_tokens.is_empty() {
                        sum.add_hits(&counts.hits_tokens);
                    }
                }
                sum
            });
            self.time = pairs.collect();
        }
    }

    /// `sizes` names the capacities that the groups were made for.
    pub fn breakdown(&self, mut sizes: Vec<String>, tenants: &[String]) -> Breakdown {
        sizes.push("infinite".to_owned());
        let num_sizes = sizes.len();
        let groups = |list: &[Counts], key: &dyn Fn(usize) -> String| -> Vec<Group> {
            let all = list.iter().enumerate().filter(|(_, counts)| counts.requests > 0);
            all.map(|(index, counts)| counts.group(key(index), num_sizes)).collect()
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
}
