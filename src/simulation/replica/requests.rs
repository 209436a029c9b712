//! How requests come to a replica and leave it before their answer is whole.

use rustc_hash::FxHashSet;

use super::{LostRequests, Replica, tell};
use crate::engine::connector::KvConnector;
use crate::engine::scheduler::RequestError;
use crate::engine::{NewRequest, RequestSlot, RequestStatus};
use crate::prompt::PromptExtras;
use crate::simulation::disaggregation::{Delivery, Part};
use crate::simulation::live_request::{Live, RequestMeta, request_record};
use crate::simulation::observer::{EngineCall, Observer, StepRecord};
use crate::simulation::output_steps::OutputSteps;
use crate::simulation::pipeline::Pipeline;
use crate::units::SimTime;
use crate::workload::{Arrival, RequestSpec, WaitsFor, rng};

impl Replica {
    /// A request reaches the engine core, whose input thread hashes the blocks of its prompt, one
    /// request after the other (`preprocess_add_request` in `v1/engine/core.py`). When it is done, and
    /// [`Self::add_request`] may follow.
    pub(in crate::simulation) fn receive(&mut self, now: SimTime, delivery: Delivery) -> SimTime {
        let request = &delivery.arrival.request;
        let num_tokens = request.prompt.len();
        let mm_tokens = request.extras.mm.iter().map(|item| item.length_tokens).sum();
        let num_keyed_tokens = if request.extras.lora.is_some() { num_tokens } else { mm_tokens };
        let hashing = SimTime(self.hashing.prompt_ns(num_tokens, num_keyed_tokens));
        self.input_free_at = self.input_free_at.max(now) + hashing;
        self.input.push_back((self.input_free_at, delivery));
        self.input_free_at
    }

    /// The request that [`Self::receive`] took in first, if it is hashed by `now`.
    pub(in crate::simulation) fn next_received(&mut self, now: SimTime) -> Option<Delivery> {
        if self.input.front()?.0 > now {
            return None;
        }
        self.input.pop_front().map(|(_, delivery)| delivery)
    }

    /// At `now` the engine takes in a request that [`Self::receive`] has hashed.
    pub(in crate::simulation) fn add_request(
        &mut self,
        now: SimTime,
        delivery: Delivery,
        observer: &mut dyn Observer,
    ) -> Result<RequestSlot, RequestError> {
        let Delivery { arrival: Arrival { at, mut request }, part, prompt_hashes } = delivery;
        if part == Part::Prefill {
            request.output.truncate(1);
        }
        if let Some(puller) = &self.puller {
            match part {
                Part::Whole => {}
                Part::Prefill => {
                    // It was here before, and who was to read its blocks has gone.
                    if puller.give_up(request.index) {
                        self.scheduler.stop_sending(request.index);
                    }
                    puller.connector().expect_prefill(request.index);
                }
                Part::Decode { .. } => puller.connector().expect_decode(request.index),
            }
        }
        let RequestSpec { index, prompt, output, extras, priority, .. } = request;
        let num_prompt_tokens = prompt.len();
        let slot = self.scheduler.add_request(NewRequest {
            id: index,
            prompt_token_ids: prompt,
            prompt_hashes,
            max_tokens: output.len(),
            known_output: Some(output),
            priority: i64::from(priority),
            arrival_time: now.as_ns(),
            extras: (extras != PromptExtras::default()).then(|| Box::new(extras)),
            skip_reading_prefix_cache: request.skip_reading_prefix_cache,
            ..NewRequest::default()
        })?;
        self.in_input_queue.push(slot);
        let shortest_hit = self.scheduler.kv_cache_manager().shortest_hit();
        let is_long_enough_to_hit = num_prompt_tokens >= shortest_hit.prompt_tokens;
        let is_known = self.has_known_beginning(slot, index, shortest_hit.matching_tokens);
        let shares_shortest_hit = is_known && is_long_enough_to_hit;
        if self.live.len() <= slot.index() {
            self.live.resize_with(slot.index() + 1, || None);
        }
        self.live[slot.index()] = Some(Live {
            spec: RequestMeta {
                index,
                tenant: request.tenant,
                session: request.session,
                turn: request.turn,
                arrival: at,
                skip_reading_prefix_cache: request.skip_reading_prefix_cache,
                is_long_enough_to_hit,
                shares_shortest_hit,
            },
            num_prompt_tokens,
            patience: request.patience,
            is_prefill_part: part == Part::Prefill,
            first_scheduled: match part {
                Part::Decode { first_scheduled } => first_scheduled,
                Part::Whole | Part::Prefill => None,
            },
            first_token: None,
            output_steps: OutputSteps::default(),
            num_local_cached_tokens: 0,
            num_external_cached_tokens: 0,
            num_sampled: 0,
            rng: self.drafts.map(|drafts| Box::new(rng::stream(drafts.seed, "draft acceptance", index))),
        });
        let call = EngineCall::AddRequest { slot, id: index };
        tell(self.index, &mut self.scheduler, &mut self.journal, now, call, observer);
        Ok(slot)
    }

