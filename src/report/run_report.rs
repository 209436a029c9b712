//! Follows a simulation and writes its folder.

use std::path::Path;

use super::blocks_csv::BlocksCsv;
use super::collector::Collector;
use super::fleet::FleetInfo;
use super::folder::Folder;
use super::json::pretty;
use super::kv_events_jsonl::KvEventsJsonl;
use super::manifest::{MANIFEST, Manifest, TraceInfo};
use super::requests_csv::RequestsCsv;
use super::run_page::{RunView, run_page};
use super::{ReportError, RunSummary, plots};
use crate::engine::connector::{TierKind, TierStats};
use crate::engine::kv_cache::{BlockEviction, ShortestHit};
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::scheduler::Scheduler;
use crate::simulation::{Observer, RequestRecord, StepRecord, StepSpan};
use crate::units::SimTime;
use crate::workload::WorkloadNotes;

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
    pub num_gpu_blocks: u32,
    pub block_size_tokens: u32,
    pub enable_prefix_caching: bool,
    pub num_kv_cache_groups: usize,
    /// What any hit takes; see `KvCacheManager::shortest_hit`.
    pub shortest_hit: ShortestHit,
    /// KV events are on and are written.
    pub kv_events: bool,
    pub tenants: Vec<String>,
    /// With several replicas.
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

    /// Of all replicas.
    pub(super) fn num_gpu_blocks(&self) -> u32 {
        self.usable_blocks().iter().map(|blocks| blocks + 1).sum()
    }
}

/// An [`Observer`] that writes `requests.csv` and `blocks.csv` while the simulation runs, and the
/// rest at its end.
pub struct RunReport {
    info: RunInfo,
    folder: Folder,
    collector: Collector,
    requests: RequestsCsv,
    blocks: BlocksCsv,
    kv_events: Option<KvEventsJsonl>,
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
        let requests = RequestsCsv::create(&open("requests.csv"), is_fleet)
            .map_err(ReportError::write("requests.csv"))?;
        let blocks =
            BlocksCsv::create(&open("blocks.csv"), is_fleet).map_err(ReportError::write("blocks.csv"))?;
        let kv_events = info
            .kv_events
            .then(|| KvEventsJsonl::create(&open("kv_events.jsonl"), is_fleet))
            .transpose()
            .map_err(ReportError::write("kv_events.jsonl"))?;
        Ok(Self { collector: Collector::new(&info), info, folder, requests, blocks, kv_events, error: None })
    }

    /// Writes what is left and puts the folder in its place.
    ///
    /// # Errors
    /// The first file that could not be written; then an older report is as it was.
    pub fn finish(
        mut self,
        tiers: &[(TierKind, TierStats)],
        workload: WorkloadNotes,
    ) -> Result<RunSummary, ReportError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.requests.finish().map_err(ReportError::write("requests.csv"))?;
        let residencies = self.blocks.finish().map_err(ReportError::write("blocks.csv"))?;
        let kv_events = self
            .kv_events
            .map(KvEventsJsonl::finish)
            .transpose()
            .map_err(ReportError::write("kv_events.jsonl"))?;
        let summary = self.collector.summary(&self.info, &residencies, tiers, kv_events, workload);
        let series = &self.collector.timeseries;
        let csv_path = self.folder.file("timeseries.csv");
        series.write(&csv_path).map_err(|error| ReportError::write(&csv_path)(csv_error(error)))?;
        self.folder.write("hit_rate.svg", &plots::hit_rate(&self.info.name, series)?)?;
        let kv_usage = plots::kv_usage(&self.info.name, series, &self.info.usable_blocks())?;
        self.folder.write("kv_usage.svg", &kv_usage)?;
        if let Some(fleet) = &summary.fleet {
            let path = self.folder.file("replicas.csv");
            fleet.write(&path).map_err(|error| ReportError::write(&path)(csv_error(error)))?;
        }
        let view = RunView { info: &self.info, summary: &summary, series: &series.coarser() };
        self.folder.write("report.html", &run_page(&view))?;
        let manifest =
            Manifest::new(&self.info.name, self.info.seed, &self.info.scenario, self.info.trace.as_ref());
        self.folder.write("summary.json", &pretty(&summary))?;
        self.folder.write(MANIFEST, &pretty(&manifest))?;
        self.folder.publish()?;
        Ok(summary)
    }

    fn keep_error(&mut self, name: &str, result: std::io::Result<()>) {
        if let Err(source) = result {
            self.error.get_or_insert_with(|| ReportError::Write { path: name.into(), source });
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
    fn on_step(&mut self, step: &StepRecord) {
        self.collector.on_step(step);
    }

    fn on_output_steps(&mut self, request: &RequestRecord, spans: &[StepSpan]) {
        self.collector.on_output_steps(request, spans);
    }

    fn on_request(&mut self, request: &RequestRecord) {
        self.collector.on_request(request);
        let written = self.requests.push(request, &self.info.tenants).map_err(csv_error);
        self.keep_error("requests.csv", written);
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
            let written = kv_events.push(replica, at, events, scheduler);
            self.keep_error("kv_events.jsonl", written);
        }
    }

    fn on_reset(&mut self, replica: u32, _at: SimTime, done: bool, num_preempted: u32) {
        self.collector.on_reset(replica, done, num_preempted);
    }
}
