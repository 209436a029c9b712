//! Which blocks a tiered connector stores and loads, against vLLM's offloading connector with its CPU manager:
//! `tests/vllm/offload.jsonl`, which `tests/vllm/record_offload.py` recorded.

use std::cell::RefCell;
use std::rc::Rc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::case::Case;
use super::model::Model;
use crate::engine::connector::{
    Direction, EvictionOrder, ExternalMatch, KvConnector, KvConnectorOutput, TierConfig, TierGroup, TierKind,
    TierPlace, TieredConnector, Transfer,
};
use crate::engine::hash::RequestBlockHasher;
use crate::engine::kv_cache::BlockId;
use crate::engine::scheduler::{EngineCoreOutputs, ModelRunnerOutput, Scheduler, SchedulerOutput};
use crate::engine::{NewRequest, Request};

#[derive(Deserialize)]
struct Recorded {
    name: String,
    engine: Value,
    requests: Vec<RecordedRequest>,
}

#[derive(Deserialize)]
struct RecordedRequest {
    prompt: Value,
    output: Value,
    reset: bool,
    #[serde(flatten)]
    copies: Copies,
}

/// What a request's last lookup found, and the blocks of each group that were copied for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Copies {
    local: u32,
    external: u32,
    loads: Vec<Vec<u32>>,
    stores: Vec<Vec<u32>>,
}

/// The connector, with what it does of each request.
#[derive(Clone)]
struct Recorder {
    connector: TieredConnector,
    block_sizes: Vec<u32>,
    hash_block_size: u32,
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    copies: Copies,
    /// With the `schedule()` call whose output reports it.
    under_way: Vec<(u64, Transfer)>,
    schedule: u64,
}

impl Recorder {
    fn take_transfers(&self, request: &Request) {
        let state = &mut *self.state.borrow_mut();
        for transfer in self.connector.take_transfers() {
            let copies = match transfer.direction {
                Direction::Read => &mut state.copies.loads,
                Direction::Write => &mut state.copies.stores,
            };
            for key in &transfer.blocks {
                let at = request.block_hashes.iter().position(|hash| *hash == key.hash).unwrap() as u32;
                let block_size = self.block_sizes[key.group as usize];
                copies[key.group as usize].push((at + 1) * self.hash_block_size / block_size - 1);
            }
            state.under_way.push((state.schedule + 1, transfer));
        }
    }

    /// What is reported with the output of a call.
    fn output(&self, processing: u64) -> KvConnectorOutput {
        let due = |(due, _): &mut (u64, Transfer)| *due <= processing;
        let done: Vec<_> = self.state.borrow_mut().under_way.extract_if(.., due).collect();
        let mut output = KvConnectorOutput::default();
        for (_, transfer) in done {
            let done = self.connector.complete(&transfer);
            output.finished_recving.extend(done.finished_recving);
            output.finished_sending.extend(done.finished_sending);
        }
        output
    }
}

impl KvConnector for Recorder {
    fn get_num_new_matched_tokens(&mut self, request: &Request, num_computed_tokens: u32) -> ExternalMatch {
        let found = self.connector.get_num_new_matched_tokens(request, num_computed_tokens);
        if let ExternalMatch::Tokens { num_tokens, .. } = found {
            let copies = &mut self.state.borrow_mut().copies;
            (copies.local, copies.external) = (num_computed_tokens, num_tokens);
        }
        found
    }

    fn update_state_after_alloc(
        &mut self,
        request: &Request,
        block_ids: &[&[BlockId]],
        num_external_tokens: u32,
    ) {
        self.connector.update_state_after_alloc(request, block_ids, num_external_tokens);
        self.take_transfers(request);
    }

    fn on_scheduled<'a>(
        &mut self,
        request: &Request,
        num_computed_tokens: u32,
        blocks: &dyn Fn(usize) -> &'a [BlockId],
    ) {
        self.connector.on_scheduled(request, num_computed_tokens, blocks);
        self.take_transfers(request);
    }

    fn request_finished(&mut self, request: &Request, block_ids: &[&[BlockId]]) -> bool {
        let is_kept = self.connector.request_finished(request, block_ids);
        self.take_transfers(request);
        is_kept
    }
}

