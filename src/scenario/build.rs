//! From a scenario's text to a simulation.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::engine_section::TransferSection;
use super::file::{CostSection, ScenarioFile, WorkloadSection};
use super::{ScenarioError, hints, locate, overrides};
use crate::catalog::{Gpu, KvCacheSize, MemoryConfig, Model, parse_hf_config, size_kv_cache};
use crate::cost::{Coefficients, ConstantCost, CostModel, Roofline};
use crate::engine::EngineConfig;
use crate::engine::connector::{KvConnector, TierConfig, TieredConnector};
use crate::engine::hash::{RequestBlockHasher, init_none_hash, resolve_none_hash_seed};
use crate::engine::kv_cache::KvCacheSpec;
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
    source: Source,
    pub file: ScenarioFile,
    pub model: Model,
    pub gpu: &'static Gpu,
    pub engine: EngineConfig,
    /// How the GPU's memory is used; `None` with `num_gpu_blocks_override`.
    pub kv_cache_size: Option<KvCacheSize>,
}

const GIB: f64 = (1_u64 << 30) as f64;

impl Scenario {
    /// Reads and checks a scenario. Opens no trace yet.
    ///
    /// # Errors
    /// The first problem, with the line to change.
    pub fn load(source: Source) -> Result<Self, ScenarioError> {
        let file = parse(&source)?;
        let scenario = Self::check(source, file)?;
        Ok(scenario)
    }

    fn check(source: Source, file: ScenarioFile) -> Result<Self, ScenarioError> {
        let wrong = |path: &str, message: String| {
            ScenarioError::new(&source.path, message).at(locate::line_of(&source.text, path))
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if file.name.is_empty() || file.name.starts_with('.') || !file.name.chars().all(is_name) {
            return Err(wrong("name", format!("`name` is {:?}, which cannot name a folder", file.name))
                .hint("use letters, digits, `_` and `-`"));
        }
        let model = find_model(&source.path, &file.model).map_err(|message| wrong("model", message))?;
        let model = file.engine.served(model);
        let gpu = Gpu::find(&file.gpu).map_err(|error| wrong("gpu", error.to_string()))?;
        let mut engine = file.engine.to_config(&model, gpu);
        if engine.max_model_len > model.max_position_embeddings {
            let message = format!(
                "max_model_len is {}, but {} was made for {} tokens",
                engine.max_model_len, model.name, model.max_position_embeddings
            );
            return Err(wrong("engine.max_model_len", message).hint("lower it"));
        }
        if engine.block_size == 0 {
            return Err(wrong("engine.block_size", "block_size is 0".into()).hint("give 16 or another size"));
        }
        let kv_cache_size = match file.engine.num_gpu_blocks_override {
            Some(_) => None,
            None => {
                let memory = MemoryConfig {
                    gpu_memory_utilization: file.engine.gpu_memory_utilization,
                    tensor_parallel_size: file.engine.tensor_parallel_size,
                    block_size: engine.block_size,
                    max_num_batched_tokens: engine.max_num_batched_tokens,
                    max_num_seqs: engine.max_num_seqs,
                    estimate_cudagraphs: !file.engine.enforce_eager,
                };
                let size = size_kv_cache(&model, gpu, &memory)
                    .map_err(|error| wrong("engine.tensor_parallel_size", error.to_string()))?;
                engine.num_gpu_blocks = size.num_gpu_blocks;
                Some(size)
            }
        };
        engine.validate().map_err(|error| {
            wrong(
                &format!("engine.{}", field_name(error.field)),
                format!("{}: {}", error.field, error.problem),
            )
            .hint(error.hint)
        })?;
        check_one_request_fits(&engine).map_err(|message| {
            wrong("engine.max_model_len", message).hint(
                "lower max_model_len, or give the cache more memory: a larger GPU, more tensor_parallel_size",
            )
        })?;
        let chat_or_trace = match &file.workload {
            WorkloadSection::Trace(trace) => trace.validate().map_err(|error| ("workload.trace", error)),
            WorkloadSection::Chat(chat) => chat.validate().map_err(|error| ("workload.chat", error)),
        };
        chat_or_trace.map_err(|(section, ConfigError { field, found, expected })| {
            wrong(&format!("{section}.{field}"), format!("`{field}` is {found}"))
                .hint(format!("give {expected}"))
        })?;
        if let WorkloadSection::Chat(chat) = &file.workload
            && chat.max_context_tokens > engine.max_model_len
        {
            let message = format!(
                "sessions grow to max_context_tokens ({}), which is more than max_model_len ({})",
                chat.max_context_tokens, engine.max_model_len
            );
            return Err(wrong("workload.chat.max_context_tokens", message)
                .hint(format!("give {} or less", engine.max_model_len)));
        }
        for (path, is_good, hint) in range_checks(&file) {
            if !is_good {
                return Err(wrong(path, format!("`{path}` is out of range")).hint(hint));
            }
        }
        if file.engine.kv_transfer_config.is_some()
            && !matches!(engine.kv_cache_groups[..], [KvCacheSpec::FullAttention { .. }])
        {
            return Err(wrong(
                "engine.kv_transfer_config",
                "tiers hold blocks of one group of full attention only".into(),
            )
            .hint("leave kv_transfer_config out, or take a model without other kinds of layers"));
        }
        let scenario = Self { source, file, model, gpu, engine, kv_cache_size };
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
            return match &self.source.trace {
                Some(path) => Err(ScenarioError::new(
                    format!("--trace {}", path.display()),
                    "the scenario's workload is no trace",
                )
                .hint("leave --trace out, or take a scenario with `workload: {trace: ...}`")),
                None => Ok(None),
            };
        };
        let beside = self.source.path.parent().unwrap_or(Path::new("")).join(&trace.path);
        Ok(Some(self.source.trace.clone().unwrap_or(beside)))
    }

