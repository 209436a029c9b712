//! Predictions of a profile beside measured times, and the errors per GPU and operation.

use serde::Serialize;

use super::errors::errors;
use super::operation::{Operation, Timing};
use super::operations::{
    DecodeOperation, ElementwiseOperation, GemmOperation, MixedOperation, MoeOperation,
    NvlinkAllReduceOperation, PrefillOperation, RateOperation, SamplerOperation,
};
use super::timings::Timings;
use crate::catalog::Gpu;
use crate::cost::collective::RateLaw;
use crate::cost::{Fit, Profile};

/// One measured time and what the profile says.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub measured_us: f64,
    pub predicted_us: f64,
    pub is_in_scope: bool,
    pub is_serving: bool,
}

/// All samples of one operation on one GPU.
#[derive(Clone, Debug)]
pub struct Evaluated {
    pub gpu: &'static str,
    /// Such as `gemm fp8`.
    pub operation: String,
    /// Which rows are in scope, in words.
    pub scope: &'static str,
    pub samples: Vec<Sample>,
}

/// The errors of one operation on one GPU, in per cent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationErrors {
    pub gpu: &'static str,
    pub operation: String,
    pub scope: &'static str,
    /// Rows in scope, and their errors.
    pub rows: usize,
    pub median_percent: f64,
    pub p90_percent: f64,
    pub bias_percent: f64,
    /// Rows that serving visits, in scope or not, and the signed median error there.
    pub serving_rows: usize,
    pub serving_bias_percent: Option<f64>,
    pub all_rows: usize,
    pub all_median_percent: f64,
    pub all_p90_percent: f64,
}

impl Evaluated {
    pub fn errors(&self) -> OperationErrors {
        let ratios = |keep: &dyn Fn(&Sample) -> bool| -> Vec<f64> {
            let kept = self.samples.iter().filter(|sample| keep(sample));
            kept.map(|sample| sample.predicted_us / sample.measured_us).collect()
        };
        let in_scope = ratios(&|sample| sample.is_in_scope);
        let serving = ratios(&|sample| sample.is_serving);
        let (scope, all) = (errors(&in_scope), errors(&ratios(&|_| true)));
        OperationErrors {
            gpu: self.gpu,
            operation: self.operation.clone(),
            scope: self.scope,
            rows: in_scope.len(),
            median_percent: scope.median_percent,
            p90_percent: scope.p90_percent,
            bias_percent: scope.bias_percent,
            serving_rows: serving.len(),
            serving_bias_percent: (!serving.is_empty()).then(|| errors(&serving).bias_percent),
            all_rows: self.samples.len(),
            all_median_percent: all.median_percent,
            all_p90_percent: all.p90_percent,
        }
    }
}

/// What `profile` says of every row of its GPU for which it has a law. `is_kept` decides by the text
/// of a row's shape and time.
pub fn evaluate(profile: &Profile, timings: &Timings) -> Vec<Evaluated> {
    let Ok(gpu) = Gpu::find(&profile.gpu) else { return Vec::new() };
    let mut all = Vec::new();
    let mut add = |operation: &str, scope: &'static str, samples: Vec<Sample>| {
        if !samples.is_empty() {
            all.push(Evaluated { gpu: gpu.name, operation: operation.to_owned(), scope, samples });
        }
    };
    for (format, fit) in &profile.gemm {
        let rows = timings.gemm.iter().filter(|row| row.format == *format);
        add(&format!("gemm {format}"), GemmOperation::SCOPE, samples::<GemmOperation>(gpu, rows, fit));
    }
    for (format, fit) in &profile.decode_attention {
        let rows = timings.decode_attention.iter().filter(|row| row.format == *format);
        let name = format!("decode_attention {format}");
        add(&name, DecodeOperation::SCOPE, samples::<DecodeOperation>(gpu, rows, fit));
    }
    for (format, fit) in &profile.prefill_attention {
        let rows = timings.prefill_attention.iter().filter(|row| row.format == *format);
        let name = format!("prefill_attention {format}");
        add(&name, PrefillOperation::SCOPE, samples::<PrefillOperation>(gpu, rows, fit));
    }
    if let Some(fit) = &profile.mixed_attention {
        let samples = samples::<MixedOperation>(gpu, &timings.mixed_attention, fit);
        add("mixed_attention bf16", MixedOperation::SCOPE, samples);
    }
    for (format, fit) in &profile.moe {
        let rows = timings.moe.iter().filter(|row| row.format == *format);
        add(&format!("moe {format}"), MoeOperation::SCOPE, samples::<MoeOperation>(gpu, rows, fit));
    }
    if let Some(fit) = &profile.nvlink_all_reduce {
        let samples = samples::<NvlinkAllReduceOperation>(gpu, &timings.all_reduce, fit);
        add("all_reduce", NvlinkAllReduceOperation::SCOPE, samples);
    }
    for (name, timings, fits) in [
        ("all_reduce", &timings.all_reduce, &profile.pcie_all_reduce),
        ("all_gather", &timings.all_gather, &profile.all_gather),
        ("all_to_all", &timings.all_to_all, &profile.all_to_all),
        ("reduce_scatter", &timings.reduce_scatter, &profile.reduce_scatter),
    ] {
        let of_fit = |fit: &Fit<RateLaw>| {
            let num_gpus = fit.law.num_gpus;
            let rows = timings.iter().filter(move |row| row.shape.num_gpus == num_gpus);
            samples::<RateOperation>(gpu, rows, fit)
        };
        add(name, RateOperation::SCOPE, fits.iter().flat_map(of_fit).collect());
    }
    if let Some(fit) = &profile.elementwise {
        let samples = samples::<ElementwiseOperation>(gpu, &timings.elementwise, fit);
        add("elementwise", ElementwiseOperation::SCOPE, samples);
    }
    if let Some(fit) = &profile.sampler {
        add("sampler", SamplerOperation::SCOPE, samples::<SamplerOperation>(gpu, &timings.sampler, fit));
    }
    all
}

fn samples<'a, O: Operation>(
    gpu: &Gpu,
    rows: impl IntoIterator<Item = &'a Timing<O::Shape>>,
    fit: &Fit<O::Law>,
) -> Vec<Sample>
where
    O::Shape: 'a,
{
    rows.into_iter()
        .filter(|row| row.gpu.name == gpu.name)
        .map(|row| Sample {
            measured_us: row.time_us,
            predicted_us: O::predict_us(&row.shape, row.format, row.gpu, &fit.law),
            is_in_scope: O::is_in_scope(&row.shape, row.format, row.gpu),
            is_serving: O::is_serving(&row.shape),
        })
        .collect()
}
