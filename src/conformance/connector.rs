//! The KV connector of a case: loads, failures and sends as the requests' `kv` fields say.

use std::cell::RefCell;
use std::rc::Rc;

use super::case::KvCase;
use crate::engine::connector::{ExternalMatch, KvConnector, KvConnectorOutput};
use crate::engine::kv_cache::BlockId;
use crate::engine::{Request, RequestStatus};

/// A load that has started.
#[derive(Debug)]
struct Load {
    id: u64,
    /// The `schedule()` call whose output reports it.
    due: u64,
    is_async: bool,
    failed_blocks: Vec<BlockId>,
    fails_as_a_whole: bool,
}

#[derive(Debug, Default)]
struct Store {
    /// By request id.
    kv: Vec<Option<KvCase>>,
    lookups: Vec<u32>,
    load_failed: Vec<bool>,
    loads: Vec<Load>,
    /// Finished requests whose blocks are kept, with the call whose output frees them.
    sends: Vec<(u64, u64)>,
    /// Index of the `schedule()` call at hand, and of the call whose output is being processed.
    schedule: u64,
    processing: u64,
}

/// Shared by the scheduler, which plans, and the runner, which plays the worker.
#[derive(Clone, Debug)]
pub(super) struct CaseConnector(Rc<RefCell<Store>>);

impl CaseConnector {
    pub fn new(kv: Vec<Option<KvCase>>) -> Self {
        let requests = kv.len();
        Self(Rc::new(RefCell::new(Store {
            kv,
            lookups: vec![0; requests],
            load_failed: vec![false; requests],
            ..Store::default()
        })))
    }

    /// The runner is about to call `schedule()` for the `schedule`-th time.
    pub fn begin_schedule(&self, schedule: u64) {
        self.0.borrow_mut().schedule = schedule;
    }

    /// What the workers report with the output of the `processing`-th call.
    pub fn worker_output(&self, processing: u64) -> KvConnectorOutput {
        let mut store = self.0.borrow_mut();
        store.processing = processing;
        let mut output = KvConnectorOutput::default();
        let loads = std::mem::take(&mut store.loads);
        for load in loads {
            if load.due > processing {
                store.loads.push(load);
                continue;
            }
            if !load.failed_blocks.is_empty() || load.fails_as_a_whole {
                store.load_failed[load.id as usize] = true;
            }
            output.invalid_block_ids.extend(load.failed_blocks);
            if load.is_async {
                output.finished_recving.push(load.id);
            }
            if load.fails_as_a_whole {
                output.failed_recving.push(load.id);
            }
        }
        store.sends.retain(|&(id, due)| {
            if due <= processing {
                output.finished_sending.push(id);
            }
            due > processing
        });
        output.invalid_block_ids.sort_unstable();
        output.invalid_block_ids.dedup();
        output
    }
}

impl KvConnector for CaseConnector {
    fn get_num_new_matched_tokens(&mut self, request: &Request, num_computed_tokens: u32) -> ExternalMatch {
        let mut store = self.0.borrow_mut();
        let id = request.id as usize;
        let nothing = ExternalMatch::Tokens { num_tokens: 0, load_async: false };
        if store.load_failed[id] {
            return nothing;
        }
        store.lookups[id] += 1;
        let lookups = store.lookups[id];
        let Some(kv) = &store.kv[id] else { return nothing };
        if lookups <= kv.defer_lookups {
            return ExternalMatch::Pending;
        }
        let limit = if kv.load_async { request.num_tokens() } else { request.num_tokens() - 1 };
        let num_tokens = kv.external_tokens.min(limit).saturating_sub(num_computed_tokens);
        ExternalMatch::Tokens { num_tokens, load_async: kv.load_async && num_tokens > 0 }
    }

    fn update_state_after_alloc(
        &mut self,
        request: &Request,
        block_ids: &[&[BlockId]],
        num_external_tokens: u32,
    ) {
        let mut store = self.0.borrow_mut();
        let Some(kv) = &store.kv[request.id as usize] else { return };
        if num_external_tokens == 0 {
            return;
        }
        let table = block_ids.first().copied().unwrap_or_default();
        let load = Load {
            id: request.id,
            due: store.schedule + if kv.load_async { u64::from(kv.load_steps) } else { 0 },
            is_async: kv.load_async,
            failed_blocks: kv.fail_blocks.iter().filter_map(|&index| table.get(index).copied()).collect(),
            fails_as_a_whole: kv.fail_request && kv.load_async,
        };
        store.loads.push(load);
    }

    fn request_finished(&mut self, request: &Request, _block_ids: &[&[BlockId]]) -> bool {
        let mut store = self.0.borrow_mut();
        let send_steps = store.kv[request.id as usize].as_ref().and_then(|kv| kv.send_steps);
        let ended_well =
            matches!(request.status, RequestStatus::FinishedStopped | RequestStatus::FinishedLengthCapped);
        let (Some(send_steps), true) = (send_steps, ended_well) else { return false };
        let due = store.processing + u64::from(send_steps);
        store.sends.push((request.id, due));
        true
    }
}
