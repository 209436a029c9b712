use std::path::{Path, PathBuf};

use super::*;
use crate::catalog::Gpu;
use crate::cost::Profile;
use crate::cost::host::HostLaw;

fn written(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

const RUNS: &str = "run_id,source,model,gpu,tp,replicas,ep,engine_version,concurrency,input_len,output_len,num_requests,\
    block_size,kv_tokens_per_replica,ttft_mean_ms,tpot_stat_unstated_ms\n";

#[test]
fn a_table_says_what_was_asked_and_measured() {
    let text = format!("{RUNS}a,s,Llama-3.1-8B,H100,1,1,1,,4,1000,100,12,16,,50.5,7.25\n");
    let (_folder, path) = written("runs.csv", &text);
    let runs = read_bench_file(&path, "").unwrap();
    let Ok(Load::ClosedLoop(load)) = &runs[0].load else { panic!() };
    assert_eq!((load.concurrency, load.num_requests, load.range_ratio), (4, 12, 1.0));
    assert_eq!(runs[0].measured[&Metric::TtftMeanMs], 50.5);
    // The source does not say which statistic; it is taken as the mean.
    assert_eq!(runs[0].measured[&Metric::TpotMeanMs], 7.25);
}

/// InferenceMAX's client draws lengths and its scripts set the server; see `published`.
#[test]
fn a_known_benchmark_fills_in_its_own_settings() {
    let text = format!("{RUNS}a,s,gpt-oss-120b,B200,1,1,1,0.15.1,4,8192,1024,,,,50,7\n");
    let (_folder, path) = written("runs.csv", &text);
    let runs = read_bench_file(&path, "").unwrap();
    let Ok(Load::ClosedLoop(load)) = &runs[0].load else { panic!() };
    assert_eq!((load.num_requests, load.range_ratio), (40, 0.8));
    assert_eq!(runs[0].settings.kv_cache_dtype.as_deref(), Some("fp8"));
    assert_eq!(runs[0].settings.max_num_batched_tokens, Some(8192));
}

#[test]
fn what_cannot_be_simulated_says_why_and_still_has_its_blocks() {
    let text = format!("{RUNS}a,s,Qwen3-32B,H100,2,8,1,not stated,,7200,1000,,64,307328,,\n");
    let (_folder, path) = written("runs.csv", &text);
    let outcomes = compare_all(read_bench_file(&path, "").unwrap(), &Profiles::default(), &|_| {});
    assert_eq!(
        outcomes[0].left_out.as_deref(),
        Some("several replicas behind a router, with a load that is not published")
    );
    let blocks = outcomes[0].comparisons[&Metric::NumGpuBlocks];
    assert_eq!(blocks.measured, 4802.0);
    assert!(blocks.error().abs() < 0.03, "{blocks:?}");
}

/// AIConfigurator's table multiplies the ranks of expert parallelism; see `published`.
#[test]
fn ranks_are_those_that_ran() {
    let header = "run_id,source,model,gpu,tp,dp,ep\n";
    let row = |source: &str, ranks: &str| {
        format!("{},{source},MiniMax-M2.5,B200,{ranks}\n", ranks.replace(',', "-"))
    };
    let rows = ["2,1,2", "2,2,4", "4,4,16", "1,4,4", "2,,0"];
    let text = |source: &str| header.to_owned() + &rows.map(|ranks| row(source, ranks)).concat();
    let ranks = |source: &str| {
        let (_folder, path) = written("runs.csv", &text(source));
        let runs = read_bench_file(&path, "").unwrap();
        runs.iter().map(|run| run.settings.ranks()).collect::<Vec<_>>()
    };
    assert_eq!(ranks("aiconfigurator/silicon_sample.csv"), ["2 ep", "2 ep", "4 ep", "1 dp4 ep", "2"]);
    assert_eq!(ranks("my own"), ["2 ep", "2 dp2 ep", "4 dp4 ep", "1 dp4 ep", "2"]);
}

/// A row of a ladder whose report states the stages and the routers; see `published_ladders`.
#[test]
fn a_row_of_a_known_ladder_is_a_stage_of_it() {
    let header = "run_id,source,model,gpu,tp,replicas,engine_version,block_size,kv_tokens_per_replica,routing,input_len,\
        output_len,shared_prefix_len,num_prefix_groups,prompts_per_group,rate_rps,itl_mean_ms,requests_s,ttft_mean_ms\n";
    let row = |routing: &str, rate: u32| {
        format!(
            "{routing} {rate},s,Qwen3-32B,H100,2,8,not stated,64,307328,{routing},7200,1000,6000,150,5,{rate},11,{rate},300\n"
        )
    };
    let text = [header, &row("precise-scheduling", 15), &row("a secret", 15), &row("load-scheduling", 16)]
        .concat()
        + &row("precise-scheduling", 20);
    let (_folder, path) = written("runs.csv", &text);
    let runs = read_bench_file(&path, "").unwrap();
    let Ok(Load::Ladder { ladder, stage }) = &runs[0].load else { panic!() };
    // The warm-up has the same rate and is not reported.
    assert_eq!((*stage, ladder.stages[*stage].duration_s, ladder.num_replicas), (3, 20.0, 8));
    assert_eq!((ladder.router.block_size, runs[0].settings.num_gpu_blocks), (64, Some(4802)));
    let names: Vec<_> = runs[0].measured.keys().map(|metric| metric.name()).collect();
    assert_eq!(names, ["ttft_mean_ms", "tpot_mean_ms", "num_gpu_blocks"]);
    assert!(runs[1].load.is_err() && runs[2].load.is_err());
    // Each row knows how fast the stages of the others were sent.
    assert_eq!([2, 3, 4].map(|stage| ladder.stages[stage].sent_per_s), [None, Some(15.0), Some(20.0)]);
}

#[test]
fn logs_of_requests_are_replayed_with_their_prefixes() {
    // The second prompt begins with the first one's first block.
    let text = "input_len,output_len,arrival_s,ttft_ms,tpot_ms,e2e_ms,prefix_block_ids\n\
        40,3,0.0,20,5,30,1 2\n40,2,10.5,10,5,15,1 3\n";
    let (folder, path) = written("log.csv", text);
    let engine = r#"{"model": "Llama-3.1-8B", "vllm_version": "0.19.0",
        "engine_kwargs": {"max_num_seqs": 8, "max_num_batched_tokens": 64},
        "kv_cache": {"num_gpu_blocks": 100, "block_size": 16}}"#;
    std::fs::write(folder.path().join("log.engine.json"), engine).unwrap();
    let runs = read_bench_file(&path, "H100").unwrap();
    assert_eq!(runs[0].settings.num_gpu_blocks, Some(100));
    let outcome = &compare_all(runs, &Profiles::default(), &|_| {})[0];
    assert_eq!(outcome.left_out, None);
    // 16 of 80 tokens.
    assert_eq!(outcome.predicted[&Metric::HitRate], 0.2);
    // From the first arrival to the last token: 10.5 s and 15 ms.
    assert_eq!(outcome.comparisons[&Metric::MakespanS].measured, 10.515);
    assert_eq!(outcome.comparisons[&Metric::TtftMeanMs].measured, 15.0);
}

