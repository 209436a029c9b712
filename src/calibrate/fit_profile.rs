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

/// A profile for each GPU that the timings hold, in the order of the catalogue.
pub fn fit_profiles(timings: &Timings, origin: &Origin) -> Vec<Profile> {
    let gpus = timings.gpus();
    Gpu::all()
        .par_iter()
        .filter(|gpu| gpus.contains(gpu.name))
        .map(|gpu| fit_gpu(timings, gpu, origin))
        .collect()
}

fn fit_gpu(timings: &Timings, gpu: &Gpu, origin: &Origin) -> Profile {
    let own_words = || timings.sources(gpu.name).into_iter().collect::<Vec<_>>().join(", ");
    let source = origin.source.clone().unwrap_or_else(own_words);
    let mut profile = Profile::new(gpu, source, origin.date.clone(), origin.driver.clone());
    let attention = || {
        rayon::join(
            || by_format::<DecodeOperation>(gpu, &timings.decode_attention),
            || by_format::<PrefillOperation>(gpu, &timings.prefill_attention),
        )
    };
    let products = || {
        rayon::join(
            || by_format::<GemmOperation>(gpu, &timings.gemm),
            || by_format::<MoeOperation>(gpu, &timings.moe),
        )
    };
    let ((gemm, moe), (decode, prefill)) = rayon::join(products, attention);
    (profile.gemm, profile.moe) = (gemm, moe);
    (profile.decode_attention, profile.prefill_attention) = (decode, prefill);
    profile.mixed_attention = fit::<MixedOperation>(&of_gpu(gpu, &timings.mixed_attention));
    if gpu.nvlink_bytes_per_s.is_some() {
        profile.nvlink_all_reduce = fit::<NvlinkAllReduceOperation>(&of_gpu(gpu, &timings.all_reduce));
    } else {
        profile.pcie_all_reduce = by_num_gpus(gpu, &timings.all_reduce);
    }
    profile.all_gather = by_num_gpus(gpu, &timings.all_gather);
    profile.all_to_all = by_num_gpus(gpu, &timings.all_to_all);
    profile.reduce_scatter = by_num_gpus(gpu, &timings.reduce_scatter);
    profile.elementwise = fit::<ElementwiseOperation>(&of_gpu(gpu, &timings.elementwise));
    profile.sampler = fit::<SamplerOperation>(&of_gpu(gpu, &timings.sampler));
    profile
}

fn of_gpu<S: Clone>(gpu: &Gpu, timings: &[Timing<S>]) -> Vec<Timing<S>> {
    timings.iter().filter(|row| row.gpu.name == gpu.name).cloned().collect()
}

fn by_format<O: Operation>(gpu: &Gpu, timings: &[Timing<O::Shape>]) -> BTreeMap<Format, Fit<O::Law>> {
    let of_gpu = of_gpu(gpu, timings);
    let fits: Vec<_> = Format::ALL
        .par_iter()
        .filter_map(|&format| {
            let rows: Vec<_> = of_gpu.iter().filter(|row| row.format == format).cloned().collect();
            fit::<O>(&rows).map(|fit| (format, fit))
        })
        .collect();
    fits.into_iter().collect()
}

fn by_num_gpus(gpu: &Gpu, timings: &[Timing<CollectiveShape>]) -> Vec<Fit<RateLaw>> {
    let of_gpu = of_gpu(gpu, timings);
    let counts: BTreeSet<u32> = of_gpu.iter().map(|row| row.shape.num_gpus).collect();
    let fits = counts.into_iter().filter_map(|num_gpus| {
        let rows: Vec<_> = of_gpu.iter().filter(|row| row.shape.num_gpus == num_gpus).cloned().collect();
        let mut fit = fit::<RateOperation>(&rows)?;
        fit.law.num_gpus = num_gpus;
        Some(fit)
    });
    fits.collect()
}
