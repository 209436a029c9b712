//! From a scenario's text to a simulation.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::ScenarioError;
use super::check::check;
use super::deserialize::NodeDeserializer;
use super::engine_section::TransferSection;
use super::error::FieldError;
use super::file::{CostSection, ScenarioFile, WorkloadSection};
use super::tree::{Node, Value};
use crate::catalog::{Gpu, KvCacheSize, Model};
use crate::cost::{ConstantCost, CostModel, Profile, Roofline};
use crate::engine::EngineConfig;
use crate::engine::connector::{KvConnector, TierConfig, TieredConnector};
use crate::engine::hash::{RequestBlockHasher, init_none_hash, resolve_none_hash_seed};
use crate::engine::scheduler::Scheduler;
use crate::simulation::{
    Action, ActionKind, DraftAcceptance, Link, Replica, ReplicaConfig, Simulation, Transfers,
};
use crate::units::SimTime;
use crate::workload::chat::Chat;
use crate::workload::trace::{Trace, decompress};
use crate::workload::{ConfigError, Workload};

/// Where a scenario comes from, and what the command line changes in it.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub path: PathBuf,
    pub text: String,
    /// `path.to.field=value`.
    pub overrides: Vec<String>,
    pub seed: Option<u64>,
    /// Replaces the path of a trace workload.
    pub trace: Option<PathBuf>,
}

/// A scenario that has been understood and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    typed: Typed,
    pub file: ScenarioFile,
    pub model: Model,
    pub gpu: &'static Gpu,
    pub engine: EngineConfig,
    /// How the GPU's memory is used, if nothing overrides the number of blocks.
    pub kv_cache_size: KvCacheSize,
    /// How fast the GPU is, unless the cost is constant.
    pub profile: Profile,
}

/// Where a scenario comes from and the tree made of it, to which errors point.
#[derive(Clone, Debug)]
pub(super) struct Typed {
    pub source: Source,
    tree: Node,
}

impl Typed {
    /// An error of the field at a path, at the place where it was typed.
    pub fn wrong(&self, field: &str, message: impl ToString) -> ScenarioError {
        ScenarioError::at(&self.source.path, self.tree.locate(field), message)
    }

