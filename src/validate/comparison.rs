//! Every run beside its simulation.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::bench_run::BenchRun;
use super::simulate::{Profiles, Server};
use super::{BenchError, Metric};
use crate::catalog::Gpu;
use crate::cost::StepBreakdown;

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
    /// Why it was left out, or every figure that both sides have.
    pub result: Result<BTreeMap<Metric, Comparison>, String>,
    /// A step in the middle of the load, by operation.
    pub decode_step: StepBreakdown,
    /// All figures of the simulation.
    pub predicted: BTreeMap<Metric, f64>,
}

/// Simulates every run, on all cores; the order and the figures do not depend on their number.
///
/// # Errors
/// A GPU without coefficients is no error but leaves its runs out; broken coefficients are one.
pub fn compare_all(runs: Vec<BenchRun>, profiles: &Profiles) -> Result<Vec<Outcome>, BenchError> {
    Ok(runs.into_par_iter().map(|run| compare(run, profiles)).collect())
}

fn compare(run: BenchRun, profiles: &Profiles) -> Outcome {
    let prediction = run.load.clone().and_then(|load| {
        let server = Server::new(&run, &load)?;
        let gpu = Gpu::find(&run.settings.gpu).map_err(|error| error.to_string())?;
        let coefficients = profiles.get(gpu).map_err(|error| error.to_string())?;
        server.run(&load, &coefficients)
    });
    match prediction {
        Ok(prediction) => {
            let both = |(&metric, &measured): (&Metric, &f64)| {
                let predicted = *prediction.metrics.get(&metric)?;
                (measured > 0.0).then_some((metric, Comparison { measured, predicted }))
            };
            let result = Ok(run.measured.iter().filter_map(both).collect());
            Outcome { run, result, decode_step: prediction.decode_step, predicted: prediction.metrics }
        }
        Err(reason) => Outcome {
            run,
            result: Err(reason),
            decode_step: StepBreakdown::default(),
            predicted: BTreeMap::new(),
        },
    }
}