    /// Makes the simulation, and opens its trace if it has one.
    ///
    /// # Errors
    /// A trace that cannot be opened.
    pub fn build(&self) -> Result<Simulation, ScenarioError> {
        let seed = self.seed();
        let wrong = |path: &str, message: String| {
            ScenarioError::new(&self.source.path, message).at(locate::line_of(&self.source.text, path))
        };
        let (_, hash_block_size) = self.engine.resolve_kv_cache_block_sizes();
        let transfers = self.file.engine.kv_transfer_config.as_ref().map(|config| self.transfers(config));
        let connector = transfers
            .as_ref()
            .map(|transfers| Box::new(transfers.connector().clone()) as Box<dyn KvConnector>);
        let is_hashed = self.engine.enable_prefix_caching || connector.is_some();
        let hasher = is_hashed.then(|| self.hasher(hash_block_size));
        let scheduler = Scheduler::new(self.engine.clone(), hasher, connector)
            .map_err(|error| wrong(&format!("engine.{}", error.field), error.to_string()))?;
        let cost = match self.file.cost {
            Some(CostSection::Constant(constant)) => CostModel::Constant(ConstantCost {
                step_ns: constant.step_ns,
                per_token_ns: constant.per_token_ns,
            }),
            None => {
                let coefficients =
                    Coefficients::built_in(self.gpu).map_err(|error| wrong("gpu", error.to_string()))?;
                let tp = self.file.engine.tensor_parallel_size;
                CostModel::Roofline(Box::new(Roofline::new(&self.model, self.gpu, tp, &coefficients)))
            }
        };
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
            },
        });
        Ok(Simulation::new(self.workload()?, replica, actions.collect()))
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
        let config_error = |error: ConfigError| ScenarioError::new(&self.source.path, error);
        match &self.file.workload {
            WorkloadSection::Chat(chat) => {
                Ok(Box::new(Chat::new((**chat).clone(), self.seed()).map_err(config_error)?))
            }
            WorkloadSection::Trace(config) => {
                let path = self.trace_path()?.unwrap_or_default();
                let line = locate::line_of(&self.source.text, "workload.trace.path");
                let cannot = |error: std::io::Error| {
                    ScenarioError::new(&self.source.path, format!("cannot read {}: {error}", path.display()))
                        .at(line)
                        .hint("give the path of a trace, relative to the scenario, or --trace FILE")
                };
                let input = decompress(File::open(&path).map_err(cannot)?).map_err(cannot)?;
                Ok(Box::new(Trace::new(input, config).map_err(config_error)?))
            }
        }
    }
}

