//! The comparison as one JSON document.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::summary::Group;
use super::{BenchError, Comparison, Metric, Outcome, Ranking};
use crate::cost::StepTime;
use crate::whole_file::write_whole;

#[derive(Serialize)]
struct Document<'a> {
    groups: &'a [Group],
    rankings: &'a [Ranking],
    runs: Vec<Run<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    run_id: &'a str,
    source: &'a str,
    gpu: &'a str,
    model: &'a str,
    tensor_parallel_size: u32,
    engine_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<&'a str>,
    comparisons: BTreeMap<Metric, WithError>,
    /// Everything the simulation says, also what was not measured.
    predicted: &'a BTreeMap<Metric, f64>,
    /// A step in the middle of the load, all users decoding.
    decode_step: StepTime,
}

#[derive(Serialize)]
struct WithError {
    measured: f64,
    predicted: f64,
    error_percent: f64,
}

/// Writes every run and the summary.
///
/// # Errors
/// A file that cannot be written.
pub fn write_json(
    path: &Path,
    outcomes: &[Outcome],
    groups: &[Group],
    rankings: &[Ranking],
) -> Result<(), BenchError> {
    let document = Document { groups, rankings, runs: outcomes.iter().map(run).collect() };
    let text = serde_json::to_string(&document).unwrap_or_default();
    write_whole(path, text + "\n").map_err(|source| BenchError::Write { path: path.to_owned(), source })
}

fn run(outcome: &Outcome) -> Run<'_> {
    let settings = &outcome.run.settings;
    let with_error = |(&metric, comparison): (&Metric, &Comparison)| {
        let Comparison { measured, predicted } = *comparison;
        (metric, WithError { measured, predicted, error_percent: 100.0 * comparison.error() })
    };
    Run {
        run_id: &outcome.run.id,
        source: &outcome.run.source,
        gpu: &settings.gpu,
        model: &settings.model,
        tensor_parallel_size: settings.tensor_parallel_size,
        engine_version: &settings.engine_version,
        left_out: outcome.left_out.as_deref(),
        comparisons: outcome.comparisons.iter().map(with_error).collect(),
        predicted: &outcome.predicted,
        decode_step: outcome.decode_step,
    }
}
