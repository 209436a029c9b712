//! Follows a simulation and writes its folder.

use std::path::Path;

use super::blocks_csv::BlocksCsv;
use super::collector::Collector;
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
    pub num_gpu_blocks: u32,
    pub block_size_tokens: u32,
    pub enable_prefix_caching: bool,
    pub num_kv_cache_groups: usize,
    /// What any hit takes; see `KvCacheManager::shortest_hit`.
    pub shortest_hit: ShortestHit,
    /// KV events are on and are written.
    pub kv_events: bool,
    pub tenants: Vec<String>,
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
        let requests =
            RequestsCsv::create(&open("requests.csv")).map_err(ReportError::write("requests.csv"))?;
        let blocks = BlocksCsv::create(&open("blocks.csv")).map_err(ReportError::write("blocks.csv"))?;
        let kv_events = info
            .kv_events
            .then(|| KvEventsJsonl::create(&open("kv_events.jsonl")))
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
        let kv_usage = plots::kv_usage(&self.info.name, series, self.info.num_gpu_blocks)?;
        self.folder.write("kv_usage.svg", &kv_usage)?;
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

    fn on_evictions(&mut self, evictions: &[BlockEviction]) {
        self.collector.on_evictions(evictions);
        self.blocks.push(evictions);
    }

    fn on_reuse_gaps(&mut self, gaps_ns: &[u64]) {
        self.collector.on_reuse_gaps(gaps_ns);
    }

    fn on_kv_events(&mut self, at: SimTime, events: &[KvCacheEvent], scheduler: &Scheduler) {
        if let Some(kv_events) = &mut self.kv_events {
            let written = kv_events.push(at, events, scheduler);
            self.keep_error("kv_events.jsonl", written);
        }
    }

    fn on_reset(&mut self, _at: SimTime, done: bool, num_preempted: u32) {
        self.collector.on_reset(done, num_preempted);
    }
}
