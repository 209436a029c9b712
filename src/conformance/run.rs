//! Runs a case: the engine loop of vLLM's `EngineCore`, without a model (format 1, section 2).

use std::collections::VecDeque;

use super::case::{Action, ActionKind, Case, CaseError, CaseRequest, MAX_FRUITLESS_STEPS, When};
use super::connector::CaseConnector;
use super::digests::PoolDigests;
use super::log::{LogWriter, Totals};
use super::model::Model;
use super::pull::CasePull;
use crate::engine::connector::{KvConnector, KvConnectorOutput};
use crate::engine::hash::{RequestBlockHasher, init_none_hash, resolve_none_hash_seed};
use crate::engine::prefix_cache_stats::CachingMetrics;
use crate::engine::scheduler::{EngineCoreOutputs, ModelRunnerOutput, Scheduler, SchedulerOutput};
use crate::engine::{EngineConfigError, NewRequest, RequestStatus};

/// A step that has been executed and not processed.
#[derive(Default)]
struct Batch {
    schedule: u64,
    output: SchedulerOutput,
    sampled: ModelRunnerOutput,
}

/// The runner's handle of the connector.
enum Connector {
    Case(CaseConnector),
    Pull(CasePull),
}

impl Connector {
    fn for_scheduler(&self) -> Box<dyn KvConnector> {
        match self {
            Self::Case(connector) => Box::new(connector.clone()),
            Self::Pull(connector) => Box::new(connector.clone()),
        }
    }

    fn begin_schedule(&self, schedule: u64) {
        match self {
            Self::Case(connector) => connector.begin_schedule(schedule),
            Self::Pull(connector) => connector.begin_schedule(schedule),
        }
    }

    fn worker_output(&self, processing: u64) -> KvConnectorOutput {
        match self {
            Self::Case(connector) => connector.worker_output(processing),
            Self::Pull(connector) => connector.worker_output(processing),
        }
    }
}

struct Run<'a> {
    case: &'a Case,
    scheduler: Scheduler,
    connector: Option<Connector>,
    model: Model<'a>,
    log: Option<LogWriter<'a>>,
    window: CachingMetrics,
    totals: Totals,
    queue: VecDeque<Batch>,
    /// Batches that have been processed, kept for their buffers.
    spare: Vec<Batch>,
    outputs: EngineCoreOutputs,
    /// Since the last output: steps that scheduled nothing or preempted somebody.
    num_fruitless_steps: u64,
}

/// Runs a case and returns its log.
///
/// # Errors
/// An engine that cannot start; requests that can never end.
pub fn run_case(case: &Case) -> Result<String, CaseError> {
    let mut run = Run::new(case, true)?;
    run.run()?;
    Ok(run.log.map(LogWriter::into_log).unwrap_or_default())
}