/// The text as it was typed, then with the command line's changes.
fn parse(source: &Source) -> Result<ScenarioFile, ScenarioError> {
    let yaml_error = |error: serde_yaml::Error| {
        let (line, column) = error
            .location()
            .map_or((None, None), |at| (Some(at.line() as usize), Some(at.column() as usize)));
        let message = message_of(&error.to_string());
        let hint = hints::hint(&message);
        ScenarioError { source: source.path.clone(), line, column, message, hint }
    };
    // Read as typed first, so that errors have their lines.
    let typed = serde_yaml::from_str::<ScenarioFile>(&source.text);
    if source.overrides.is_empty() {
        let mut file = typed.map_err(yaml_error)?;
        file.seed = source.seed.unwrap_or(file.seed);
        return Ok(file);
    }
    let mut document: Value = serde_yaml::from_str(&source.text).map_err(yaml_error)?;
    overrides::apply(&mut document, &source.overrides)?;
    let mut file: ScenarioFile = serde_json::from_value(document).map_err(|error| {
        // A field may be missing or wrong in the file and right by an override, so only what is left
        // counts.
        let message = error.to_string();
        match typed {
            Err(typed) if message_of(&typed.to_string()) == message => yaml_error(typed),
            _ => {
                let hint = hints::hint(&message);
                let from =
                    format!("{} with --set {}", source.path.display(), source.overrides.join(" --set "));
                ScenarioError { source: from.into(), line: None, column: None, message, hint }
            }
        }
    })?;
    file.seed = source.seed.unwrap_or(file.seed);
    Ok(file)
}

/// The message of a YAML error without its position and the excerpt.
fn message_of(error: &str) -> String {
    let first = error.lines().next().unwrap_or_default();
    let message = first.split_once(" column ").and_then(|(_, rest)| rest.split_once(": ")).map(|(_, m)| m);
    message.unwrap_or(first).to_owned()
}

/// A built-in model, or the config.json at a path relative to the scenario.
fn find_model(scenario: &Path, name: &str) -> Result<Model, String> {
    if !name.ends_with(".json") {
        return Model::find(name)
            .map_err(|error| format!("{error}; or give the path of a Hugging Face config.json"));
    }
    let path = scenario.parent().unwrap_or(Path::new("")).join(name);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read the model's {}: {error}", path.display()))?;
    let stem = path.parent().and_then(Path::file_name).unwrap_or(path.as_os_str());
    parse_hf_config(&stem.to_string_lossy(), &text).map_err(|error| error.to_string())
}

/// The engine's name for a setting to the one that is typed.
fn field_name(field: &str) -> &str {
    match field {
        "num_gpu_blocks" => "num_gpu_blocks_override",
        "speculative" => "speculative_config",
        "policy" => "scheduling_policy",
        other => other,
    }
}

/// vLLM starts only if one request of `max_model_len` tokens fits.
fn check_one_request_fits(engine: &EngineConfig) -> Result<(), String> {
    let needed: u32 = engine
        .kv_cache_groups
        .iter()
        .map(|spec| {
            let all = engine.max_model_len.div_ceil(engine.group_block_size(spec));
            let cap =
                spec.max_admission_blocks_per_request(engine.max_in_flight_tokens(), engine.max_model_len);
            if spec.is_mamba() { 2 } else { cap.map_or(all, |cap| cap.min(all)) }
        })
        .sum();
    // Block 0 is the null block.
    let usable = engine.num_gpu_blocks - 1;
    if needed > usable {
        return Err(format!(
            "a request of max_model_len ({}) tokens needs {needed} blocks, but the cache has {usable}",
            engine.max_model_len
        ));
    }
    Ok(())
}

/// Numbers that the types alone do not bound: where, whether it is good, and what to give.
fn range_checks(file: &ScenarioFile) -> Vec<(&'static str, bool, &'static str)> {
    let mut checks = Vec::new();
    if let Some(spec) = file.engine.speculative_config {
        let rate = spec.acceptance_rate;
        checks.push((
            "engine.speculative_config.acceptance_rate",
            (0.0..=1.0).contains(&rate),
            "give a chance from 0 to 1",
        ));
    }
    for action in &file.actions {
        checks.push(("actions.at_s", (0.0..=1e9).contains(&action.at_s), "give seconds of 0 or more"));
    }
    if let Some(transfer) = &file.engine.kv_transfer_config {
        let path = "engine.kv_transfer_config.tiers";
        checks.push((path, !transfer.tiers.is_empty(), "give at least one tier"));
        for tier in &transfer.tiers {
            let speeds = [tier.read_gb_per_s, tier.write_gb_per_s];
            let is_good = (0.0..=1e9).contains(&tier.size_gib)
                && speeds.iter().all(|speed| (1e-6..=1e6).contains(speed))
                && (0.0..=1e9).contains(&tier.latency_us);
            checks.push((path, is_good, "give a size and a latency of 0 or more, and speeds above 0"));
        }
    }
    checks
}
