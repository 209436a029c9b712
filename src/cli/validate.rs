//! `kvsim validate`: simulates measured runs and compares.

use std::error::Error;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde_json::json;

use super::calibrate::bench::read_profile;
use super::console::{Console, Finished};
use super::progress::Unit;
use crate::validate::{
    BenchError, Profiles, compare_all, rank, read_bench_file, summarise, terminal_table, write_csv,
    write_json, write_page,
};

/// Compare simulations with measured runs of real servers
#[derive(Debug, Args)]
pub(super) struct ValidateArguments {
    /// A table of runs, a log of requests, JSON of `vllm bench serve`, or a folder that holds runs.csv
    runs: PathBuf,
    /// Profile of a GPU, instead of the built-in ones; may be given again
    #[arg(long, value_name = "FILE")]
    profile: Vec<PathBuf>,
    /// Only runs whose id, source, GPU, model, tpN, vVERSION and format hold this text; may be given again
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// The report's folder
    #[arg(long, value_name = "DIR", default_value = "reports/validation")]
    out: PathBuf,
}

pub(super) fn validate(arguments: &ValidateArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let mut profiles = Profiles::default();
    for path in &arguments.profile {
        profiles.insert(read_profile(path)?);
    }
    let table =
        if arguments.runs.is_dir() { arguments.runs.join("runs.csv") } else { arguments.runs.clone() };
    let mut runs = read_bench_file(&table, "")?;
    let all = runs.len();
    runs.retain(|run| arguments.only.iter().all(|text| run.label().contains(text.as_str())));
    if runs.is_empty() {
        let only = arguments.only.join("` and `");
        return Err(Box::new(BenchError::File {
            path: table,
            problem: format!("none of its {all} runs holds `{only}`"),
            hint: "say less with --only; each must be in the run's id, source, GPU or model".to_owned(),
        }));
    }
    let bar = Mutex::new(console.bar("validate", Unit::Runs, None));
    let outcomes = compare_all(runs, &profiles, &|all| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.set_all(all);
        bar.add(1);
    });
    drop(bar);
    std::fs::create_dir_all(&arguments.out)?;
    write_csv(&arguments.out.join("runs.csv"), &outcomes)?;
    let groups = summarise(&outcomes);
    let rankings = rank(&outcomes);
    write_json(&arguments.out.join("summary.json"), &outcomes, &groups, &rankings)?;
    write_page(&arguments.out, &outcomes, &groups, &rankings)?;
    console.say(terminal_table(&groups))?;
    for ranking in &rankings {
        for (metric, figure) in &ranking.figures {
            console.say(format_args!(
                "routing strategies, {}: {} ranked with Spearman {:.2} by their means, {:.2} at each rate, {:.2} over all \
                 runs; {} of {} pairs that differ as measured are in order",
                ranking.source,
                metric.name(),
                figure.of_strategies,
                figure.of_strategies_by_rate,
                figure.of_runs,
                figure.num_pairs_in_order,
                figure.num_pairs
            ))?;
        }
    }
    let left_out = outcomes.iter().filter(|outcome| outcome.left_out.is_some()).count();
    let page = arguments.out.join("index.html");
    console.say(format_args!("{} runs, of which {left_out} could not be simulated", outcomes.len()))?;
    console.written("report", &page)?;
    Ok(Finished::new(
        json!({"runs": outcomes.len(), "left_out": left_out, "groups": groups, "rankings": rankings}),
    ))
}
