//! Follows a simulation and writes its folder.

use std::path::Path;

use super::blocks_csv::BlocksCsv;
use super::collector::Collector;
use super::explorer::{ExploreOptions, Recorder};
use super::fleet::{self, FleetInfo};
use super::folder::Folder;
use super::followers::Followers;
use super::goodput::GoodputLimits;
use super::json::pretty;
use super::kv_events_jsonl::KvEventsJsonl;
use super::manifest::{MANIFEST, Manifest, TraceInfo};
use super::requests_csv::{self, RequestsCsv};
use super::run_page::{RunView, hit_rate_svg, kv_usage_svg, run_page};
use super::step_timeline::StepTimeline;
use super::trace_events::{TraceEvents, TraceEventsOptions, TraceNames};
use super::{ReportError, RunSummary, timeseries};
use crate::engine::connector::TierKind;
use crate::engine::kv_cache::{BlockEviction, JournalEntry, ShortestHit};
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::scheduler::Scheduler;
use crate::simulation::{
    EngineCall, Observer, PullRecord, ReplicaState, RequestRecord, RunEnding, ServerLoss, Simulation,
    StepRecord, StepSpan, TransferRecord,
};
use crate::units::SimTime;

const REQUESTS: &str = "requests.csv";
const BLOCKS: &str = "blocks.csv";
const KV_EVENTS: &str = "kv_events.jsonl";

/// What a report says of the run that the simulation does not tell.
#[derive(Clone, Debug)]
pub struct RunInfo {
    pub name: String,
    pub seed: u64,
    /// The scenario with defaults and overrides, as JSON.
    pub scenario: String,
    pub trace: Option<TraceInfo>,
    pub model: String,
    pub gpu: String,
    pub tensor_parallel_size: u32,
    /// Of the scenario's own kind of replica.
    pub gpus_per_replica: u32,
    /// Of the scenario's own kind of replica.
    pub num_gpu_blocks: u32,
    pub block_size_tokens: u32,
    pub enable_prefix_caching: bool,
    pub num_kv_cache_groups: usize,
    /// What any hit takes; see `KvCacheManager::shortest_hit`.
    pub shortest_hit: ShortestHit,
    /// KV events are on and are written.
    pub kv_events: bool,
    /// `blocks.csv` and `blocks.parquet` are written.
    pub blocks: bool,
    pub tenants: Vec<String>,
    /// Why nothing of what replicas store in common tiers is hit by others, if that is so.
    pub not_shared_because: Option<String>,
    /// What the times and the number of blocks rest on where nothing was measured.
    pub caveats: Vec<String>,
    /// What users are promised.
    pub goodput: Option<GoodputLimits>,
    /// With several replicas, or one of several data-parallel ranks.
    pub fleet: Option<FleetInfo>,
}

impl RunInfo {
    /// Of each replica, without its null block.
    pub(super) fn usable_blocks(&self) -> Vec<u32> {
        match &self.fleet {
            Some(fleet) => fleet.replicas.iter().map(|replica| replica.num_gpu_blocks - 1).collect(),
            None => vec![self.num_gpu_blocks - 1],
        }
    }

    /// Of all ranks of all replicas.
    pub(super) fn num_gpus(&self) -> u32 {
        match &self.fleet {
            Some(fleet) => fleet.replicas.iter().map(|replica| replica.num_gpus).sum(),
            None => self.gpus_per_replica,
        }
    }

    /// Of all replicas.
    pub(super) fn num_gpu_blocks(&self) -> u32 {
        self.usable_blocks().iter().map(|blocks| blocks + 1).sum()
    }
}

/// An [`Observer`] that writes `requests.csv`, `blocks.csv` and `blocks.parquet` while the simulation runs, and the
/// rest at its end.
pub struct RunReport {
    info: RunInfo,
    folder: Folder,
    collector: Collector,
    requests: RequestsCsv,
    blocks: BlocksCsv,
    kv_events: Option<KvEventsJsonl>,
    timeline: StepTimeline,
    followers: Followers,
    /// The first thing that went wrong in a call that can return nothing.
    error: Option<ReportError>,
}

