//! From a scenario's text to a simulation.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::ScenarioError;
use super::cluster_section::ClusterSection;
use super::file::ScenarioFile;
use super::pool::{Pool, check_count, check_router, pools};
use super::replica::ReplicaPlace;
use super::shared_tiers::SharedTiers;
use super::template::Template;
use super::trace_progress::{CountingReader, TraceWithProgress};
use super::tree::Node;
use crate::catalog::{Gpu, KvCacheSize, MemoryConfig, Model, SizingError, size_kv_cache};
use crate::cost::{CostModel, Profile};
use crate::engine::EngineConfig;
use crate::engine::hash::RequestBlockHasher;
use crate::simulation::router::{EventSource, RouterConfig};
use crate::simulation::{Action, ActionKind, Simulation};
use crate::units::SimTime;
use crate::workload::trace::{HfTokenizer, SharedTrace, SharedTraces, Trace, TraceConfig, TraceInput};
use crate::workload::{ConfigError, TraceFile, Workload, WorkloadConfig, WorkloadError};

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
    /// Leaves out rows of the trace that cannot be read.
    pub skip_bad_rows: bool,
}

/// A scenario that has been understood and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(super) typed: Typed,
    pub file: ScenarioFile,
    pub model: Model,
    pub gpu: &'static Gpu,
    pub engine: EngineConfig,
    /// How the GPU's memory is used, if nothing overrides the number of blocks.
    pub kv_cache_size: KvCacheSize,
    /// How fast the GPU is, unless the cost is constant.
    pub profile: Profile,
    /// The kinds of replicas, one or more. Model, GPU, engine and profile above are those that the
    /// scenario gives to all, before a kind changes them.
    pub pools: Vec<Pool>,
}

/// Where a scenario comes from and the tree made of it, to which errors point.
#[derive(Clone, Debug)]
pub(super) struct Typed {
    pub source: Source,
    pub tree: Node,
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

impl Scenario {
    /// Reads and checks a scenario. Opens no trace yet.
    ///
    /// # Errors
    /// The first problem, with the line to change.
    pub fn load(source: Source) -> Result<Self, ScenarioError> {
        Template::read(source)?.scenario(&[])
    }

    /// Checks what was read.
    pub(super) fn new(typed: Typed, file: ScenarioFile) -> Result<Self, ScenarioError> {
        let (own, pools) = pools(&typed, &file)?;
        let scenario = Self {
            typed,
            file,
            model: own.model,
            gpu: own.gpu,
            engine: own.engine,
            kv_cache_size: own.kv_cache_size,
            profile: own.profile,
            pools,
        };
        scenario.trace_path()?;
        Ok(scenario)
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.file.seed
    }

    /// What would be left for KV cache on so many GPUs.
    ///
    /// # Errors
    /// The model does not fit on them, or its heads cannot be shared among them.
    pub fn kv_cache_size_at(&self, tensor_parallel_size: u32) -> Result<KvCacheSize, SizingError> {
        let memory = self.file.engine.memory_config(&self.engine);
        size_kv_cache(&self.model, self.gpu, &MemoryConfig { tensor_parallel_size, ..memory })
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
        let WorkloadConfig::Trace(trace) = &self.file.workload else {
            return match &self.typed.source.trace {
                Some(path) => Err(ScenarioError::new(
                    format!("--trace {}", path.display()),
                    "the scenario's workload is no trace",
                )
                .hint("leave --trace out, or take a scenario with `workload: {trace: ...}`")),
                None => Ok(None),
            };
        };
        let given = self.typed.source.trace.clone();
        Ok(Some(given.unwrap_or_else(|| self.beside(&trace.path))))
    }

    /// Lets the simulations made from here on have the digests of all blocks, for somebody who looks
    /// at them.
    pub fn hash_digests(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.has_digests = true);
    }

    /// Makes the simulation, and opens its trace if it has one.
    ///
    /// # Errors
    /// A trace that cannot be opened.
    pub fn build(&self) -> Result<Simulation, ScenarioError> {
        self.build_sharing(&SharedTraces::default())
    }

