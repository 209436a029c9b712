//! From a sweep's file to scenarios that can run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::SweepError;
use super::file::{SweepFile, is_within, varied};
use super::plan::{Plan, PlannedPoint};
use super::points::Point;
use crate::report::{HEADLINES, TraceInfo};
use crate::scenario::{ErrorKind, Scenario, Source, Template};
use crate::text_file::read_text;
use crate::workload::trace::SharedTraces;

/// What the command line changes in all points.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `path.to.field=value`.
    pub set: Vec<String>,
    /// Replaces the path of a trace workload.
    pub trace: Option<PathBuf>,
    /// Leaves out rows of a trace workload that cannot be read.
    pub skip_bad_rows: bool,
}

/// A sweep that has been understood: nothing has run, and nothing typed is in doubt.
pub struct Sweep {
    pub plan: Plan,
    /// What each point runs, or why it cannot.
    pub(super) points: Vec<Result<Scenario, String>>,
    /// By their paths.
    pub(super) trace_infos: BTreeMap<PathBuf, TraceInfo>,
    pub(super) traces: SharedTraces,
}

impl Sweep {
    /// Reads a sweep, its scenario and its traces.
    ///
    /// # Errors
    /// What was typed cannot be read, a trace cannot, or no point could start.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, SweepError> {
        let text = read_text(path)?;
        let file = SweepFile::parse(&text, path).map_err(|error| error.in_file(path))?;
        let template = template(path, &file, overrides)?;
        Self::new(file, &template)
    }

    /// Some points of another study, each one run.
    ///
    /// # Errors
    /// A trace cannot be read, or no point could start.
    pub(in crate::study) fn of_points(
        name: &str,
        template: &Template,
        points: Vec<Point>,
        metrics: &[&str],
    ) -> Result<Self, SweepError> {
        let file = SweepFile {
            name: name.to_owned(),
            description: String::new(),
            scenario: String::new(),
            set: Vec::new(),
            fields: varied(&points),
            points,
            replications: 1,
            confidence: 0.95,
            baseline: None,
            metrics: Some(metrics.iter().map(|&name| name.to_owned()).collect()),
            pareto: None,
        };
        Self::new(file, template)
    }

    /// What each point runs, or why it cannot.
    pub(in crate::study) fn scenarios(&self) -> &[Result<Scenario, String>] {
        &self.points
    }

    pub(in crate::study) fn traces(&self) -> &SharedTraces {
        &self.traces
    }

    fn new(file: SweepFile, template: &Template) -> Result<Self, SweepError> {
        let points = scenarios(template, &file.points)?;
        let (trace_infos, traces) = read_traces(&points)?;
        let plan = plan(file, template, &points, &trace_infos);
        Ok(Self { plan, points, trace_infos, traces })
    }
}

/// The scenario with what is set for all points.
fn template(path: &Path, file: &SweepFile, overrides: &Overrides) -> Result<Template, SweepError> {
    let scenario_path = path.parent().unwrap_or(Path::new("")).join(&file.scenario);
    let text = read_text(&scenario_path)?;
    let mut template = Template::read(Source {
        path: scenario_path,
        text,
        overrides: Vec::new(),
        seed: None,
        trace: overrides.trace.clone(),
        // As a field, which the plan tells of.
        skip_bad_rows: false,
    })?;
    for (field, value) in &file.set {
        template.set(field, value.clone())?;
    }
    if overrides.skip_bad_rows {
        template.apply_override("workload.trace.skip_bad_rows=true")?;
    }
    // The command line has the last word.
    for text in &overrides.set {
        let path = text.split('=').next().unwrap_or_default().trim();
        if let Some(field) = file.fields.iter().find(|field| is_within(path, field)) {
            return Err(SweepError::Varied { set: text.clone(), field: field.clone() });
        }
        template.apply_override(text)?;
    }
    Ok(template)
}

/// A point that no server could start with is a row of the sweep; one that cannot be read ends it.
fn scenarios(template: &Template, points: &[Point]) -> Result<Vec<Result<Scenario, String>>, SweepError> {
    let mut first = None;
    let mut scenarios = Vec::with_capacity(points.len());
    for point in points {
        scenarios.push(match template.scenario(&point.fields) {
            Err(error) if error.kind == ErrorKind::Typing => return Err(error.into()),
            Err(error) => {
                let message = error.without_place();
                first.get_or_insert(error);
                Err(message)
            }
            Ok(scenario) => Ok(scenario),
        });
    }
    match first {
        Some(first) if scenarios.iter().all(Result::is_err) => Err(SweepError::NoPoint { first }),
        _ => Ok(scenarios),
    }
}

type Traces = (BTreeMap<PathBuf, TraceInfo>, SharedTraces);

/// Reads each trace once.
fn read_traces(points: &[Result<Scenario, String>]) -> Result<Traces, SweepError> {
    let mut traces = SharedTraces::default();
    for scenario in points.iter().flatten() {
        scenario.read_traces(&mut traces)?;
    }
    let mut infos = BTreeMap::new();
    for path in traces.paths() {
        if !infos.contains_key(path) {
            infos.insert(path.to_owned(), TraceInfo::of(path).map_err(SweepError::read(path))?);
        }
    }
    Ok((infos, traces))
}

fn plan(
    file: SweepFile,
    template: &Template,
    points: &[Result<Scenario, String>],
    traces: &BTreeMap<PathBuf, TraceInfo>,
) -> Plan {
    let model = |scenario: &Scenario| {
        let text = serde_json::to_string(&scenario.model).unwrap_or_default();
        let digest = Sha256::digest(text.as_bytes());
        (scenario.file.model.clone(), digest.iter().map(|byte| format!("{byte:02x}")).collect())
    };
    let mut metrics = file.metrics.unwrap_or_else(|| {
        let mut metrics: Vec<String> = HEADLINES.iter().map(|&name| name.to_owned()).collect();
        let has_tiers = |scenario: &Scenario| scenario.file.engine.kv_transfer_config.is_some();
        if points.iter().flatten().any(has_tiers) {
            metrics.insert(1, "external_cache.hit_rate".to_owned());
        }
        metrics
    });
    for name in file.pareto.iter().flat_map(|pareto| pareto.metrics()) {
        if !metrics.contains(name) {
            metrics.push(name.clone());
        }
    }
    Plan {
        kvsim_version: env!("CARGO_PKG_VERSION").to_owned(),
        kvsim_build: env!("KVSIM_BUILD").to_owned(),
        name: file.name,
        description: file.description,
        scenario: template.to_json(),
        models: points.iter().flatten().map(model).collect(),
        traces: traces.values().cloned().collect(),
        fields: file.fields,
        points: file
            .points
            .into_iter()
            .map(|point| PlannedPoint {
                name: point.name,
                fields: point.fields.iter().map(|(field, node)| (field.clone(), node.to_json())).collect(),
            })
            .collect(),
        replications: file.replications,
        confidence: file.confidence,
        baseline: file.baseline,
        metrics,
        pareto: file.pareto,
    }
}
