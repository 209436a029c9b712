//! Runs the points of a sweep, several at a time.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use rayon::prelude::*;
use serde_json::{Map, Value};

use super::SweepError;
use super::header::{Header, RunKey, SweepRuns};
use super::load::Sweep;
use super::plan::{Outcome, Row, Shard};
use super::results::Results;
use crate::report::{RunFigures, RunReport, RunSummary, number_at};
use crate::scenario::Scenario;
use crate::study::journal::{Journal, JournalError};

/// Reports of single runs lie in this folder.
pub(super) const REPORTS: &str = "reports";

/// How a sweep runs; none of it changes a result.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where the journal and the results go.
    pub folder: PathBuf,
    pub shard: Shard,
    /// Forgets what the folder holds of an earlier start.
    pub restart: bool,
    /// Writes a report of each run.
    pub reports: bool,
    /// 0 for as many as there are processors.
    pub threads: usize,
}

/// Tells whoever waits how far a sweep is.
pub trait Progress {
    /// So many of all runs of this shard were finished by an earlier start.
    fn begin(&mut self, done: usize, all: usize) -> std::io::Result<()>;
    /// A run is finished and safe.
    fn row(&mut self, row: &Row) -> std::io::Result<()>;
}

impl Sweep {
    /// Runs what is left to run. `None` of a shard, whose results are those of all shards together.
    ///
    /// # Errors
    /// The folder is that of something else, or cannot be written. What has finished is kept.
    pub fn run(
        &self,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Option<Results>, SweepError> {
        let header = Header { shard: options.shard, reports: options.reports, plan: self.plan.clone() };
        let mut journal = Journal::<SweepRuns>::open(&options.folder, &header, options.restart)?;
        let points = (0..self.plan.points.len()).filter(|&point| options.shard.has(point));
        let all: Vec<RunKey> = points
            .flat_map(|point| (0..self.plan.replications).map(move |replication| (point, replication)))
            .collect();
        let left: Vec<RunKey> = all.iter().copied().filter(|key| !journal.rows.contains_key(key)).collect();
        let stdout = || SweepError::write(Path::new("stdout"));
        progress.begin(all.len() - left.len(), all.len()).map_err(stdout())?;
        let reports = options.reports.then(|| options.folder.join(REPORTS));
        self.run_all(left, reports.as_deref(), options.threads, &mut |rows| {
            journal.append(rows)?;
            rows.iter().try_for_each(|row| progress.row(row)).map_err(stdout())
        })?;
        if options.shard != Shard::ALL {
            return Ok(None);
        }
        let results = Results::new(&self.plan, std::mem::take(&mut journal.rows));
        results.write(&options.folder, options.reports)?;
        Ok(Some(results))
    }

    /// Runs all points of another study; the rows are in the order of the points. What an earlier start of
    /// the same has left in the journal of `folder` is not run again; anything else there gives way.
    ///
    /// # Errors
    /// The folder holds something else or cannot be written, or so many threads cannot be started.
    pub(in crate::study) fn rows(
        &self,
        folder: &Path,
        threads: usize,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Row>, SweepError> {
        let header = Header { shard: Shard::ALL, reports: false, plan: self.plan.clone() };
        let mut journal = match Journal::<SweepRuns>::open(folder, &header, false) {
            Err(JournalError::Changed { .. } | JournalError::Damaged { .. }) => {
                Journal::open(folder, &header, true)?
            }
            journal => journal?,
        };
        let all = (0..self.plan.points.len()).map(|point| (point, 0));
        let left: Vec<RunKey> = all.filter(|key| !journal.rows.contains_key(key)).collect();
        let num_points = self.plan.points.len();
        let stdout = || SweepError::write(Path::new("stdout"));
        progress.begin(num_points - left.len(), num_points).map_err(stdout())?;
        self.run_all(left, None, threads, &mut |rows| {
            journal.append(rows)?;
            rows.iter().try_for_each(|row| progress.row(row)).map_err(stdout())
        })?;
        let mut rows: Vec<Row> = std::mem::take(&mut journal.rows).into_values().collect();
        rows.sort_by_key(|row| row.point);
        Ok(rows)
    }

    /// Runs in the order of the list, and hands on what has finished.
    fn run_all(
        &self,
        runs: Vec<RunKey>,
        reports: Option<&Path>,
        threads: usize,
        finished: &mut dyn FnMut(&[Row]) -> Result<(), SweepError>,
    ) -> Result<(), SweepError> {
        if runs.is_empty() {
            return Ok(());
        }
        if let Some(reports) = reports {
            std::fs::create_dir_all(reports).map_err(SweepError::write(reports))?;
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| SweepError::Threads { threads, message: error.to_string() })?;
        let (sender, receiver) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A bridge hands out one run after the other; ranges would leave the dear points of
                // a corner of the grid to one thread.
                let _ = pool.install(|| {
                    runs.into_iter().par_bridge().try_for_each_with(sender, |sender, run| {
                        // Nobody receives after an error: the rest need not run.
                        sender.send(self.run_one(run, reports)).map_err(|_| ())
                    })
                });
            });
            // This thread owns the receiver, so that an error lets go of it.
            let receiver = receiver;
            while let Ok(first) = receiver.recv() {
                let rows = std::iter::once(first).chain(receiver.try_iter());
                finished(&rows.collect::<Result<Vec<Row>, SweepError>>()?)?;
            }
            Ok(())
        })
    }

    fn run_one(&self, (point, replication): RunKey, reports: Option<&Path>) -> Result<Row, SweepError> {
        let fields = self.plan.points[point].fields.clone();
        let (seed, outcome) = match &self.points[point] {
            Err(error) => (None, Outcome::Error(error.clone())),
            Ok(scenario) => {
                let mut scenario = scenario.clone();
                scenario.file.seed = scenario.file.seed.wrapping_add(u64::from(replication));
                let seed = scenario.seed();
                let report = reports.map(|folder| folder.join(format!("point-{point}-seed-{seed}")));
                (Some(seed), self.simulate(&scenario, report.as_deref())?)
            }
        };
        Ok(Row { point, replication, seed, fields, outcome })
    }

    /// # Errors
    /// The report cannot be written; what goes wrong in the simulation is an outcome.
    fn simulate(&self, scenario: &Scenario, report: Option<&Path>) -> Result<Outcome, SweepError> {
        let mut simulation = match scenario.build_sharing(&self.traces) {
            Ok(simulation) => simulation,
            Err(error) => return Ok(Outcome::Error(error.without_place())),
        };
        let trace = scenario.trace_path()?.and_then(|path| self.trace_infos.get(&path).cloned());
        let trace_name = trace.as_ref().map(|trace| trace.file_name.clone());
        let info = scenario.run_info(&simulation, trace);
        let summary = match report {
            Some(folder) => {
                let mut report = RunReport::create(folder, info)?;
                simulation.run(&mut report).map(|()| report.finish(simulation.ending()))
            }
            None => {
                let mut figures = RunFigures::new(info);
                simulation.run(&mut figures).map(|()| Ok(figures.finish(simulation.ending())))
            }
        };
        Ok(match summary {
            Ok(summary) => Outcome::Metrics(self.metrics(&summary?)),
            Err(error) => Outcome::Error(error.in_trace(trace_name)),
        })
    }

    fn metrics(&self, summary: &RunSummary) -> Map<String, Value> {
        let summary = serde_json::to_value(summary).unwrap_or_default();
        let metric = |name: &String| (name.clone(), number_at(&summary, name).cloned().unwrap_or_default());
        self.plan.metrics.iter().map(metric).collect()
    }
}