    /// The same, with traces that are in memory already.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_sharing(&self, traces: &SharedTraces) -> Result<Simulation, ScenarioError> {
        self.build_with(self.workload_sharing(traces)?, &Pool::cost)
    }

    /// The same servers with sessions and requests that start at `load` times their rate.
    ///
    /// # Errors
    /// The workload has no rate that could change.
    pub fn scaled(&self, load: f64) -> Result<Self, ScenarioError> {
        let mut scaled = self.clone();
        scaled.file.workload.scale_load(load).map_err(|ConfigError { field, found, expected }| {
            let path = format!("workload.{}.{field}", self.file.workload.kind());
            self.typed.wrong(&path, format!("`{field}` is {found}")).hint(format!("give {expected}"))
        })?;
        Ok(scaled)
    }

    /// The same servers with another load, and the clocks that `cost` gives to each kind of them.
    ///
    /// # Errors
    /// Settings that the scheduler refuses.
    pub fn build_with(
        &self,
        workload: Box<dyn Workload>,
        cost: &dyn Fn(&Pool) -> CostModel,
    ) -> Result<Simulation, ScenarioError> {
        let seed = self.seed();
        let links = self.pull_links();
        let router = self.router();
        let events = router.reads_events().then(|| self.event_source(&router));
        let mut replicas = Vec::with_capacity(self.num_engines());
        let mut tiers = SharedTiers::new(self);
        for (at, pool) in self.pools.iter().enumerate() {
            for nth in 0..pool.num_engines() {
                let nth = nth / pool.section.data_parallel_size;
                let index = replicas.len();
                let of_router = events.as_ref().filter(|events| events.mismatches[index].is_none());
                let of_tiers = tiers.hasher(pool).cloned();
                let place = ReplicaPlace {
                    index: index as u64,
                    hasher: of_router.map(|events| &events.hasher).or(of_tiers.as_ref()),
                    links: links.as_ref(),
                    node: (at, nth / pool.replicas_per_node.unwrap_or(u32::MAX)),
                    tiers: &mut tiers,
                };
                let replica = pool.replica(cost(pool), seed, place);
                replicas.push(replica.map_err(|error| {
                    self.typed.wrong_as(&format!("engine.{}", error.field), &error.to_string())
                })?);
            }
        }
        let actions = self.file.actions.iter().map(|action| Action {
            at: SimTime::from_secs_f64(action.at_s),
            kind: ActionKind::ResetPrefixCache {
                reset_running_requests: action.reset_prefix_cache.reset_running_requests,
                reset_external: action.reset_prefix_cache.reset_external,
            },
        });
        let events_of_decode = events.clone();
        let policy = router.build(seed, self.num_endpoints(), events);
        let actions = actions.chain(self.replica_actions()).collect();
        let simulation = Simulation::new(workload, replicas, policy, actions)
            .with_data_parallel(&self.data_parallel(), router.endpoints, seed)
            .with_router_latency(SimTime::from_secs_f64(router.latency_ms / 1e3))
            .with_metrics_interval(SimTime::from_secs_f64(router.metrics_interval_ms / 1e3));
        let simulation = match self.lifecycle() {
            Some(lifecycle) => simulation.with_lifecycle(lifecycle),
            None => simulation,
        };
        Ok(match links {
            Some(links) => simulation.with_disaggregation(self.disaggregation(links, events_of_decode)),
            None => simulation,
        })
    }

    /// The hasher that the router shares with the replicas whose hashes can equal its own.
    fn event_source(&self, router: &RouterConfig) -> EventSource {
        let hash = router.hash();
        let mismatch = |pool: &Pool| hash.mismatch(&pool.engine, pool.section.python_hash_seed.as_deref());
        let of_pool = |pool| std::iter::repeat_n(mismatch(pool), pool.num_engines() as usize);
        let mismatches = self.pools.iter().flat_map(of_pool).collect();
        let endpoint_of = self.endpoint_of();
        // Digests for all, if one of them shows them.
        let mut matching: Vec<&Pool> = self.pools.iter().filter(|pool| mismatch(pool).is_none()).collect();
        matching.sort_by_key(|pool| !pool.engine.enable_kv_cache_events);
        let hasher = match matching.first() {
            Some(pool) => pool.hasher(self.seed(), 0),
            None => RequestBlockHasher::identity(hash.block_size, 0),
        };
        EventSource { hasher, mismatches, replica_of: endpoint_of }
    }

    /// So many replicas of the first kind behind a router, and no other.
    ///
    /// # Errors
    /// As of a scenario with this `cluster`.
    pub fn with_fleet(&self, num_replicas: u32, router: &RouterConfig) -> Result<Self, ScenarioError> {
        check_count(&self.typed, "cluster.replicas", num_replicas)?;
        check_router(&self.typed, router)?;
        let mut fleet = self.clone();
        fleet.pools.truncate(1);
        for pool in &mut fleet.pools {
            (pool.num_replicas, pool.num_first, pool.autoscaler) = (num_replicas, num_replicas, None);
        }
        fleet.file.cluster = Some(ClusterSection {
            replicas: Some(num_replicas),
            replicas_per_node: self.file.cluster.as_ref().and_then(|cluster| cluster.replicas_per_node),
            router: router.clone(),
            ..ClusterSection::default()
        });
        Ok(fleet)
    }

    /// Why a router that reads KV events can never find their hashes, if that is so.
    pub(crate) fn hash_mismatch(&self, router: &RouterConfig) -> Option<String> {
        let pool = self.pools.first().filter(|_| router.reads_events())?;
        router.hash().mismatch(&pool.engine, pool.section.python_hash_seed.as_deref())
    }

    /// Of all kinds.
    pub fn num_replicas(&self) -> u32 {
        self.pools.iter().map(|pool| pool.num_replicas).sum()
    }

    pub(super) fn router(&self) -> RouterConfig {
        self.file.cluster.as_ref().map(|cluster| cluster.router.clone()).unwrap_or_default()
    }

    /// An error unless there is just one engine core, for what makes sense of one alone. `or` is what else to
    /// do.
    ///
    /// # Errors
    /// There are several replicas, or one of several ranks.
    pub(crate) fn check_alone(&self, what: &str, or: &str) -> Result<(), ScenarioError> {
        self.check_one_replica(what, or)?;
        match self.pools[0].section.data_parallel_size {
            1 => Ok(()),
            ranks => Err(self
                .typed
                .wrong(
                    "engine.data_parallel_size",
                    format!("{what} is of one engine core, and the replica has {ranks}"),
                )
                .hint("add --set engine.data_parallel_size=1 to look at one")),
        }
    }

    /// An error unless there is just one replica, of one rank or several.
    ///
    /// # Errors
    /// There are several.
    pub(crate) fn check_one_replica(&self, what: &str, or: &str) -> Result<(), ScenarioError> {
        match self.num_replicas() {
            1 => Ok(()),
            several => Err(self
                .typed
                .wrong("cluster", format!("{what} is of one replica, and the scenario has {several}"))
                .hint(format!("add --set cluster=null to look at one{or}"))),
        }
    }

    /// An error where the ranks of some replica run their steps together, for what follows one engine core
    /// alone.
    ///
    /// # Errors
    /// They do.
    pub(crate) fn check_no_lockstep(&self, what: &str) -> Result<(), ScenarioError> {
        if self.pools.iter().all(|pool| pool.lockstep().is_none()) {
            return Ok(());
        }
        let message = format!(
            "{what} follows one engine core, and the ranks of {} run theirs together",
            self.model.name
        );
        let hint = "leave it out, or add --set engine.data_parallel_size=1";
        Err(self.typed.wrong("engine.data_parallel_size", message).hint(hint))
    }

    /// Makes the workload alone, and opens its traces if it has some.
    ///
    /// # Errors
    /// A trace that cannot be opened.
    pub fn workload(&self) -> Result<Box<dyn Workload>, ScenarioError> {
        self.workload_sharing(&SharedTraces::default())
    }

    /// Reads the traces of the workload into memory, as far as they are replayed, save for those that
    /// are there.
    ///
    /// # Errors
    /// A trace that cannot be read so far.
    pub fn read_traces(&self, traces: &mut SharedTraces) -> Result<(), ScenarioError> {
        let section = format!("workload.{}", self.file.workload.kind());
        let built = self.file.workload.build(self.seed(), &mut |field, config| {
            let opened =
                self.open_trace(&format!("{section}{field}"), config, traces).map_err(Unbuilt::Named)?;
            let TraceFile { path, input, tokenizer } = opened.file;
            let shared = match traces.get(&path, config) {
                Some(shared) => shared,
                None => SharedTrace::read(input, config, tokenizer)
                    .map_err(|error| Unbuilt::Trace(path.clone(), error))?,
            };
            traces.insert(path.clone(), config, shared.clone());
            Ok(TraceFile { path, input: shared.into(), tokenizer: None })
        });
        built.map(|_| ()).map_err(|error| self.unbuilt(&section, error))
    }

    pub(crate) fn workload_sharing(&self, traces: &SharedTraces) -> Result<Box<dyn Workload>, ScenarioError> {
        let workload = &self.file.workload;
        if let WorkloadConfig::Trace(config) = workload {
            return Ok(Box::new(self.trace(config, traces)?));
        }
        let section = format!("workload.{}", workload.kind());
        let built = workload.build(self.seed(), &mut |field, config| {
            let opened =
                self.open_trace(&format!("{section}{field}"), config, traces).map_err(Unbuilt::Named)?;
            Ok(opened.file)
        });
        built.map_err(|error| self.unbuilt(&section, error))
    }

    fn trace(
        &self,
        config: &TraceConfig,
        traces: &SharedTraces,
    ) -> Result<TraceWithProgress<Trace>, ScenarioError> {
        let OpenedTrace { file, num_bytes, num_bytes_read } =
            self.open_trace("workload.trace", config, traces)?;
        let TraceFile { path, input, tokenizer } = file;
        let trace = Trace::new(input, config, tokenizer, self.seed()).map_err(|error| {
            let error = match error {
                WorkloadError::Config(error) => Unbuilt::Config(error),
                error => Unbuilt::Trace(path, error),
            };
            self.unbuilt("workload.trace", error)
        })?;
        let max_requests = config.max_requests;
        Ok(TraceWithProgress { trace, num_bytes_read, num_bytes, num_requests: 0, max_requests })
    }

    fn unbuilt(&self, section: &str, error: Unbuilt) -> ScenarioError {
        match error {
            Unbuilt::Named(error) => error,
            Unbuilt::Config(ConfigError { field, found, expected }) => self
                .typed
                .wrong(&format!("{section}.{field}"), format!("`{field}` is {found}"))
                .hint(format!("give {expected}")),
            Unbuilt::Trace(path, error) => ScenarioError::new(path, error),
        }
    }

    /// Opens the trace at a field, if it is not there already.
    fn open_trace(
        &self,
        field: &str,
        config: &TraceConfig,
        traces: &SharedTraces,
    ) -> Result<OpenedTrace, ScenarioError> {
        // Only the workload as a whole can be another.
        let given = self.typed.source.trace.as_ref();
        let path = given.cloned().unwrap_or_else(|| self.beside(&config.path));
        if let Some(shared) = traces.get(&path, config) {
            let file = TraceFile { path, input: shared.into(), tokenizer: None };
            return Ok(OpenedTrace { file, num_bytes: 0, num_bytes_read: Arc::default() });
        }
        let cannot = |error: std::io::Error| {
            let message = format!("cannot read {}: {error}", path.display());
            let error = match given {
                Some(given) => ScenarioError::new(format!("--trace {}", given.display()), message),
                None => self.typed.wrong(&format!("{field}.path"), message),
            };
            let or = if field == "workload.trace" { ", or --trace FILE" } else { "" };
            error.hint(format!("give the path of a trace, relative to the scenario{or}"))
        };
        let there = std::fs::metadata(&path).map_err(cannot)?;
        // A second reader of a pipe finds nothing, or waits without end.
        if !there.is_file() && !there.is_dir() {
            let message =
                format!("{} is a pipe or a device, but a trace is read more than once", path.display());
            return Err(match given {
                Some(given) => ScenarioError::new(format!("--trace {}", given.display()), message),
                None => self.typed.wrong(&format!("{field}.path"), message),
            }
            .hint("save it to a file first"));
        }
        let num_bytes = there.len();
        let file = File::open(&path).map_err(cannot)?;
        let num_bytes_read = Arc::<AtomicU64>::default();
        let reader = CountingReader { inner: file, num_bytes: Arc::clone(&num_bytes_read) };
        let input = TraceInput::new(reader).map_err(cannot)?;
        let tokenizer = config.text.tokenizer.as_ref().map(|path| self.tokenizer(field, path)).transpose()?;
        Ok(OpenedTrace { file: TraceFile { path, input, tokenizer }, num_bytes, num_bytes_read })
    }

    /// Reads the tokenizer of the trace at a field.
    fn tokenizer(&self, trace: &str, path: &Path) -> Result<HfTokenizer, ScenarioError> {
        let field = format!("{trace}.text.tokenizer");
        let beside = self.beside(path);
        let json = std::fs::read(&beside).map_err(|error| {
            self.typed
                .wrong(&field, format!("cannot read {}: {error}", beside.display()))
                .hint("give the path of a Hugging Face tokenizer.json, relative to the scenario")
        })?;
        HfTokenizer::new(&path.to_string_lossy(), &json)
            .map_err(|problem| self.typed.wrong(&field, problem).hint("give a Hugging Face tokenizer.json"))
    }

    /// A path that is relative to the scenario.
    fn beside(&self, path: &Path) -> PathBuf {
        self.typed.source.path.parent().unwrap_or(Path::new("")).join(path)
    }
}

/// A trace that tells how far it has been read.
struct OpenedTrace {
    file: TraceFile,
    num_bytes: u64,
    num_bytes_read: Arc<AtomicU64>,
}

/// Why a workload cannot be built.
enum Unbuilt {
    Config(ConfigError),
    /// A trace that is not what it should be.
    Trace(PathBuf, WorkloadError),
    /// Known with its place.
    Named(ScenarioError),
}

impl From<ConfigError> for Unbuilt {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<WorkloadError> for Unbuilt {
    fn from(error: WorkloadError) -> Self {
        match error {
            WorkloadError::Config(error) => Self::Config(error),
            WorkloadError::InFile { path, source } => Self::Trace(path, *source),
            error => Self::Trace(PathBuf::from("workload"), error),
        }
    }
}