impl RunReport {
    /// Begins a report; `target` is its folder, which does not change before [`Self::finish`].
    ///
    /// # Errors
    /// The folder holds something else, or cannot be written.
    pub fn create(target: &Path, info: RunInfo) -> Result<Self, ReportError> {
        let folder = Folder::create(target)?;
        let open = |name: &str| folder.file(name);
        let is_fleet = info.fleet.is_some();
        let num_replicas = info.usable_blocks().len();
        let [requests_path, blocks_path, kv_events_path] = [REQUESTS, BLOCKS, KV_EVENTS].map(open);
        let requests = RequestsCsv::create(&requests_path, info.fleet.as_ref())
            .map_err(ReportError::write(&requests_path))?;
        let blocks = BlocksCsv::create(info.blocks.then_some(&*blocks_path), is_fleet)
            .map_err(ReportError::write(&blocks_path))?;
        let kv_events = info
            .kv_events
            .then(|| KvEventsJsonl::create(&kv_events_path))
            .transpose()
            .map_err(ReportError::write(&kv_events_path))?;
        Ok(Self {
            collector: Collector::new(&info),
            info,
            folder,
            requests,
            blocks,
            kv_events,
            timeline: StepTimeline::new(num_replicas),
            followers: Followers::default(),
            error: None,
        })
    }

    /// Writes a trace of events too; `tiers` are those of the run.
    ///
    /// # Errors
    /// Its file cannot be written.
    pub fn trace_events(
        &mut self,
        options: &TraceEventsOptions,
        tiers: &[TierKind],
    ) -> Result<(), ReportError> {
        let names = TraceNames {
            scenario: &self.info.name,
            seed: self.info.seed,
            tiers,
            replicas: match &self.info.fleet {
                Some(fleet) => fleet.replicas.iter().map(ToString::to_string).collect(),
                None => vec!["0".to_owned()],
            },
            usable_blocks: self.info.usable_blocks(),
        };
        let trace_events = TraceEvents::create(options, &self.folder.file(""), &names)?;
        self.followers.trace_events = Some(trace_events);
        Ok(())
    }

    /// Records a part of what one replica does, whose engine is followed from here on, for the block
    /// explorer. Nothing is recorded of a replica that there is not.
    pub fn explore(&mut self, options: ExploreOptions, simulation: &mut Simulation) {
        simulation.follow_engine();
        if let Some(replica) = simulation.replicas().nth(options.replica as usize) {
            self.followers.explorer = Some(Recorder::new(options, replica.scheduler()));
        }
    }

    /// Writes what is left and puts the folder in its place.
    ///
    /// # Errors
    /// The first file that could not be written; then an older report is as it was.
    pub fn finish(mut self, ending: RunEnding) -> Result<RunSummary, ReportError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let path_of = |name: &str| self.folder.file(name);
        self.requests.finish().map_err(ReportError::write(&path_of(REQUESTS)))?;
        let columns = requests_csv::columns(self.info.fleet.as_ref());
        self.folder.parquet_beside(REQUESTS, &columns)?;
        let residencies = self.blocks.finish().map_err(ReportError::write(&path_of(BLOCKS)))?;
        let kv_events = self
            .kv_events
            .map(KvEventsJsonl::finish)
            .transpose()
            .map_err(ReportError::write(&path_of(KV_EVENTS)))?;
        let summary = self.collector.summary(&self.info, &residencies, kv_events, ending);
        let series = &self.collector.timeseries;
        let csv_path = self.folder.file("timeseries.csv");
        series.write(&csv_path).map_err(|error| ReportError::write(&csv_path)(csv_error(error)))?;
        self.folder.parquet_beside("timeseries.csv", &timeseries::COLUMNS)?;
        if let Some(fleet) = &summary.fleet {
            let path = self.folder.file("replicas.csv");
            fleet.write(&path).map_err(|error| ReportError::write(&path)(csv_error(error)))?;
            self.folder.parquet_beside("replicas.csv", &fleet::COLUMNS)?;
        }
        let spreads = self.collector.spreads(residencies);
        let view = RunView {
            info: &self.info,
            summary: &summary,
            series: &self.collector.timeseries.coarser(),
            spreads: &spreads,
            timeline: &self.timeline,
            lifecycle: self.collector.lifecycle(),
            pulls: self.collector.pulls(),
            more_files: self.followers.files(),
        };
        self.folder.write("hit_rate.svg", &hit_rate_svg(&view))?;
        self.folder.write("kv_usage.svg", &kv_usage_svg(&view))?;
        self.folder.write("report.html", &run_page(&view))?;
        let manifest =
            Manifest::new(&self.info.name, self.info.seed, &self.info.scenario, self.info.trace.as_ref());
        self.folder.write("summary.json", &pretty(&summary))?;
        self.folder.write(MANIFEST, &pretty(&manifest))?;
        self.followers.finish(&self.folder, &self.info)?;
        self.folder.publish()?;
        Ok(summary)
    }

    fn keep_error(&mut self, name: &str, result: std::io::Result<()>) {
        if let Err(source) = result {
            let path = self.folder.file(name);
            self.error.get_or_insert(ReportError::Write { path, source });
        }
    }
}

