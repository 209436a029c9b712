//! Runs what a plan asks for: candidates at the same time, and the replications of a load too.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};

use rayon::prelude::*;

use super::PlanError;
use super::fleet::FleetSize;
use super::header::{PlanRuns, Row, RunKey};
use super::load::Planner;
use super::measured::Measured;
use super::meter::Meter;
use super::recommend::recommend;
use super::result::{CandidateResult, PlanResult};
use super::step_figures::StepMeter;
use crate::cost::CostModel;
use crate::cost::bounds::DatasheetBounds;
use crate::scenario::{Pool, Scenario, ScenarioError};
use crate::simulation::Role;
use crate::simulation::router::RouterConfig;
use crate::study::journal::Journal;

/// How often a run is asked how far it is, and looked at for overload, in events.
const EVENTS_BETWEEN_PROGRESS: u32 = 64;
const EVENTS_BETWEEN_LOOKS: u32 = 8_192;
/// Before this share of the arrivals a queue that grows says nothing yet.
const LEAST_PROGRESS: f64 = 0.1;

/// How a plan runs; none of it changes a result.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where the journal and the results go.
    pub folder: PathBuf,
    /// Forgets what the folder holds of an earlier start.
    pub restart: bool,
    /// 0 for as many as there are processors.
    pub threads: usize,
}

/// Tells whoever waits how far a plan is.
pub trait Progress {
    /// So many runs were finished by an earlier start.
    fn begin(&mut self, runs: usize, candidates: usize) -> io::Result<()>;
    /// A run is finished and safe.
    fn run(&mut self);
    /// All is known of a candidate.
    fn candidate(&mut self);
}

/// Nobody listens any more, because of an error elsewhere.
#[derive(Debug)]
pub(super) struct Stopped;

enum Event {
    Run(Box<Row>),
    Candidate,
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setup {
    pub candidate: usize,
    /// Times the scenario's.
    pub load: f64,
    pub size: FleetSize,
    /// Its position among the plan's.
    pub router: usize,
}

/// Runs of one plan: what is known from the journal, and where new ones go.
pub(super) struct Runs<'a> {
    pub planner: &'a Planner,
    known: &'a HashMap<RunKey, Row>,
    sender: Sender<Event>,
}

impl Planner {
    /// Runs what is left to run, and writes the results.
    ///
    /// # Errors
    /// The folder is that of something else, or cannot be written. What has finished is kept.
    pub fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<PlanResult, PlanError> {
        let mut journal = Journal::<PlanRuns>::open(&options.folder, &self.header, options.restart)?;
        let known = journal.rows.clone();
        progress.begin(known.len(), self.num_candidates()).map_err(PlanError::Terminal)?;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
        let pool = pool
            .map_err(|error| PlanError::Threads { threads: options.threads, message: error.to_string() })?;
        let (sender, receiver) = channel();
        let result = std::thread::scope(|scope| {
            let known = &known;
            let worker = scope.spawn(move || {
                let runs = Runs { planner: self, known, sender };
                pool.install(|| {
                    let study = |candidate| {
                        let result = runs.study(candidate)?;
                        runs.send(Event::Candidate)?;
                        Ok(result)
                    };
                    let all = (0..self.num_candidates()).into_par_iter().map(study);
                    let mut result = self.result(all.collect::<Result<Vec<_>, Stopped>>()?);
                    runs.verify(&mut result)?;
                    Ok(result)
                })
            });
            // This thread owns the receiver, so that an error lets go of it and stops the others.
            let listen = || -> Result<(), PlanError> {
                let receiver = receiver;
                for event in &receiver {
                    match event {
                        Event::Run(row) => {
                            journal.append(std::slice::from_ref(&*row))?;
                            progress.run();
                        }
                        Event::Candidate => progress.candidate(),
                    }
                }
                Ok(())
            };
            listen()?;
            // The worker stops early only where nobody listens any more, which is an error above.
            let result: Result<PlanResult, Stopped> = worker.join().unwrap_or(Err(Stopped));
            result.map_err(|Stopped| PlanError::Stopped)
        })?;
        result.write(&options.folder)?;
        Ok(result)
    }

