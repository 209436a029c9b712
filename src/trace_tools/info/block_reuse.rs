//! What an LRU cache, or one without end, finds of the prompts of a trace, at one block size.

use serde::Serialize;

use super::percentiles::{Percentiles, Times};
use crate::prompt::TokenRuns;
use crate::reuse::{DistanceCounts, Lookups, TooManyBlocks};
use crate::units::SimTime;
use crate::workload::trace::TraceRequest;

/// Reuse at one block size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BlockReuse {
    pub block_size_tokens: u32,
    /// The tokens of all prompts that look into the cache.
    pub queries_tokens: u64,
    /// Those in full blocks that a request before had in its prompt or answer; never the last token
    /// of a prompt. No prefix cache finds more.
    pub hits_tokens: u64,
    /// `hits_tokens / queries_tokens`, 0 without queries.
    pub hit_rate: f64,
    /// Full blocks of prompts and answers.
    pub touched_blocks: u64,
    pub unique_blocks: u64,
    /// For each block found: the distinct tokens, in blocks, touched since it was touched last. An
    /// LRU cache of more tokens still holds it.
    pub reuse_distance_tokens: Option<Percentiles<u64>>,
    /// For each block found: the time since the request that touched it last.
    pub reuse_time_s: Option<Percentiles<f64>>,
}

/// What one request asks for and finds in a cache without end.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::trace_tools) struct Lookup {
    pub queries_tokens: u64,
    pub hits_tokens: u64,
}

/// Follows the requests of a trace in their order.
#[derive(Debug)]
pub(in crate::trace_tools) struct ReuseAt {
    lookups: Lookups,
    /// When the requests that touched the stack came.
    times: Vec<Option<SimTime>>,
    distances: DistanceCounts,
    reuse_times: Times,
}

impl ReuseAt {
    pub fn new(block_size: u32) -> Self {
        Self {
            lookups: Lookups::new(block_size),
            times: Vec::new(),
            distances: DistanceCounts::default(),
            reuse_times: Times::default(),
        }
    }

    /// Looks up the prompt of a request, then touches its blocks, which are those of `computed`.
    pub fn add(&mut self, request: &TraceRequest, computed: &TokenRuns) -> Result<Lookup, TooManyBlocks> {
        let found_before = self.distances.total();
        let queries_tokens = self.lookups.add(request, computed, |found| {
            self.distances.add(found.reuse.distance_blocks, found.len);
            if let (Some(at), Some(last)) = (request.at, self.times[found.reuse.request as usize]) {
                self.reuse_times.add(at.since(last), u64::from(found.len));
            }
        })?;
        self.times.push(request.at);
        let hits_tokens = (self.distances.total() - found_before) * u64::from(self.lookups.block_size());
        Ok(Lookup { queries_tokens, hits_tokens })
    }

    pub fn info(&self) -> BlockReuse {
        let block_size = u64::from(self.lookups.block_size());
        let hits_tokens = self.distances.total() * block_size;
        let distances = Percentiles::of_counts(self.distances.counts());
        let queries_tokens = self.lookups.queries_tokens();
        BlockReuse {
            block_size_tokens: self.lookups.block_size(),
            queries_tokens,
            hits_tokens,
            hit_rate: if hits_tokens > 0 { hits_tokens as f64 / queries_tokens as f64 } else { 0.0 },
            touched_blocks: self.lookups.touched_blocks(),
            unique_blocks: self.lookups.unique_blocks(),
            reuse_distance_tokens: distances.map(|distances| distances.times(block_size)),
            reuse_time_s: self.reuse_times.percentiles(),
        }
    }
}