/// Runs a case as a simulation would, without a log or digests; returns the number of steps.
///
/// # Errors
/// As [`run_case`].
pub fn run_case_without_log(case: &Case) -> Result<u64, CaseError> {
    let mut run = Run::new(case, false)?;
    run.run()?;
    Ok(run.totals.steps)
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, with_log: bool) -> Result<Self, EngineConfigError> {
        let config = &case.config;
        let (_, hash_block_size) = config.resolve_kv_cache_block_sizes();
        let lookahead = config.num_hash_lookahead_tokens();
        let algo = config.prefix_caching_hash_algo;
        let is_hashed = config.enable_prefix_caching || config.kv_connector.is_some();
        // Without PYTHONHASHSEED the seed of the xxHash options is random; here it is not.
        let seed = resolve_none_hash_seed(algo, case.python_hash_seed.as_deref(), &[0; 32]);
        let none_hash = init_none_hash(algo, &seed);
        let hasher = is_hashed.then(|| {
            if with_log {
                RequestBlockHasher::digests(algo, none_hash, hash_block_size, lookahead)
            } else {
                RequestBlockHasher::identity(hash_block_size, lookahead)
            }
        });
        let mut kv: Vec<_> = vec![None; case.requests.len()];
        for request in &case.requests {
            kv[request.rank as usize].clone_from(&request.kv);
        }
        let connector = config.kv_connector.map(|_| match case.is_pull {
            true => Connector::Pull(CasePull::new(config, &case.requests)),
            false => Connector::Case(CaseConnector::new(kv)),
        });
        let boxed = connector.as_ref().map(Connector::for_scheduler);
        let mut scheduler = Scheduler::new(config.clone(), hasher, boxed)?;
        let log = with_log.then(|| {
            scheduler.keep_finished_hashes();
            let digests = PoolDigests::new(scheduler.kv_cache_manager_mut().block_pool_mut());
            let mut log = LogWriter::new(&case.names, case.use_int_block_hashes, case.full_every, digests);
            log.start(&case.name, &scheduler, is_hashed.then(|| none_hash.to_string()));
            log
        });
        Ok(Self {
            case,
            scheduler,
            connector,
            model: Model::new(&case.requests, config.num_speculative_tokens(), config.async_scheduling),
            log,
            window: CachingMetrics::default(),
            totals: Totals::default(),
            queue: VecDeque::new(),
            spare: Vec::new(),
            outputs: EngineCoreOutputs::default(),
            num_fruitless_steps: 0,
        })
    }

    fn run(&mut self) -> Result<(), CaseError> {
        let case = self.case;
        let last_arrival = case.requests.last().map_or(0, |request| request.arrival_step);
        let last_action = case.actions.iter().map(|action| action.step).max().unwrap_or(0);
        let mut arrivals = case.requests.iter().peekable();
        let mut step = 0;
        loop {
            while let Some(request) = arrivals.next_if(|request| request.arrival_step == step) {
                self.add_request(request);
            }
            self.run_actions(step, When::BeforeStep);
            let done = self.step(step);
            if !done && arrivals.peek().is_none() && step >= last_arrival && step >= last_action {
                break;
            }
            if self.num_fruitless_steps > MAX_FRUITLESS_STEPS {
                return Err(CaseError::Stuck { step, unfinished: self.unfinished() });
            }
            step += 1;
            if !done {
                // Nothing happens before the next arrival or action.
                let arrival = arrivals.peek().map(|request| request.arrival_step);
                let actions = case.actions.iter().map(|action| action.step).filter(|&at| at >= step);
                step = actions.chain(arrival).min().unwrap_or(step);
            }
        }
        self.totals.steps = step;
        self.totals.unfinished = self.scheduler.get_num_unfinished_requests();
        if let Some(log) = &mut self.log {
            log.end(&self.totals);
        }
        Ok(())
    }

    /// Names of the requests that have not ended, the first few.
    fn unfinished(&self) -> Vec<String> {
        let scheduler = &self.scheduler;
        let requests = scheduler.running().chain(scheduler.kv_holding_waiting()).chain(scheduler.waiting());
        requests.take(8).map(|request| self.case.names[request.id as usize].clone()).collect()
    }

    fn add_request(&mut self, case: &CaseRequest) {
        let request = NewRequest {
            id: case.rank,
            prompt_token_ids: case.prompt.clone(),
            prompt_hashes: None,
            max_tokens: case.max_tokens,
            // So that steps list every request, as vLLM's do.
            known_output: None,
            stop_token_ids: case.stop_token_ids.clone(),
            priority: case.priority,
            arrival_time: case.arrival_time,
            extras: case.extras.clone(),
            session_id: case.session_id.clone(),
            skip_reading_prefix_cache: case.skip_reading_prefix_cache,
            report_cached_blocks: case.report_cached_blocks,
        };
        if let Some(Connector::Pull(pull)) = &self.connector {
            pull.expect(case);
        }
        // What the engine's front end would refuse never reaches its core.
        let _ = self.scheduler.add_request(request);
    }

    fn run_actions(&mut self, step: u64, when: When) {
        let case = self.case;
        for action in case.actions.iter().filter(|action| action.step == step && action.when == when) {
            self.run_action(step, action);
        }
    }

    fn run_action(&mut self, step: u64, action: &Action) {
        match &action.kind {
            ActionKind::ResetPrefixCache { reset_running_requests } => {
                let mut preempted = Vec::new();
                let ok = self.scheduler.reset_prefix_cache(*reset_running_requests, false, &mut preempted);
                self.totals.preemptions += preempted.len() as u64;
                if let Some(log) = &mut self.log {
                    log.reset(step, *reset_running_requests, ok, &preempted, &mut self.scheduler);
                }
            }
            ActionKind::Abort { id } => {
                // An abort may name a request that never was.
                let ids: Vec<u64> =
                    self.case.names.binary_search(id).map(|rank| rank as u64).into_iter().collect();
                let mut finished = Vec::new();
                self.scheduler.finish_requests(&ids, RequestStatus::FinishedAborted, &mut finished);
                if let Some(log) = &mut self.log {
                    log.abort(step, id, &finished, &mut self.scheduler);
                }
            }
        }
    }

    /// The engine's step function; false if there was nothing to do.
    fn step(&mut self, step: u64) -> bool {
        let max_batches = self.case.config.max_concurrent_batches() as usize;
        if self.scheduler.has_requests() {
            let batch = self.schedule(step);
            let had_tokens = batch.output.total_num_scheduled_tokens > 0;
            self.queue.push_back(batch);
            if self.queue.len() < max_batches && (had_tokens || self.scheduler.has_requests()) {
                return true;
            }
        }
        let Some(batch) = self.queue.pop_front() else { return false };
        self.update(step, &batch);
        self.spare.push(batch);
        true
    }

    fn schedule(&mut self, step: u64) -> Batch {
        let mut batch = self.spare.pop().unwrap_or_default();
        batch.schedule = self.totals.schedules;
        self.totals.schedules += 1;
        if let Some(connector) = &self.connector {
            connector.begin_schedule(batch.schedule);
        }
        self.scheduler.schedule(&mut batch.output);
        self.totals.scheduled_tokens += u64::from(batch.output.total_num_scheduled_tokens);
        self.totals.preemptions += batch.output.preempted.len() as u64;
        let is_fruitless = batch.output.total_num_scheduled_tokens == 0 || !batch.output.preempted.is_empty();
        self.num_fruitless_steps += u64::from(is_fruitless);
        let reads = match &self.connector {
            Some(Connector::Pull(pull)) => Some(pull.take_reads()),
            _ => None,
        };
        if let Some(log) = &mut self.log {
            log.schedule(step, batch.schedule, &batch.output, reads.as_deref(), &mut self.scheduler);
        }
        self.model.execute(&self.scheduler, &batch.output, &mut batch.sampled);
        batch
    }

    fn update(&mut self, step: u64, batch: &Batch) {
        self.run_actions(step, When::BeforeUpdate);
        let kv = self.connector.as_ref().map(|connector| connector.worker_output(batch.schedule));
        self.scheduler.update_from_output(&batch.output, &batch.sampled, kv.as_ref(), &mut self.outputs);
        if !self.outputs.outputs.is_empty() {
            self.num_fruitless_steps = 0;
        }
        let stats = &self.outputs.prefix_cache_stats;
        self.window.observe(stats);
        let totals = &mut self.totals.stats;
        totals.requests += stats.requests;
        totals.queries += stats.queries;
        totals.hits += stats.hits;
        totals.preempted_requests += stats.preempted_requests;
        totals.preempted_queries += stats.preempted_queries;
        totals.preempted_hits += stats.preempted_hits;
        if let Some(log) = &mut self.log {
            log.update(step, batch.schedule, &self.outputs, kv.as_ref(), &self.window, &mut self.scheduler);
        }
        let is_sync = !self.case.config.async_scheduling;
        if is_sync && self.case.config.speculative.is_some() && batch.output.total_num_scheduled_tokens > 0 {
            self.model.draft(&mut self.scheduler, &batch.output);
        }
    }
}
