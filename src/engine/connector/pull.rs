//! A connector between servers that compute prompts and servers that go on from there: the decisions of
//! vLLM's `NixlPullConnectorScheduler` (`kv_connector/v1/nixl/pull_scheduler.py`).
//!
//! A server that prefills keeps the blocks of an ended request until they have been read. One that
//! decodes takes the whole prompt that it does not have itself as external tokens, loads it while the
//! request waits, and computes the last token again. It plans reads and is told when they are done; how
//! long they take is the simulation's matter.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::{ExternalMatch, KvConnector};
use crate::engine::EngineConfig;
use crate::engine::kv_cache::{BlockId, KvCacheSpec, NULL_BLOCK};
use crate::engine::request::{Request, RequestStatus};

/// A KV cache group whose blocks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullGroup {
    /// Tokens of a block over all ranks.
    pub block_size: u32,
    /// `None` is full attention.
    pub sliding_window: Option<u32>,
}

impl PullGroup {
    /// Those of an engine whose groups are of full and sliding-window attention.
    pub fn of(config: &EngineConfig) -> Vec<Self> {
        let group = |spec: &KvCacheSpec| Self {
            block_size: config.group_block_size(spec),
            sliding_window: match *spec {
                KvCacheSpec::SlidingWindow { sliding_window, .. } => Some(sliding_window),
                _ => None,
            },
        };
        config.kv_cache_groups.iter().map(group).collect()
    }
}

/// Blocks that a request needs from where its prompt was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullRead {
    /// By id.
    pub request: u64,
    /// 0 only lets the other side free them.
    pub num_blocks: u32,
    /// The request waits for it.
    pub is_awaited: bool,
}

/// What a request is here for (`kv_transfer_params`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// `do_remote_decode`: its blocks will be read.
    Prefill,
    /// `do_remote_prefill`: blocks are to be read, once.
    Decode,
}

#[derive(Debug)]
struct State {
    groups: Vec<PullGroup>,
    parts: FxHashMap<u64, Part>,
    reads: Vec<PullRead>,
}

/// Shared by the scheduler, which plans, and the replica, which carries out.
#[derive(Clone, Debug)]
pub struct PullConnector(Rc<RefCell<State>>);

impl PullConnector {
    pub fn new(groups: Vec<PullGroup>) -> Self {
        Self(Rc::new(RefCell::new(State { groups, parts: FxHashMap::default(), reads: Vec::new() })))
    }

    /// The request, which has not been added yet, is here for its prompt alone.
    pub fn expect_prefill(&self, request: u64) {
        self.0.borrow_mut().parts.insert(request, Part::Prefill);
    }

    /// The prompt of the request, which has not been added yet, has been computed elsewhere.
    pub fn expect_decode(&self, request: u64) {
        self.0.borrow_mut().parts.insert(request, Part::Decode);
    }

    /// The server has gone, with its requests.
    pub fn restart(&self) {
        let state = &mut *self.0.borrow_mut();
        state.parts.clear();
        state.reads.clear();
    }

    /// Takes the reads that have been planned.
    pub fn take_reads(&self) -> Vec<PullRead> {
        std::mem::take(&mut self.0.borrow_mut().reads)
    }
}

impl State {
    /// Blocks of a request that lie after those that were hit here. Of a window the last ones, and one
    /// more for a window that begins inside of a block.
    fn num_unhashed_blocks(&self, block_ids: &[&[BlockId]], num_local_tokens: u32) -> u32 {
        let of_group = |(blocks, group): (&&[BlockId], &PullGroup)| {
            let num_hit = (num_local_tokens / group.block_size) as usize;
            let unhashed = blocks.iter().skip(num_hit).filter(|&&block| block != NULL_BLOCK).count() as u32;
            let of_window = |window: u32| window.div_ceil(group.block_size) + 1;
            unhashed.min(group.sliding_window.map_or(u32::MAX, of_window))
        };
        block_ids.iter().zip(&self.groups).map(of_group).sum()
    }
}

impl KvConnector for PullConnector {
    fn get_num_new_matched_tokens(&mut self, request: &Request, num_computed_tokens: u32) -> ExternalMatch {
        let is_remote = self.0.borrow().parts.get(&request.id) == Some(&Part::Decode);
        let num_tokens =
            if is_remote { request.num_prompt_tokens.saturating_sub(num_computed_tokens) } else { 0 };
        ExternalMatch::Tokens { num_tokens, load_async: num_tokens > 0 }
    }

    fn update_state_after_alloc(
        &mut self,
        request: &Request,
        block_ids: &[&[BlockId]],
        num_external_tokens: u32,
    ) {
        let state = &mut *self.0.borrow_mut();
        if state.parts.get(&request.id) != Some(&Part::Decode) {
            return;
        }
        // Only once: after a preemption the prompt is computed here.
        state.parts.remove(&request.id);
        let is_awaited = num_external_tokens > 0;
        let num_local_tokens = request.num_prompt_tokens - num_external_tokens;
        let num_blocks = if is_awaited { state.num_unhashed_blocks(block_ids, num_local_tokens) } else { 0 };
        state.reads.push(PullRead { request: request.id, num_blocks, is_awaited });
    }

    fn request_finished(&mut self, request: &Request, block_ids: &[&[BlockId]]) -> bool {
        let state = &mut *self.0.borrow_mut();
        match state.parts.remove(&request.id) {
            None => false,
            Some(Part::Decode) => {
                // It ended before it had blocks: the other side need not keep its own.
                state.reads.push(PullRead { request: request.id, num_blocks: 0, is_awaited: false });
                false
            }
            Some(Part::Prefill) => {
                let is_whole = matches!(
                    request.status,
                    RequestStatus::FinishedLengthCapped | RequestStatus::FinishedStopped
                );
                is_whole && block_ids.iter().any(|blocks| !blocks.is_empty())
            }
        }
    }
}
