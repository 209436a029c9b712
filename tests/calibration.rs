//! The built-in profiles: what they promise on shapes that they were not fitted to, and that the
//! numbers in them are those that the published tables give.

use std::path::PathBuf;

use kvsim::calibrate::{Origin, Timings, evaluate, fit_profiles};
use kvsim::catalog::Gpu;
use kvsim::cost::{FitError, Format, Profile};

fn profile(gpu: &str) -> Profile {
    Profile::built_in(Gpu::find(gpu).unwrap()).unwrap().clone()
}

/// Median and 90th percentile, in per cent, that the cost model has to reach on held-out shapes.
#[test]
fn held_out_errors_are_within_their_bounds() {
    type Pick = fn(&Profile) -> Option<FitError>;
    let gemm: Pick = |profile| Some(profile.gemm.get(&Format::Bf16)?.held_out_error);
    let gemm_fp8: Pick = |profile| Some(profile.gemm.get(&Format::Fp8)?.held_out_error);
    let decode: Pick = |profile| Some(profile.decode_attention.get(&Format::Bf16)?.held_out_error);
    let prefill: Pick = |profile| Some(profile.prefill_attention.get(&Format::Bf16)?.held_out_error);
    let prefill_fp8: Pick = |profile| Some(profile.prefill_attention.get(&Format::Fp8)?.held_out_error);
    let all_reduce: Pick = |profile| Some(profile.nvlink_all_reduce.as_ref()?.held_out_error);
    let moe: Pick = |profile| Some(profile.moe.get(&Format::Bf16)?.held_out_error);
    let cases: [(&str, &str, Pick, f64, f64); 33] = [
        ("GEMM bf16", "H100", gemm, 5.0, 13.6),
        ("GEMM bf16", "H200", gemm, 5.0, 13.0),
        ("GEMM bf16", "B200", gemm, 6.5, 17.0),
        ("GEMM bf16", "RTX-PRO-6000", gemm, 5.0, 14.0),
        ("GEMM bf16", "A100", gemm, 6.0, 20.0),
        ("GEMM bf16", "L40S", gemm, 9.0, 22.0),
        ("GEMM fp8", "H100", gemm_fp8, 8.0, 24.0),
        ("GEMM fp8", "H200", gemm_fp8, 8.0, 24.0),
        ("GEMM fp8", "B200", gemm_fp8, 11.0, 31.0),
        ("GEMM fp8", "L40S", gemm_fp8, 10.0, 28.0),
        ("decode", "H100", decode, 2.5, 9.2),
        ("decode", "H200", decode, 2.5, 8.5),
        ("decode", "B200", decode, 2.5, 8.0),
        ("decode", "RTX-PRO-6000", decode, 2.5, 8.0),
        ("decode", "A100", decode, 8.0, 14.8),
        ("decode", "L40S", decode, 9.0, 15.0),
        ("prefill", "H100", prefill, 5.0, 13.0),
        ("prefill", "H200", prefill, 5.0, 12.5),
        ("prefill", "B200", prefill, 5.0, 17.5),
        ("prefill", "RTX-PRO-6000", prefill, 5.0, 14.0),
        ("prefill", "A100", prefill, 3.5, 12.0),
        ("prefill", "L40S", prefill, 6.0, 18.5),
        ("prefill fp8", "H100", prefill_fp8, 6.0, 17.0),
        ("prefill fp8", "H200", prefill_fp8, 6.0, 17.0),
        ("all-reduce", "H100", all_reduce, 3.0, 7.0),
        ("all-reduce", "H200", all_reduce, 2.0, 6.0),
        ("all-reduce", "B200", all_reduce, 4.5, 25.0),
        ("all-reduce", "A100", all_reduce, 7.0, 19.0),
        ("MoE", "H100", moe, 5.5, 16.0),
        ("MoE", "H200", moe, 5.5, 20.0),
        ("MoE", "B200", moe, 8.0, 27.0),
        ("MoE", "A100", moe, 6.0, 21.0),
        ("MoE", "L40S", moe, 5.5, 24.0),
    ];
    for (operation, gpu, pick, median, p90) in cases {
        let error = pick(&profile(gpu)).unwrap();
        assert!(
            error.median_percent <= median && error.p90_percent <= p90 && error.bias_percent.abs() <= 3.0,
            "{operation} on {gpu}: {error:?}"
        );
    }
}

/// The folder of the published tables, where it is at hand.
fn tables() -> Option<Vec<PathBuf>> {
    let shared = std::env::var_os("KVSIM_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let folder = shared.join("data/kernels");
    if !folder.exists() {
        eprintln!("skipped: no {}", folder.display());
        return None;
    }
    let names = ["gemm.csv", "attention.csv", "moe.csv", "comm.csv", "elementwise.csv"];
    Some(names.map(|name| folder.join(name)).to_vec())
}

/// Fit errors in the files are those of the files' numbers on the tables.
#[test]
fn profiles_say_how_well_they_fit() {
    let Some(tables) = tables() else { return };
    let mut timings = Timings::read(&tables).unwrap();
    timings.keep_one_source();
    for gpu in Gpu::all() {
        let profile = profile(gpu.name);
        let evaluated = evaluate(&profile, &timings);
        if gpu.name == "B300" {
            assert!(evaluated.is_empty(), "it has the B200's profile, and no timings of its own");
            continue;
        }
        let error = |operation: &str| {
            let found = evaluated.iter().find(|evaluated| evaluated.operation == operation);
            found.map(|evaluated| evaluated.errors())
        };
        for (format, fit) in &profile.gemm {
            let error = error(&format!("gemm {format}")).unwrap();
            assert!((error.median_percent - fit.fit_error.median_percent).abs() < 0.01, "{}", gpu.name);
            assert!((error.p90_percent - fit.fit_error.p90_percent).abs() < 0.01, "{}", gpu.name);
            // At the points that serving visits, the sign matters more than the size.
            let bias = error.serving_bias_percent.unwrap();
            assert!(bias.abs() <= 3.0, "gemm {format} on {}: {bias} % at 8 to 256 tokens", gpu.name);
        }
        for (format, fit) in &profile.decode_attention {
            let error = error(&format!("decode_attention {format}")).unwrap();
            assert!((error.median_percent - fit.fit_error.median_percent).abs() < 0.01, "{}", gpu.name);
            let bias = error.serving_bias_percent.unwrap();
            assert!(bias.abs() <= 3.0, "decode attention {format} on {}: {bias} %", gpu.name);
        }
    }
}

/// The smallest of the tables, fitted again.
#[test]
fn a_built_in_profile_can_be_fitted_again() {
    let Some(tables) = tables() else { return };
    let mut timings = Timings::read(&tables).unwrap();
    timings.keep_one_source();
    timings.keep_gpu(Gpu::find("RTX-4090").unwrap());
    let built_in = profile("RTX-4090");
    let origin = Origin { source: None, date: built_in.date.clone(), driver: "not recorded".to_owned() };
    let profiles = fit_profiles(&timings, &origin, &|_| {});
    let [again] = &profiles[..] else { panic!("{} GPUs", profiles.len()) };
    assert_eq!(again.source, built_in.source);
    // Another processor may round a power differently, and the search go another way.
    let near = |a: FitError, b: FitError| (a.median_percent - b.median_percent).abs() < 0.3;
    assert!(near(again.gemm[&Format::Bf16].fit_error, built_in.gemm[&Format::Bf16].fit_error));
    let decode = |profile: &Profile| profile.decode_attention[&Format::Bf16].fit_error;
    assert!(near(decode(again), decode(&built_in)));
}