    /// The same from a message whose second half, after a semicolon, says what to do.
    pub fn wrong_as(&self, field: &str, message: &str) -> ScenarioError {
        match message.split_once("; ") {
            Some((problem, hint)) => self.wrong(field, problem).hint(hint),
            None => self.wrong(field, message),
        }
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

impl Scenario {
    /// Reads and checks a scenario. Opens no trace yet.
    ///
    /// # Errors
    /// The first problem, with the line to change.
    pub fn load(source: Source) -> Result<Self, ScenarioError> {
        let (tree, file) = read(&source).map_err(|error| error.in_file(&source.path))?;
        let typed = Typed { source, tree };
        let checked = check(&typed, &file)?;
        let scenario = Self {
            typed,
            file,
            model: checked.model,
            gpu: checked.gpu,
            engine: checked.engine,
            kv_cache_size: checked.kv_cache_size,
            profile: checked.profile,
        };
        scenario.trace_path()?;
        Ok(scenario)
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.file.seed
    }

    /// The scenario as it was understood, overrides and defaults filled in, as JSON.
    pub fn resolved(&self) -> String {
        serde_json::to_string(&self.file).unwrap_or_default()
    }

    /// The file of a trace workload.
    ///
    /// # Errors
    /// `--trace` beside another workload.
    pub fn trace_path(&self) -> Result<Option<PathBuf>, ScenarioError> {
        let WorkloadSection::Trace(trace) = &self.file.workload else {
            return match &self.typed.source.trace {
                Some(path) => Err(ScenarioError::new(
                    format!("--trace {}", path.display()),
                    "the scenario's workload is no trace",
                )
                .hint("leave --trace out, or take a scenario with `workload: {trace: ...}`")),
                None => Ok(None),
            };
        };
        let beside = self.typed.source.path.parent().unwrap_or(Path::new("")).join(&trace.path);
        Ok(Some(self.typed.source.trace.clone().unwrap_or(beside)))
    }

    /// Makes the simulation, and opens its trace if it has one.
    ///
    /// # Errors
    /// A trace that cannot be opened.
    pub fn build(&self) -> Result<Simulation, ScenarioError> {
        let cost = match &self.file.cost {
            Some(CostSection::Constant(constant)) => CostModel::Constant(ConstantCost {
                step_ns: constant.step_ns,
                per_token_ns: constant.per_token_ns,
            }),
            Some(CostSection::Profile(_)) | None => self.cost_with(self.profile.clone()),
        };
        self.build_with(self.workload()?, cost)
    }

    /// The cost of the scenario's model with a profile of its GPU.
    pub fn cost_with(&self, profile: Profile) -> CostModel {
        let tp = self.file.engine.tensor_parallel_size;
        CostModel::Roofline(Box::new(Roofline::new(&self.model, self.gpu, tp, profile)))
    }

    /// The same server with another load and clock.
    ///
    /// # Errors
    /// Settings that the scheduler refuses.
    pub fn build_with(
        &self,
        workload: Box<dyn Workload>,
        cost: CostModel,
    ) -> Result<Simulation, ScenarioError> {
        let seed = self.seed();
        let (_, hash_block_size) = self.engine.resolve_kv_cache_block_sizes();
        let transfers = self.file.engine.kv_transfer_config.as_ref().map(|config| self.transfers(config));
        let connector = transfers
            .as_ref()
            .map(|transfers| Box::new(transfers.connector().clone()) as Box<dyn KvConnector>);
        let is_hashed = self.engine.enable_prefix_caching || connector.is_some();
        let hasher = is_hashed.then(|| self.hasher(hash_block_size));
        let scheduler = Scheduler::new(self.engine.clone(), hasher, connector)
            .map_err(|error| self.typed.wrong_as(&format!("engine.{}", error.field), &error.to_string()))?;
        let drafts = self
            .file
            .engine
            .speculative_config
            .map(|spec| DraftAcceptance { acceptance_rate: spec.acceptance_rate, seed });
        let replica = Replica::new(ReplicaConfig { scheduler, cost, transfers, drafts });
        let actions = self.file.actions.iter().map(|action| Action {
            at: SimTime::from_secs_f64(action.at_s),
            kind: ActionKind::ResetPrefixCache {
                reset_running_requests: action.reset_prefix_cache.reset_running_requests,
                reset_external: action.reset_prefix_cache.reset_external,
            },
        });
        Ok(Simulation::new(workload, replica, actions.collect()))
    }

    /// Digests only where somebody sees them: in KV events.
    fn hasher(&self, hash_block_size: u32) -> RequestBlockHasher {
        let lookahead = self.engine.num_hash_lookahead_tokens();
        if !self.engine.enable_kv_cache_events {
            return RequestBlockHasher::identity(hash_block_size, lookahead);
        }
        let algo = self.engine.prefix_caching_hash_algo;
        let mut random = [0; 32];
        random[..8].copy_from_slice(&self.seed().to_le_bytes());
        let python_hash_seed = self.file.engine.python_hash_seed.as_deref();
        let none_hash = init_none_hash(algo, &resolve_none_hash_seed(algo, python_hash_seed, &random));
        RequestBlockHasher::digests(algo, none_hash, hash_block_size, lookahead)
    }

    fn transfers(&self, config: &TransferSection) -> Transfers {
        let tp = self.file.engine.tensor_parallel_size;
        let bytes_per_block = self.model.kv_bytes_per_token(tp) * u64::from(self.engine.block_size);
        let tiers: Vec<TierConfig> = config
            .tiers
            .iter()
            .map(|tier| TierConfig {
                kind: tier.kind,
                capacity_blocks: (tier.size_gib * GIB / (bytes_per_block * u64::from(tp)) as f64) as usize,
                eviction: tier.eviction,
            })
            .collect();
        let link = |tier: &super::TierSection| Link {
            latency: SimTime::from_secs_f64(tier.latency_us / 1e6),
            read_bytes_per_s: tier.read_gb_per_s * 1e9,
            write_bytes_per_s: tier.write_gb_per_s * 1e9,
        };
        let connector = TieredConnector::new(self.engine.block_size, &tiers);
        Transfers::new(connector, config.tiers.iter().map(link).collect(), bytes_per_block)
    }

    fn workload(&self) -> Result<Box<dyn Workload>, ScenarioError> {
        let config_error = |error: ConfigError| self.typed.wrong("workload", error);
        match &self.file.workload {
            WorkloadSection::Chat(chat) => {
                Ok(Box::new(Chat::new((**chat).clone(), self.seed()).map_err(config_error)?))
            }
            WorkloadSection::Trace(config) => {
                let path = self.trace_path()?.unwrap_or_default();
                let cannot = |error: std::io::Error| {
                    let message = format!("cannot read {}: {error}", path.display());
                    let error = match &self.typed.source.trace {
                        Some(trace) => ScenarioError::new(format!("--trace {}", trace.display()), message),
                        None => self.typed.wrong("workload.trace.path", message),
                    };
                    error.hint("give the path of a trace, relative to the scenario, or --trace FILE")
                };
                let input = decompress(File::open(&path).map_err(cannot)?).map_err(cannot)?;
                Ok(Box::new(Trace::new(input, config).map_err(config_error)?))
            }
        }
    }
}

/// The text as it was typed with the command line's changes, and what it says.
fn read(source: &Source) -> Result<(Node, ScenarioFile), FieldError> {
    let mut tree = Node::parse(&source.text)?;
    if !matches!(tree.value, Value::Map(_)) {
        return Err(FieldError {
            place: Some(tree.place),
            ..FieldError::new("found no fields", "write YAML, each field on a line `name: value`")
        });
    }
    for text in &source.overrides {
        tree.apply_override(text)?;
    }
    let mut file = ScenarioFile::deserialize(NodeDeserializer::new(&tree))?;
    file.seed = source.seed.unwrap_or(file.seed);
    Ok((tree, file))
}
