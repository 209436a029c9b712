//! All laws of every GPU that tables hold.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::fit::fit;
use super::operation::{Operation, Timing};
use super::operations::{
    CollectiveShape, DecodeOperation, ElementwiseOperation, GemmOperation, MixedOperation, MoeOperation,
    NvlinkAllReduceOperation, PrefillOperation, RateOperation, SamplerOperation,
};
use super::timings::Timings;
use crate::catalog::Gpu;
use crate::cost::collective::RateLaw;
use crate::cost::{Fit, Format, Profile};

/// What a profile says of its origin.
#[derive(Clone, Debug)]
pub struct Origin {
    /// In the place of the tables' own words.
    pub source: Option<String>,
    pub date: String,
    pub driver: String,
}

/// Is told of so many rows that a law has been fitted to.
type Progress<'a> = &'a (dyn Fn(usize) + Sync);

/// A profile for each GPU that the timings hold, in the order of the catalogue. `progress` is told of
/// the rows that have been fitted, a law at a time.
pub fn fit_profiles(timings: &Timings, origin: &Origin, progress: Progress<'_>) -> Vec<Profile> {
    let gpus = timings.gpus();
    Gpu::all()
        .par_iter()
        .filter(|gpu| gpus.contains(gpu.name))
        .map(|gpu| fit_gpu(timings, gpu, origin, progress))
        .collect()
}

fn fit_gpu(timings: &Timings, gpu: &Gpu, origin: &Origin, progress: Progress<'_>) -> Profile {
    let own_words = || {
        let named: Vec<&str> =
            timings.sources(gpu.name).into_iter().filter(|name| !name.is_empty()).collect();
        if named.is_empty() { "not recorded".to_owned() } else { named.join(", ") }
    };
    let source = origin.source.clone().unwrap_or_else(own_words);
    let mut profile = Profile::new(gpu, source, origin.date.clone(), origin.driver.clone());
    let attention = || {
        rayon::join(
            || by_format::<DecodeOperation>(gpu, &timings.decode_attention, progress),
            || by_format::<PrefillOperation>(gpu, &timings.prefill_attention, progress),
        )
    };
    let products = || {
        rayon::join(
            || by_format::<GemmOperation>(gpu, &timings.gemm, progress),
            || by_format::<MoeOperation>(gpu, &timings.moe, progress),
        )
    };
    let ((gemm, moe), (decode, prefill)) = rayon::join(products, attention);
    (profile.gemm, profile.moe) = (gemm, moe);
    (profile.decode_attention, profile.prefill_attention) = (decode, prefill);
    profile.mixed_attention = fit_law::<MixedOperation>(&of_gpu(gpu, &timings.mixed_attention), progress);
    if gpu.nvlink_bytes_per_s.is_some() {
        profile.nvlink_all_reduce =
            fit_law::<NvlinkAllReduceOperation>(&of_gpu(gpu, &timings.all_reduce), progress);
    } else {
        profile.pcie_all_reduce = by_num_gpus(gpu, &timings.all_reduce, progress);
    }
    profile.all_gather = by_num_gpus(gpu, &timings.all_gather, progress);
    profile.all_to_all = by_num_gpus(gpu, &timings.all_to_all, progress);
    profile.reduce_scatter = by_num_gpus(gpu, &timings.reduce_scatter, progress);
    profile.elementwise = fit_law::<ElementwiseOperation>(&of_gpu(gpu, &timings.elementwise), progress);
    profile.sampler = fit_law::<SamplerOperation>(&of_gpu(gpu, &timings.sampler), progress);
    profile
}

fn of_gpu<S: Clone>(gpu: &Gpu, timings: &[Timing<S>]) -> Vec<Timing<S>> {
    timings.iter().filter(|row| row.gpu.name == gpu.name).cloned().collect()
}

fn fit_law<O: Operation>(timings: &[Timing<O::Shape>], progress: Progress<'_>) -> Option<Fit<O::Law>> {
    let fit = fit::<O>(timings);
    progress(timings.len());
    fit
}

fn by_format<O: Operation>(
    gpu: &Gpu,
    timings: &[Timing<O::Shape>],
    progress: Progress<'_>,
) -> BTreeMap<Format, Fit<O::Law>> {
    let of_gpu = of_gpu(gpu, timings);
    let fits: Vec<_> = Format::ALL
        .par_iter()
        .filter_map(|&format| {
            let rows: Vec<_> = of_gpu.iter().filter(|row| row.format == format).cloned().collect();
            fit_law::<O>(&rows, progress).map(|fit| (format, fit))
        })
        .collect();
    fits.into_iter().collect()
}

fn by_num_gpus(gpu: &Gpu, timings: &[Timing<CollectiveShape>], progress: Progress<'_>) -> Vec<Fit<RateLaw>> {
    let of_gpu = of_gpu(gpu, timings);
    let counts: BTreeSet<u32> = of_gpu.iter().map(|row| row.shape.num_gpus).collect();
    let fits = counts.into_iter().filter_map(|num_gpus| {
        let rows: Vec<_> = of_gpu.iter().filter(|row| row.shape.num_gpus == num_gpus).cloned().collect();
        let mut fit = fit_law::<RateOperation>(&rows, progress)?;
        fit.law.num_gpus = num_gpus;
        Some(fit)
    });
    fits.collect()
}
