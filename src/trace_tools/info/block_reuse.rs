//! What an LRU cache, or one without end, finds of the prompts of a trace, at one block size.

use serde::Serialize;

use super::percentiles::{Percentiles, Times};
use crate::prompt::TokenRuns;
use crate::reuse::{BlockChains, DistanceCounts, PrefixStack, TooManyBlocks};
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
    chains: BlockChains,
    stack: PrefixStack,
    /// When the requests that touched the stack came.
    times: Vec<Option<SimTime>>,
    distances: DistanceCounts,
    reuse_times: Times,
    queries_tokens: u64,
    touched_blocks: u64,
}

impl ReuseAt {
    pub fn new(block_size: u32) -> Self {
        Self {
            chains: BlockChains::new(block_size),
            stack: PrefixStack::default(),
            times: Vec::new(),
            distances: DistanceCounts::default(),
            reuse_times: Times::default(),
            queries_tokens: 0,
            touched_blocks: 0,
        }
    }

    /// Looks up the prompt of a request, then touches its blocks, which are those of `computed`.
    pub fn add(&mut self, request: &TraceRequest, computed: &TokenRuns) -> Result<Lookup, TooManyBlocks> {
        let prompt_tokens = if request.skip_reading_prefix_cache { 0 } else { request.prompt.len() };
        let num_lookup = self.chains.num_lookup_blocks(prompt_tokens);
        self.queries_tokens += u64::from(prompt_tokens);
        let found_before = self.distances.total();
        let chain = self.chains.of(computed, &request.extras)?;
        self.touched_blocks += chain.len() as u64;
        self.stack.touch(chain, |part| {
            let len = part.len.min(num_lookup.saturating_sub(part.first));
            if let Some(reuse) = part.reuse
                && len > 0
            {
                self.distances.add(reuse.distance_blocks, len as u32);
                if let (Some(at), Some(last)) = (request.at, self.times[reuse.request as usize]) {
                    self.reuse_times.add(at.since(last), len as u64);
                }
            }
        });
        self.times.push(request.at);
        let hits_tokens = (self.distances.total() - found_before) * u64::from(self.chains.block_size());
        Ok(Lookup { queries_tokens: u64::from(prompt_tokens), hits_tokens })
    }

    pub fn info(&self) -> BlockReuse {
        let block_size = u64::from(self.chains.block_size());
        let hits_tokens = self.distances.total() * block_size;
        let distances = Percentiles::of_counts(self.distances.counts());
        BlockReuse {
            block_size_tokens: self.chains.block_size(),
            queries_tokens: self.queries_tokens,
            hits_tokens,
            hit_rate: if hits_tokens > 0 { hits_tokens as f64 / self.queries_tokens as f64 } else { 0.0 },
            touched_blocks: self.touched_blocks,
            unique_blocks: self.stack.num_blocks(),
            reuse_distance_tokens: distances.map(|distances| distances.times(block_size)),
            reuse_time_s: self.reuse_times.percentiles(),
        }
    }
}
