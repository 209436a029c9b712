//! Every run beside its simulation.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::Metric;
use super::bench_run::BenchRun;
use super::simulate::{Prediction, Profiles, Server};
use crate::cost::StepTime;

/// A figure on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub measured: f64,
    pub predicted: f64,
}

impl Comparison {
    /// Predicted over measured, less one.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub run: BenchRun,
    /// Why its load was not simulated, if it was not.
    pub left_out: Option<String>,
    /// Every figure that both sides have.
    pub comparisons: BTreeMap<Metric, Comparison>,
    /// A step in the middle of the load, by operation.
    pub decode_step: StepTime,
    /// All figures of the simulation.
    pub predicted: BTreeMap<Metric, f64>,
}

/// Simulates every run, on all cores; the order and the figures do not depend on their number.
/// `progress` is told of each that is done, and how many there are.
pub fn compare_all(
    runs: Vec<BenchRun>,
    profiles: &Profiles,
    progress: &(dyn Fn(usize) + Sync),
) -> Vec<Outcome> {
    // Tables hold the same run several times: it is simulated once.
    let mut distinct: BTreeMap<String, usize> = BTreeMap::new();
    let mut firsts: Vec<&BenchRun> = Vec::new();
    let indices: Vec<usize> = runs
        .iter()
        .map(|run| {
            *distinct.entry(format!("{:?} {:?}", run.settings, run.load)).or_insert_with(|| {
                firsts.push(run);
                firsts.len() - 1
            })
        })
        .collect();
    let all = firsts.len();
    let predict = |run: &BenchRun| {
        let prediction = predict(run, profiles);
        progress(all);
        prediction
    };
    let predictions: Vec<Result<Prediction, String>> = firsts.into_par_iter().map(predict).collect();
    runs.into_iter().zip(indices).map(|(run, index)| outcome(run, predictions[index].clone())).collect()
}

fn predict(run: &BenchRun, profiles: &Profiles) -> Result<Prediction, String> {
    let load = run.load.as_ref().map_err(String::clone)?;
    let server = Server::new(run, Some(load))?;
    let profile = profiles.get(server.scenario.gpu).map_err(|error| error.to_string())?;
    server.run(load, &profile)
}

fn outcome(run: BenchRun, prediction: Result<Prediction, String>) -> Outcome {
    let (left_out, prediction) = match prediction {
        Ok(prediction) => (None, prediction),
        // Memory does not depend on the load.
        Err(reason) => (Some(reason), blocks_alone(&run).unwrap_or_default()),
    };
    let both = |(&metric, &measured): (&Metric, &f64)| {
        let predicted = *prediction.metrics.get(&metric)?;
        (measured > 0.0).then_some((metric, Comparison { measured, predicted }))
    };
    let comparisons = run.measured.iter().filter_map(both).collect();
    Outcome { left_out, comparisons, decode_step: prediction.decode_step, predicted: prediction.metrics, run }
}

/// The number of blocks of a server whose load cannot be simulated, if somebody wants to know it.
fn blocks_alone(run: &BenchRun) -> Option<Prediction> {
    run.measured.get(&Metric::NumGpuBlocks)?;
    let blocks = Server::new(run, None).ok()?.num_gpu_blocks?;
    let metrics = BTreeMap::from([(Metric::NumGpuBlocks, f64::from(blocks))]);
    Some(Prediction { metrics, ..Prediction::default() })
}
