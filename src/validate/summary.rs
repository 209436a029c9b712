//! Errors of many runs as a few numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Metric, Outcome};

/// Errors of one figure over the runs of a group, in per cent of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub num_runs: usize,
    /// Of the absolute errors, by nearest rank.
    pub median_percent: f64,
    pub p90_percent: f64,
    /// Median of the signed errors.
    pub bias_percent: f64,
}

/// Runs of one source, GPU and model.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    pub source: String,
    pub gpu: String,
    pub model: String,
    pub num_runs: usize,
    pub errors: BTreeMap<Metric, Spread>,
}

/// By source, GPU and model, in the order of their names.
pub fn summarise(outcomes: &[Outcome]) -> Vec<Group> {
    let mut groups: BTreeMap<[String; 3], Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.comparisons.is_empty()) {
        let settings = &outcome.run.settings;
        let weights = settings.weight_dtype.as_deref().unwrap_or("bf16");
        let model = format!("{} {weights}", settings.model.rsplit('/').next().unwrap_or_default());
        let key = [outcome.run.source.clone(), settings.gpu.clone(), model];
        groups.entry(key).or_default().push(outcome);
    }
    groups
        .into_iter()
        .map(|([source, gpu, model], outcomes)| {
            let errors = Metric::ALL
                .into_iter()
                .filter_map(|metric| Some((metric, spread(&outcomes, metric)?)))
                .collect();
            Group { source, gpu, model, num_runs: outcomes.len(), errors }
        })
        .collect()
}

/// The errors of one figure over these runs, if any has it.
pub(super) fn spread(outcomes: &[&Outcome], metric: Metric) -> Option<Spread> {
    let errors =
        outcomes.iter().filter_map(|outcome| outcome.comparisons.get(&metric).map(super::Comparison::error));
    let mut signed: Vec<f64> = errors.map(|error| 100.0 * error).collect();
    if signed.is_empty() {
        return None;
    }
    let mut absolute: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    signed.sort_by(f64::total_cmp);
    absolute.sort_by(f64::total_cmp);
    let rank = |values: &[f64], per_cent: usize| values[(values.len() * per_cent).div_ceil(100) - 1];
    Some(Spread {
        num_runs: signed.len(),
        median_percent: rank(&absolute, 50),
        p90_percent: rank(&absolute, 90),
        bias_percent: rank(&signed, 50),
    })
}