    fn result(&self, candidates: Vec<CandidateResult>) -> PlanResult {
        let rate = self.sweep.scenarios().iter().flatten().next();
        let mut result = PlanResult {
            kvsim_version: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.name.clone(),
            description: self.description.clone(),
            rate: rate.and_then(|scenario| scenario.file.workload.rate_per_s()),
            settings: self.header.settings.clone(),
            fields: self.sweep.plan.fields.clone(),
            candidates,
            recommendation: None,
        };
        recommend(&mut result);
        result
    }
}

impl Runs<'_> {
    fn send(&self, event: Event) -> Result<(), Stopped> {
        self.sender.send(event).map_err(|_| Stopped)
    }

    /// Runs of a setup, as far as they are not known.
    pub fn at(
        &self,
        setup: Setup,
        replications: std::ops::Range<u32>,
    ) -> Result<Vec<Result<Measured, String>>, Stopped> {
        let Setup { candidate, load, size: FleetSize { replicas, prefill }, router } = setup;
        let one = |replication: u32| {
            let key: RunKey = (candidate, load.to_bits(), [replicas, prefill], router, replication);
            if let Some(row) = self.known.get(&key) {
                return Ok(row.outcome.clone());
            }
            let outcome = self.simulate(setup, replication);
            let row =
                Row { candidate, load, replicas, prefill, router, replication, outcome: outcome.clone() };
            self.send(Event::Run(Box::new(row)))?;
            Ok(outcome)
        };
        replications.into_par_iter().map(one).collect()
    }

    fn simulate(&self, setup: Setup, replication: u32) -> Result<Measured, String> {
        let settings = &self.planner.header.settings;
        let scenario = self.planner.scenario(setup.candidate).as_ref().map_err(Clone::clone)?;
        let router = &settings.routers[setup.router];
        let fleet = fleet(scenario, setup.size, router).map_err(|error| error.without_place())?;
        let mut scenario = fleet.scaled(setup.load).map_err(|error| error.without_place())?;
        scenario.file.seed = scenario.file.seed.wrapping_add(u64::from(replication));
        let mut simulation =
            scenario.build_sharing(self.planner.sweep.traces()).map_err(|error| error.without_place())?;
        let mut meter = Meter::new(&settings.targets, step_meters(&scenario));
        let is_steady = scenario.file.workload.is_steady();
        let mut is_cut = false;
        let mut events = 0_u32;
        while simulation.step(&mut meter).map_err(|error| error.to_string())? {
            events = events.wrapping_add(1);
            if !events.is_multiple_of(EVENTS_BETWEEN_PROGRESS) {
                continue;
            }
            let progress = simulation.progress().unwrap_or(0.0);
            if progress >= 1.0 {
                meter.all_have_started();
            } else if is_steady
                && progress >= LEAST_PROGRESS
                && events.is_multiple_of(EVENTS_BETWEEN_LOOKS)
                && meter.is_overloaded()
            {
                is_cut = true;
                break;
            }
        }
        Ok(meter.finish(settings.warmup, is_cut))
    }
}

/// So many of a candidate's replicas behind a router.
pub(super) fn fleet(
    scenario: &Scenario,
    size: FleetSize,
    router: &RouterConfig,
) -> Result<Scenario, ScenarioError> {
    if size.has_roles() {
        scenario.with_roles(size.prefill, size.decode(), router)
    } else {
        scenario.with_fleet(size.replicas, router)
    }
}

/// By engine core, with its role.
fn step_meters(scenario: &Scenario) -> Vec<(StepMeter, Option<Role>)> {
    let of_pool = |pool: &Pool| {
        let bounds = match pool.cost() {
            CostModel::Roofline(_) => {
                Some(DatasheetBounds::new(&pool.model, pool.gpu, &pool.section.parallelism()))
            }
            CostModel::Constant(_) => None,
        };
        let usable_blocks = pool.engine.num_gpu_blocks.saturating_sub(1).max(1);
        let meter = StepMeter::new(bounds, usable_blocks, pool.engine.max_num_seqs);
        std::iter::repeat_n((meter, pool.role), pool.num_engines() as usize)
    };
    scenario.pools.iter().flat_map(of_pool).collect()
}