fn csv_error(error: csv::Error) -> std::io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        other => std::io::Error::other(format!("{other:?}")),
    }
}

impl Observer for RunReport {
    fn on_engine_call(
        &mut self,
        replica: u32,
        at: SimTime,
        call: EngineCall<'_>,
        journal: &[JournalEntry],
        scheduler: &Scheduler,
    ) {
        self.followers.on_engine_call(replica, at, call, journal, scheduler);
    }

    fn on_transfer(&mut self, replica: u32, transfer: &TransferRecord) {
        self.followers.on_transfer(replica, transfer);
    }

    fn on_step(&mut self, step: &StepRecord) {
        self.collector.on_step(step);
        self.timeline.on_step(step);
        self.followers.on_step(step);
    }

    fn on_output_steps(&mut self, request: &RequestRecord, spans: &[StepSpan]) {
        self.collector.on_output_steps(request, spans);
    }

    fn on_request(&mut self, request: &RequestRecord) {
        self.collector.on_request(request);
        self.followers.on_request(request, &self.info.tenants);
        let written =
            self.requests.push(request, &self.info.tenants, self.info.fleet.as_ref()).map_err(csv_error);
        self.keep_error(REQUESTS, written);
    }

    fn on_evictions(&mut self, replica: u32, evictions: &[BlockEviction]) {
        self.collector.on_evictions(replica, evictions);
        self.blocks.push(replica, evictions);
    }

    fn on_reuse_gaps(&mut self, _replica: u32, gaps_ns: &[u64]) {
        self.collector.on_reuse_gaps(gaps_ns);
    }

    fn on_kv_events(&mut self, replica: u32, at: SimTime, events: &[KvCacheEvent], scheduler: &Scheduler) {
        if let Some(kv_events) = &mut self.kv_events {
            let sender = self.info.fleet.as_ref().and_then(|fleet| fleet.replicas.get(replica as usize));
            let written = kv_events.push(sender, at, events, scheduler);
            self.keep_error(KV_EVENTS, written);
        }
    }

    fn on_prefill(&mut self, replica: u32, num_prompt_tokens: u32) {
        self.collector.on_prefill(replica, num_prompt_tokens);
    }

    fn on_pull(&mut self, _replica: u32, pull: &PullRecord) {
        self.collector.on_pull(pull);
    }

    fn on_replica_state(&mut self, replica: u32, at: SimTime, state: ReplicaState) {
        self.collector.on_replica_state(replica, at, state);
        for engine in self.info.fleet.iter().flat_map(|fleet| fleet.engines(replica)) {
            self.followers.on_replica_state(engine, at, state);
        }
    }

    fn on_failure(&mut self, loss: &ServerLoss) {
        self.collector.on_failure(loss);
    }

    fn on_reset(&mut self, replica: u32, _at: SimTime, done: bool, num_preempted: u32) {
        self.collector.on_reset(replica, done, num_preempted);
    }
}
