//! The pull connector in a case: the engine's own, with reads and sends that take what the requests' `pull`
//! fields say.

use std::cell::RefCell;
use std::rc::Rc;

use super::case::{CaseRequest, PullCase, PullPart};
use crate::engine::EngineConfig;
use crate::engine::Request;
use crate::engine::connector::{
    ExternalMatch, KvConnector, KvConnectorOutput, PullConnector, PullGroup, PullRead,
};
use crate::engine::kv_cache::BlockId;

#[derive(Debug, Default)]
struct Worker {
    /// By request id.
    pulls: Vec<Option<PullCase>>,
    /// With the `schedule()` call whose output reports it.
    reading: Vec<(u64, u64)>,
    sending: Vec<(u64, u64)>,
    /// Index of the `schedule()` call at hand, and of the call whose output is being processed.
    schedule: u64,
    processing: u64,
}

/// Shared by the scheduler, which plans, and the runner, which plays the worker.
#[derive(Clone, Debug)]
pub(super) struct CasePull {
    connector: PullConnector,
    worker: Rc<RefCell<Worker>>,
}

impl CasePull {
    pub fn new(config: &EngineConfig, requests: &[CaseRequest]) -> Self {
        let mut pulls = vec![None; requests.len()];
        for request in requests {
            pulls[request.rank as usize] = request.pull;
        }
        let worker = Rc::new(RefCell::new(Worker { pulls, ..Worker::default() }));
        Self { connector: PullConnector::new(PullGroup::of(config)), worker }
    }

    /// The request is about to be added.
    pub fn expect(&self, request: &CaseRequest) {
        match request.pull.map(|pull| pull.part) {
            Some(PullPart::Prefill) => self.connector.expect_prefill(request.rank),
            Some(PullPart::Decode) => self.connector.expect_decode(request.rank),
            None => {}
        }
    }

    /// The runner is about to call `schedule()` for the `schedule`-th time.
    pub fn begin_schedule(&self, schedule: u64) {
        self.worker.borrow_mut().schedule = schedule;
    }

    pub fn take_reads(&self) -> Vec<PullRead> {
        self.connector.take_reads()
    }

    /// What the workers report with the output of the `processing`-th call.
    pub fn worker_output(&self, processing: u64) -> KvConnectorOutput {
        let worker = &mut *self.worker.borrow_mut();
        worker.processing = processing;
        let due = |waiting: &mut Vec<(u64, u64)>| -> Vec<u64> {
            waiting.extract_if(.., |&mut (_, due)| due <= processing).map(|(id, _)| id).collect()
        };
        let finished_recving = due(&mut worker.reading);
        let fails = |id: &&u64| worker.pulls[**id as usize].is_some_and(|pull| pull.fail);
        KvConnectorOutput {
            failed_recving: finished_recving.iter().filter(fails).copied().collect(),
            finished_recving,
            finished_sending: due(&mut worker.sending),
            ..KvConnectorOutput::default()
        }
    }
}

impl Worker {
    fn steps(&self, id: u64) -> u64 {
        self.pulls[id as usize].map_or(1, |pull| u64::from(pull.steps))
    }
}

impl KvConnector for CasePull {
    fn get_num_new_matched_tokens(&mut self, request: &Request, num_computed_tokens: u32) -> ExternalMatch {
        self.connector.get_num_new_matched_tokens(request, num_computed_tokens)
    }

    fn update_state_after_alloc(
        &mut self,
        request: &Request,
        block_ids: &[&[BlockId]],
        num_external_tokens: u32,
    ) {
        self.connector.update_state_after_alloc(request, block_ids, num_external_tokens);
        if num_external_tokens > 0 {
            let worker = &mut *self.worker.borrow_mut();
            worker.reading.push((request.id, worker.schedule + worker.steps(request.id)));
        }
    }

    fn request_finished(&mut self, request: &Request, block_ids: &[&[BlockId]]) -> bool {
        let is_kept = self.connector.request_finished(request, block_ids);
        if is_kept {
            let worker = &mut *self.worker.borrow_mut();
            worker.sending.push((request.id, worker.processing + worker.steps(request.id)));
        }
        is_kept
    }
}