    /// The patience of this request's client has ended: aborts the request, unless it has ended or
    /// what the client waits for is there. True if it was aborted.
    ///
    /// As in vLLM a step in flight runs to its end, and what it brings for the request is dropped:
    /// `EngineCore` takes aborts in before it processes a step's output.
    pub(in crate::simulation) fn abort(
        &mut self,
        now: SimTime,
        slot: RequestSlot,
        index: u64,
        observer: &mut dyn Observer,
    ) -> bool {
        // A server that began anew knows nothing of it.
        let live = self.live.get_mut(slot.index()).and_then(Option::as_mut);
        let Some(live) = live.filter(|live| live.spec.index == index) else { return false };
        let waits_for = live.patience.map(|patience| patience.waits_for);
        if waits_for == Some(WaitsFor::FirstToken) && live.first_token.is_some() {
            return false;
        }
        let Some(request) = self.scheduler.request(slot, index) else { return false };
        let was_admitted = live.note_admission(request);
        self.scheduler.kv_cache_manager_mut().block_pool_mut().set_now_ns(now.as_ns());
        let mut finished = Vec::with_capacity(1);
        self.scheduler.finish_requests(&[index], RequestStatus::FinishedAborted, &mut finished);
        self.in_input_queue.retain(|&queued| queued != slot);
        self.note_kv_usage(now);
        let call = EngineCall::Abort { finished: &finished };
        tell(self.index, &mut self.scheduler, &mut self.journal, now, call, observer);
        for finished in &finished {
            let Some(live) = self.live[slot.index()].take() else { continue };
            let record = request_record(self.index, &live, finished, was_admitted, now);
            observer.on_output_steps(&record, &live.output_steps.into_spans());
            observer.on_request(&record);
        }
        true
    }

    /// The server goes away with all that it has: requests, steps in flight, the cache. What starts in
    /// its place is empty. With `reports` its requests are told of as failed.
    pub(in crate::simulation) fn shut_down(
        &mut self,
        now: SimTime,
        reports: bool,
        observer: &mut dyn Observer,
    ) -> LostRequests {
        let mut lost = LostRequests::default();
        let mut was_admitted = FxHashSet::default();
        for live in self.live.iter_mut().flatten() {
            let index = live.spec.index;
            lost.indices.push(index);
            let request = self.scheduler.request_by_id(index);
            if request.is_some_and(|request| live.note_admission(request)) {
                was_admitted.insert(index);
            }
        }
        lost.indices.sort_unstable();
        self.scheduler.kv_cache_manager_mut().block_pool_mut().set_now_ns(now.as_ns());
        let mut finished = Vec::with_capacity(lost.indices.len());
        self.scheduler.finish_requests(&lost.indices, RequestStatus::FinishedError, &mut finished);
        let call = EngineCall::Abort { finished: &finished };
        tell(self.index, &mut self.scheduler, &mut self.journal, now, call, observer);
        for finished in &finished {
            lost.num_output_tokens += u64::from(finished.num_output_tokens());
            let Some(live) = self.live[finished.slot.index()].take().filter(|_| reports) else { continue };
            let was_admitted = was_admitted.contains(&finished.id);
            observer.on_request(&request_record(self.index, &live, finished, was_admitted, now));
        }
        self.live.clear();
        self.in_input_queue.clear();
        self.spare.extend(self.queue.drain(..));
        self.planned_for_ranks = None;
        self.pipeline = Pipeline::new(self.scheduler.config().pipeline_parallel_size);
        self.input_free_at = now;
        if let Some(transfers) = &mut self.transfers {
            transfers.restart();
        }
        if let Some(puller) = &self.puller {
            puller.connector().restart();
        }
        let transfers = self.transfers.as_ref();
        let of_tiers = transfers.map(|transfers| Box::new(transfers.connector().clone()) as _);
        let puller = self.puller.as_ref();
        let connector: Option<Box<dyn KvConnector>> =
            of_tiers.or_else(|| puller.map(|puller| Box::new(puller.connector().clone()) as _));
        self.scheduler.restart(connector);
        let pool = self.scheduler.kv_cache_manager_mut().block_pool_mut();
        if self.is_followed {
            pool.follow();
        }
        if self.records_cache_changes {
            pool.record_cache_changes();
        }
        self.note_kv_usage(now);
        // It computes nothing, and says that nobody runs or waits here any more.
        let mut record = StepRecord {
            replica: self.index,
            index: self.num_steps,
            scheduled_at: now,
            started_at: now,
            finished_at: now,
            num_free_blocks: self.scheduler.kv_cache_manager().block_pool().get_num_free_blocks(),
            ..StepRecord::default()
        };
        (record.used_block_ns, record.peak_used_blocks) = self.kv_usage.take();
        self.num_steps += 1;
        observer.on_step(&record);
        lost
    }

    /// Whether a prompt before began with the same `num_tokens`; this one is known from now on.
    fn has_known_beginning(&mut self, slot: RequestSlot, id: u64, num_tokens: u32) -> bool {
        let num_hashes = num_tokens / self.scheduler.kv_cache_manager().block_pool().hash_block_size();
        // A hash stands for its block and all before it.
        let last = (num_hashes as usize).saturating_sub(1);
        let hash = self.scheduler.request(slot, id).and_then(|request| request.block_hashes.get(last));
        hash.is_some_and(|&hash| !self.first_hashes.insert(hash))
    }

    /// Empties the prefix cache; see [`Scheduler::reset_prefix_cache`].
    pub(in crate::simulation) fn reset_prefix_cache(
        &mut self,
        now: SimTime,
        reset_running_requests: bool,
        reset_external: bool,
        observer: &mut dyn Observer,
    ) {
        let mut preempted = Vec::new();
        let done = self.scheduler.reset_prefix_cache(reset_running_requests, reset_external, &mut preempted);
        self.note_kv_usage(now);
        let call = EngineCall::ResetPrefixCache { done, preempted: &preempted };
        tell(self.index, &mut self.scheduler, &mut self.journal, now, call, observer);
        observer.on_reset(self.index, now, done, preempted.len() as u32);
    }
}
