//! The scheduler's side of a KV connector: KV blocks that are held outside of the engine
//! (`distributed/kv_transfer/kv_connector/v1/base.py`).

mod group_lookup;
mod pull;
mod tier;
mod tier_store;
mod tiered;

pub use group_lookup::{TierGroup, TierReach};
pub use pull::{PullConnector, PullGroup, PullRead};
pub use tier::{EvictionOrder, TierKey};
pub use tier_store::{HashSpace, SharedBy, TierConfig, TierKind, TierPlace, TierStore};
pub use tiered::{Direction, TierStats, TieredConnector, Transfer, TransferDone};

use super::kv_cache::BlockId;
use super::kv_events::KvCacheEvent;
use super::request::Request;

/// Answer to a lookup in the outside store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalMatch {
    /// Not known yet; ask again in the next step.
    Pending,
    /// So many tokens after the local hit can be loaded, while the request waits or within the step.
    Tokens { num_tokens: u32, load_async: bool },
}

/// What workers report of loads and stores beside the sampled tokens (`KVConnectorOutput`).
/// Requests by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvConnectorOutput {
    pub finished_recving: Vec<u64>,
    pub finished_sending: Vec<u64>,
    /// Blocks that could not be loaded.
    pub invalid_block_ids: Vec<BlockId>,
    /// Requests whose load failed as a whole.
    pub failed_recving: Vec<u64>,
}

impl KvConnectorOutput {
    pub fn is_empty(&self) -> bool {
        self.finished_recving.is_empty()
            && self.finished_sending.is_empty()
            && self.invalid_block_ids.is_empty()
            && self.failed_recving.is_empty()
    }
}

/// `KVConnectorBase_V1`, role scheduler.
pub trait KvConnector {
    /// How many tokens after the first `num_computed_tokens` the store holds
    /// (`get_num_new_matched_tokens`).
    fn get_num_new_matched_tokens(&mut self, request: &Request, num_computed_tokens: u32) -> ExternalMatch;

    /// The request has its blocks, `block_ids` by group; a load of `num_external_tokens` starts if
    /// that is not 0.
    fn update_state_after_alloc(
        &mut self,
        request: &Request,
        block_ids: &[&[BlockId]],
        num_external_tokens: u32,
    );

    /// The request ended; true keeps its blocks until it is reported in `finished_sending`.
    fn request_finished(&mut self, request: &Request, block_ids: &[&[BlockId]]) -> bool;

    /// A `schedule()` call gave the request tokens; it will have computed `num_computed_tokens` after
    /// the step, and `blocks` gives its blocks of each group. The turn to plan stores
    /// (`build_connector_meta`).
    fn on_scheduled<'a>(
        &mut self,
        _request: &Request,
        _num_computed_tokens: u32,
        _blocks: &dyn Fn(usize) -> &'a [BlockId],
    ) {
    }

    /// Events of the store itself.
    fn take_events(&mut self) -> Vec<KvCacheEvent> {
        Vec::new()
    }

    /// Work that keeps the engine stepping though no request is left.
    fn has_pending_push_work(&self) -> bool {
        false
    }

    /// Blocks will come free without a preemption.
    fn has_pending_block_frees(&self) -> bool {
        false
    }

    /// Drops what the store holds; false if it cannot.
    fn reset_cache(&mut self) -> bool {
        true
    }
}