/// The same requests, one after the other, and what was copied for each.
fn replay(recorded: &Recorded) -> Vec<Copies> {
    let mut engine = recorded.engine.clone();
    engine["kv_connector"] = json!({"role": "kv_both", "load_failure_policy": "recompute"});
    let requests: Vec<Value> = (recorded.requests.iter().enumerate())
        .map(|(at, request)| {
            json!({"id": at.to_string(), "arrival_step": at, "prompt": request.prompt, "output": request.output})
        })
        .collect();
    let text = json!({"name": recorded.name, "engine": engine, "requests": requests}).to_string();
    let case = Case::parse(&text).unwrap();
    let config = &case.config;
    let (_, hash_block_size) = config.resolve_kv_cache_block_sizes();
    let block_sizes: Vec<u32> =
        config.kv_cache_groups.iter().map(|spec| config.group_block_size(spec)).collect();
    let groups: Vec<TierGroup> = config
        .kv_cache_groups
        .iter()
        .zip(&block_sizes)
        .map(|(spec, &size)| TierGroup::new(spec, size))
        .collect();
    let host = TierConfig { kind: TierKind::Host, capacity_blocks: 100_000, eviction: EvictionOrder::Lru };
    let recorder = Recorder {
        connector: TieredConnector::new(hash_block_size, &groups, vec![TierPlace::from(host)]),
        block_sizes,
        hash_block_size,
        state: Rc::default(),
    };
    let hasher = RequestBlockHasher::identity(hash_block_size, 0);
    let mut scheduler =
        Scheduler::new(config.clone(), Some(hasher), Some(Box::new(recorder.clone()))).unwrap();
    let mut model = Model::new(&case.requests, 0, config.async_scheduling);
    let mut queue = std::collections::VecDeque::new();
    let mut outputs = EngineCoreOutputs::default();
    let mut all = Vec::new();
    for (request, recorded) in case.requests.iter().zip(&recorded.requests) {
        if recorded.reset {
            assert!(scheduler.reset_prefix_cache(false, false, &mut Vec::new()));
        }
        let none = vec![Vec::new(); groups.len()];
        recorder.state.borrow_mut().copies =
            Copies { loads: none.clone(), stores: none, ..Copies::default() };
        let new = NewRequest {
            id: request.rank,
            prompt_token_ids: request.prompt.clone(),
            prompt_hashes: None,
            max_tokens: request.max_tokens,
            known_output: None,
            stop_token_ids: Vec::new(),
            priority: 0,
            arrival_time: request.arrival_time,
            extras: request.extras.clone(),
            session_id: None,
            skip_reading_prefix_cache: false,
            report_cached_blocks: false,
        };
        scheduler.add_request(new).unwrap();
        while scheduler.has_requests() || !queue.is_empty() {
            if scheduler.has_requests() {
                let (mut output, mut sampled) = (SchedulerOutput::default(), ModelRunnerOutput::default());
                let schedule = recorder.state.borrow().schedule;
                scheduler.schedule(&mut output);
                recorder.state.borrow_mut().schedule += 1;
                model.execute(&scheduler, &output, &mut sampled);
                queue.push_back((schedule, output, sampled));
                if queue.len() < config.max_concurrent_batches() as usize {
                    continue;
                }
            }
            let Some((schedule, output, sampled)) = queue.pop_front() else { break };
            let kv = recorder.output(schedule);
            scheduler.update_from_output(&output, &sampled, Some(&kv), &mut outputs);
        }
        let mut copies = std::mem::take(&mut recorder.state.borrow_mut().copies);
        copies.loads.iter_mut().chain(&mut copies.stores).for_each(|blocks| blocks.sort_unstable());
        all.push(copies);
    }
    all
}

#[test]
fn tiers_hold_and_give_of_each_group_what_vllm_offloads() {
    for line in include_str!("../../tests/vllm/offload.jsonl").lines() {
        let recorded: Recorded = serde_json::from_str(line).unwrap();
        let replayed = replay(&recorded);
        for (at, (request, ours)) in recorded.requests.iter().zip(&replayed).enumerate() {
            assert_eq!(*ours, request.copies, "request {at} of {}", recorded.name);
        }
    }
}
