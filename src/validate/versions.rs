//! What a server does that was not told otherwise, by the version of vLLM. A version that nobody names is
//! today's, unless the run is dated before.

use super::bench_run::Settings;
use crate::catalog::Gpu;
use crate::cost::RouterKernels;

/// `VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS` is on from this version.
const ESTIMATES_CUDAGRAPHS: (u32, u32) = (0, 21);
/// Asynchronous scheduling is the default from this version, of January 2026.
const SCHEDULES_ASYNC: (u32, u32) = (0, 14);
/// Before this version a request was admitted when its first chunk fitted.
const RESERVES_FULL_ISL: (u32, u32) = (0, 19);
/// `enable_allreduce_rms_fusion` is part of `-O2` (vLLM's pull request 34299, February 2026); on B300 since its
/// pull request 37755 of March.
const FUSES_ALL_REDUCE: (u32, u32) = (0, 17);
const FUSES_ALL_REDUCE_B300: (u32, u32) = (0, 19);
const B300: u32 = 103;
/// A router in 32 bits is added up from products in 16 bits on Blackwell from this version (vLLM's pull request
/// 47973 of summer 2026).
const SPLITS_ROUTER: (u32, u32) = (0, 24);
/// The kernels of experts in 8 bits choose by logits in 32 bits from this version (its pull request 39141).
const CHOOSES_WITHIN_EXPERTS: (u32, u32) = (0, 20);

pub(super) fn schedules_async(settings: &Settings) -> bool {
    settings.async_scheduling.unwrap_or_else(|| is_from(settings, SCHEDULES_ASYNC))
}

pub(super) fn fuses_all_reduce(settings: &Settings, gpu: &Gpu) -> bool {
    let first = if gpu.compute_capability == B300 { FUSES_ALL_REDUCE_B300 } else { FUSES_ALL_REDUCE };
    settings.fuse_allreduce_rms.unwrap_or_else(|| is_from(settings, first))
}

pub(super) fn router_kernels(settings: &Settings) -> RouterKernels {
    RouterKernels {
        plain_product: !settings.has_tf32 && !is_from(settings, SPLITS_ROUTER),
        separate_choice: !is_from(settings, CHOOSES_WITHIN_EXPERTS),
    }
}

pub(super) fn reserves_full_isl(settings: &Settings) -> bool {
    is_from(settings, RESERVES_FULL_ISL)
}

/// A version that has a name and no number is an old one.
pub(super) fn estimates_cudagraphs(settings: &Settings) -> bool {
    settings.engine_version.is_empty()
        || settings.version().is_some_and(|version| version >= ESTIMATES_CUDAGRAPHS)
}

/// Of a version that came in 2026.
fn is_from(settings: &Settings, first: (u32, u32)) -> bool {
    match settings.version() {
        Some(version) => version >= first,
        None => !(2023..2026).any(|year: u32| settings.engine_version.contains(&year.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_decides_what_nobody_said() {
        let gpu = |name: &str| Gpu::find(name).unwrap();
        let settings = |version: &str| Settings { engine_version: version.to_owned(), ..Settings::default() };
        for (version, is_async, hopper, b300) in [
            ("0.12.0", false, false, false),
            ("0.16.0", true, false, false),
            ("0.17.0", true, true, false),
            ("0.19.0", true, true, true),
            ("", true, true, true),
            ("not stated (2025-10/11)", false, false, false),
        ] {
            let settings = settings(version);
            assert_eq!(schedules_async(&settings), is_async, "{version}");
            assert_eq!(fuses_all_reduce(&settings, gpu("H200")), hopper, "{version}");
            assert_eq!(fuses_all_reduce(&settings, gpu("B300")), b300, "{version}");
        }
        for (version, has_tf32, is_plain) in
            [("0.19.0", false, true), ("0.19.0", true, false), ("0.33.0", false, false), ("", false, false)]
        {
            let kernels = router_kernels(&Settings { has_tf32, ..settings(version) });
            assert_eq!(kernels.plain_product, is_plain, "{version}");
            assert_eq!(kernels.separate_choice, version == "0.19.0", "{version}");
        }
        let told =
            Settings { async_scheduling: Some(true), fuse_allreduce_rms: Some(true), ..settings("0.11.2") };
        assert!(schedules_async(&told) && fuses_all_reduce(&told, gpu("B200")));
    }
}
