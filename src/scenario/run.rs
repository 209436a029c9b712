//! Builds the simulation of a scenario, and says where a failure of it comes from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::Rng;
use sha2::{Digest, Sha256};

use super::file::{CostArgs, WorkloadArgs};
use super::{Scenario, ScenarioError};
use crate::cost::{Coefficients, CostModel, Roofline};
use crate::engine::hash::{RequestBlockHasher, init_none_hash, resolve_none_hash_seed};
use crate::engine::scheduler::Scheduler;
use crate::simulation::{Replica, ReplicaConfig, Simulation, SimulationError};
use crate::units::SimTime;
use crate::workload::chat::Chat;
use crate::workload::trace::{Trace, decompress};
use crate::workload::{ConfigError, Workload, WorkloadError, rng};

/// A simulation that is ready to run.
pub struct ScenarioRun {
    pub simulation: Simulation,
    /// What the predicted times rest on beside measurements; empty for a constant cost.
    pub caveats: Vec<String>,
    /// When the workload is a trace.
    pub trace: Option<TraceProgress>,
    /// When no session starts any more, if the workload knows.
    pub arrivals_end: Option<SimTime>,
}

/// How much of a trace's file was read.
pub struct TraceProgress {
    pub path: PathBuf,
    pub total_bytes: u64,
    read_bytes: Arc<AtomicU64>,
}

impl TraceProgress {
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// SHA-256 of the file as it lies on disk, in hexadecimal.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sha256(&self) -> io::Result<String> {
        let mut hasher = Sha256::new();
        io::copy(&mut File::open(&self.path)?, &mut HashWriter(&mut hasher))?;
        Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what is read.
struct Counted {
    file: File,
    read_bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

impl Scenario {
    /// Opens the trace, if there is one, and builds everything.
    ///
    /// # Errors
    /// The trace cannot be opened; what could be wrong otherwise was found when the scenario was
    /// read.
    pub fn start(&self) -> Result<ScenarioRun, ScenarioError> {
        let config_error = |section: &str| {
            let section = section.to_owned();
            move |ConfigError { field, found, expected }: ConfigError| {
                self.source.field_error(&format!("{section}.{field}"), found, expected)
            }
        };
        let mut trace = None;
        let mut arrivals_end = None;
        let workload: Box<dyn Workload> = match &self.workload {
            WorkloadArgs::Chat(config) => {
                arrivals_end = config.duration_s.map(SimTime::from_secs_f64);
                Box::new(Chat::new(config.clone(), self.seed).map_err(config_error("workload.chat"))?)
            }
            WorkloadArgs::Trace(config) => {
                let path = self.source.resolve_path("workload.trace.path", &config.path);
                let (file, progress) = open(&path).map_err(|error| self.cannot_open(&path, &error))?;
                trace = Some(progress);
                let input = decompress(file).map_err(|error| self.cannot_open(&path, &error))?;
                Box::new(Trace::new(input, config).map_err(config_error("workload.trace"))?)
            }
        };
        let (cost, caveats) = self.cost()?;
        let replica = Replica::new(ReplicaConfig { scheduler: self.scheduler()?, cost });
        let simulation = Simulation::new(workload, replica, self.actions.clone());
        Ok(ScenarioRun { simulation, caveats, trace, arrivals_end })
    }

    fn cannot_open(&self, path: &Path, error: &io::Error) -> ScenarioError {
        let problem = format!("cannot read {}: {error}", path.display());
        let hint = "check the path; in a scenario it counts from the scenario's folder";
        self.source.field_error("workload.trace.path", problem, hint)
    }

    fn cost(&self) -> Result<(CostModel, Vec<String>), ScenarioError> {
        match self.cost {
            CostArgs::Constant(cost) => Ok((CostModel::Constant(cost), Vec::new())),
            CostArgs::Roofline => {
                let coefficients = Coefficients::built_in(self.gpu)
                    .map_err(|error| self.source.field_message("gpu", &error.to_string()))?;
                let roofline = Roofline::new(&self.model, self.gpu, self.tensor_parallel_size, &coefficients);
                let caveats = roofline.caveats().to_vec();
                Ok((CostModel::Roofline(Box::new(roofline)), caveats))
            }
        }
    }

    fn scheduler(&self) -> Result<Scheduler, ScenarioError> {
        let engine = &self.engine;
        let (_, hash_block_size) = engine.resolve_kv_cache_block_sizes();
        let lookahead = engine.num_hash_lookahead_tokens();
        let hasher = engine.enable_prefix_caching.then(|| {
            // Only events show digests; equality is all that decisions need.
            if !engine.enable_kv_cache_events {
                return RequestBlockHasher::identity(hash_block_size, lookahead);
            }
            let algo = engine.prefix_caching_hash_algo;
            let mut random = [0; 32];
            rng::stream(self.seed, "none hash", 0).fill_bytes(&mut random);
            let none_hash = init_none_hash(algo, &resolve_none_hash_seed(algo, None, &random));
            RequestBlockHasher::digests(algo, none_hash, hash_block_size, lookahead)
        });
        Scheduler::new(engine.clone(), hasher, None).map_err(|error| {
            self.source.field_error(&format!("engine.{}", error.field), error.problem, error.hint)
        })
    }

    /// What made a run of this scenario fail, in terms of its files.
    pub fn explain(&self, error: SimulationError) -> ScenarioError {
        let trace = match &self.workload {
            WorkloadArgs::Trace(config) => {
                Some(self.source.resolve_path("workload.trace.path", &config.path))
            }
            WorkloadArgs::Chat(_) => None,
        };
        match (error, trace) {
            (SimulationError::Workload(WorkloadError::Row { line, field, found, expected }), Some(path)) => {
                let field = field.map_or_else(String::new, |field| format!("`{field}`: "));
                let problem = format!("{field}found {found}");
                ScenarioError::Trace { path, line, problem, hint: format!("give {expected}") }
            }
            (SimulationError::Workload(WorkloadError::Read { line, source }), Some(path)) => {
                let problem = format!("cannot read on: {source}");
                let hint = "the file may be cut off: make it again".to_owned();
                ScenarioError::Trace { path, line, problem, hint }
            }
            (SimulationError::Request { trace_line: Some(line), source, .. }, Some(path)) => {
                let message = source.to_string();
                let (problem, hint) = message.split_once("; ").unwrap_or((&message, "leave it out"));
                ScenarioError::Trace { path, line, problem: problem.to_owned(), hint: hint.to_owned() }
            }
            (error, _) => {
                let field = match error {
                    SimulationError::Deadlock { .. } => "engine.num_gpu_blocks_override",
                    _ => "workload",
                };
                self.source.field_message(field, &error.to_string())
            }
        }
    }
}

fn open(path: &Path) -> io::Result<(Counted, TraceProgress)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    let read_bytes = Arc::<AtomicU64>::default();
    let progress = TraceProgress {
        path: path.to_owned(),
        total_bytes: metadata.len(),
        read_bytes: Arc::clone(&read_bytes),
    };
    Ok((Counted { file, read_bytes }, progress))
}
