//! What can be compared: the report of a run, or a point of a sweep.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use crate::report::{metric_names, number_at};
use crate::study::sweep::{Outcome, Plan};

#[derive(Debug, Error)]
pub enum SubjectError {
    #[error(
        "{typed} is no report; give the folder of `kvsim run`, or the folder of a sweep and one of its points: \
         FOLDER:POINT"
    )]
    NotAReport { typed: String },
    #[error("{} is a sweep; give one of its points too: {}:POINT, with POINT {known}", path.display(), path.display())]
    NoPoint { path: PathBuf, known: String },
    #[error("{} has no point `{point}`; it has {known}", path.display())]
    UnknownPoint { path: PathBuf, point: String, known: String },
    #[error("{} cannot be read: {message}", path.display())]
    Read { path: PathBuf, message: String },
    #[error("{typed} has no run to compare: {error}")]
    Failed { typed: String, error: String },
}

/// One side of a comparison.
#[derive(Clone, Debug)]
pub struct Subject {
    /// As it was typed.
    pub name: String,
    pub seeds: Vec<u64>,
    /// For each metric a value for each seed, in their order.
    pub metrics: BTreeMap<String, Vec<f64>>,
    /// The scenario's fields by their paths.
    pub settings: BTreeMap<String, Value>,
}

impl Subject {
    /// Reads the folder of a run, or `FOLDER:POINT` of a sweep, where POINT is a number or a name.
    ///
    /// # Errors
    /// There is no such report, or no such point.
    pub fn read(typed: &str) -> Result<Self, SubjectError> {
        let path = Path::new(typed);
        if path.join("summary.json").exists() {
            return run(typed, path);
        }
        if path.join("results.json").exists() {
            let known = known(&read::<SweepFile>(&path.join("results.json"))?.plan);
            return Err(SubjectError::NoPoint { path: path.to_owned(), known });
        }
        match typed.rsplit_once(':') {
            Some((folder, point)) if Path::new(folder).join("results.json").exists() => {
                sweep_point(typed, Path::new(folder), point)
            }
            _ => Err(SubjectError::NotAReport { typed: typed.to_owned() }),
        }
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, SubjectError> {
    let failed = |message: String| SubjectError::Read { path: path.to_owned(), message };
    let text = fs::read(path).map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))
}

#[derive(Deserialize)]
struct ManifestFile {
    seed: u64,
    scenario: Value,
}

fn run(typed: &str, folder: &Path) -> Result<Subject, SubjectError> {
    let manifest: ManifestFile = read(&folder.join("manifest.json"))?;
    let summary: Value = read(&folder.join("summary.json"))?;
    let value = |name: String| Some((name.clone(), vec![number_at(&summary, &name)?.as_f64()?]));
    let mut settings = BTreeMap::new();
    flatten(&manifest.scenario, "", &mut settings);
    Ok(Subject {
        name: typed.to_owned(),
        seeds: vec![manifest.seed],
        metrics: metric_names().into_iter().filter_map(value).collect(),
        settings,
    })
}

/// Of `results.json` what is needed here.
#[derive(Deserialize)]
struct SweepFile {
    plan: Plan,
    points: Vec<SweepPoint>,
}

#[derive(Deserialize)]
struct SweepPoint {
    runs: Vec<SweepRun>,
}

#[derive(Deserialize)]
struct SweepRun {
    seed: Option<u64>,
    outcome: Outcome,
}

fn sweep_point(typed: &str, folder: &Path, point: &str) -> Result<Subject, SubjectError> {
    let SweepFile { plan, points } = read(&folder.join("results.json"))?;
    let by_name = || plan.points.iter().position(|planned| planned.name.as_deref() == Some(point));
    let by_number = || point.parse().ok().filter(|&index: &usize| index < points.len());
    let index = by_name().or_else(by_number).ok_or_else(|| SubjectError::UnknownPoint {
        path: folder.to_owned(),
        point: point.to_owned(),
        known: known(&plan),
    })?;
    let mut seeds = Vec::new();
    let mut metrics: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut error = None;
    for run in &points[index].runs {
        match &run.outcome {
            Outcome::Metrics(values) => {
                seeds.extend(run.seed);
                for (name, value) in values {
                    metrics.entry(name.clone()).or_default().extend(value.as_f64());
                }
            }
            Outcome::Error(message) => error = Some(message.clone()),
        }
    }
    if seeds.is_empty() {
        let error = error.unwrap_or_default();
        return Err(SubjectError::Failed { typed: typed.to_owned(), error });
    }
    // A figure that some runs lack cannot be paired by seed.
    metrics.retain(|_, values| values.len() == seeds.len());
    let mut settings = BTreeMap::new();
    flatten(&plan.scenario, "", &mut settings);
    for (field, value) in &plan.points[index].fields {
        let within = format!("{field}.");
        settings.retain(|name, _| name != field && !name.starts_with(&within));
        flatten(value, field, &mut settings);
    }
    Ok(Subject { name: typed.to_owned(), seeds, metrics, settings })
}

/// The points in words.
fn known(plan: &Plan) -> String {
    let names: Vec<&str> = plan.points.iter().filter_map(|point| point.name.as_deref()).collect();
    let numbers = format!("0 to {}", plan.points.len().saturating_sub(1));
    if names.is_empty() { numbers } else { format!("{numbers} or {}", names.join(", ")) }
}

fn flatten(value: &Value, path: &str, fields: &mut BTreeMap<String, Value>) {
    let child = |part: &str| if path.is_empty() { part.to_owned() } else { format!("{path}.{part}") };
    match value {
        Value::Object(entries) => {
            entries.iter().for_each(|(name, value)| flatten(value, &child(name), fields));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| flatten(value, &child(&index.to_string()), fields));
        }
        other => {
            fields.insert(path.to_owned(), other.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_the_leaves() {
        let mut fields = BTreeMap::new();
        flatten(&serde_json::json!({"a": {"b": [1, {"c": "x"}]}, "d": null}), "", &mut fields);
        let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(fields, ["a.b.0=1", "a.b.1.c=\"x\"", "d=null"]);
    }
}