/// Results made with known host terms give them back.
#[test]
fn host_terms_are_found_again() {
    let gpu = Gpu::find("H100").unwrap();
    let truth = HostLaw { gpu_scale: 1.1, frontend_us: 12_000.0, ..HostLaw::default() };
    let mut profiles = Profiles::default();
    profiles.insert(Profile { host: truth, ..Profile::built_in(gpu).unwrap().clone() });
    let rows: String = [(1, 500), (8, 500), (32, 500), (8, 4000), (64, 100)]
        .map(|(users, input)| {
            format!("a{users}_{input},s,Llama-3.1-8B,H100,1,1,1,,{users},{input},50,{},,,1,1\n", users * 3)
        })
        .concat();
    let (_folder, path) = written("runs.csv", &format!("{RUNS}{rows}"));
    let mut runs = read_bench_file(&path, "").unwrap();
    for outcome in compare_all(runs.clone(), &profiles, &|_| {}) {
        let run = runs.iter_mut().find(|run| run.id == outcome.run.id).unwrap();
        run.measured = outcome.predicted;
    }
    let fit = fit_host(&runs, Profile::built_in(gpu).unwrap(), &|_| {}).unwrap();
    // Not to nothing: round trips scatter, so that the error moves in small jumps.
    assert!(fit.after_percent < 1.5 && fit.after_percent < fit.before_percent, "{fit:?}");
    assert!((fit.host.gpu_scale / 1.1 - 1.0).abs() < 0.03, "{fit:?}");
    assert!((fit.host.frontend_us / 12_000.0 - 1.0).abs() < 0.3, "{fit:?}");
}

/// Published runs, where the tables are at hand. The bounds are the targets for a GPU and vLLM
/// version that were calibrated.
#[test]
fn recorded_servings_are_met() {
    let path = Path::new("../shared/data/e2e/runs.csv");
    if !path.exists() {
        eprintln!("skipped: there is no {}", path.display());
        return;
    }
    let mut runs = read_bench_file(path, "").unwrap();
    runs.retain(|run| matches!(run.load, Ok(Load::Recorded(_))));
    assert_eq!(runs.len(), 2);
    for outcome in compare_all(runs, &Profiles::default(), &|_| {}) {
        for (metric, bound) in [
            (Metric::TpotMeanMs, 0.03),
            (Metric::TpotP90Ms, 0.03),
            (Metric::TtftMeanMs, 0.05),
            (Metric::TtftP50Ms, 0.08),
            (Metric::TtftP99Ms, 0.08),
            (Metric::MakespanS, 0.03),
        ] {
            let error = outcome.comparisons[&metric].error();
            assert!(error.abs() <= bound, "{} {}: {error}", outcome.run.id, metric.name());
        }
    }
}
