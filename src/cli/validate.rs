//! `kvsim validate`: simulates measured runs and compares.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde_json::json;

use super::calibrate::bench::read_profile;
use super::calibrate::counted;
use super::console::{Console, Finished};
use super::progress::Unit;
use crate::validate::{
    BenchError, Outcome, Profiles, compare_all, rank, read_bench_file, summarise, terminal_table, write_csv,
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
    let reasons = reasons_left_out(&outcomes);
    let left_out: usize = reasons.iter().map(|(_, count)| count).sum();
    let simulated = outcomes.len() - left_out;
    if let (0, Some((reason, _))) = (simulated, reasons.first()) {
        let none = match left_out {
            1 => "its run cannot be simulated".to_owned(),
            all => format!("none of its {all} runs can be simulated"),
        };
        return Err(Box::new(BenchError::File { path: table, problem: none, hint: reason.clone() }));
    }
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
    let page = arguments.out.join("index.html");
    console.say(format_args!("{} simulated, {left_out} left out", counted(simulated, "run")))?;
    for (reason, count) in reasons.iter().take(MOST_REASONS) {
        console.say(format_args!("left out: {}, {reason}", counted(*count, "run")))?;
    }
    if reasons.len() > MOST_REASONS {
        console.say(format_args!("left out for other reasons: see {}", page.display()))?;
    }
    console.written("report", &page)?;
    Ok(Finished::new(
        json!({"runs": outcomes.len(), "left_out": left_out, "groups": groups, "rankings": rankings}),
    ))
}

/// Reasons that are told on the terminal; the page has all.
const MOST_REASONS: usize = 5;

/// Why runs could not be simulated, with how many, the most frequent first.
fn reasons_left_out(outcomes: &[Outcome]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in outcomes.iter().filter_map(|outcome| outcome.left_out.as_deref()) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut reasons: Vec<(String, usize)> =
        counts.into_iter().map(|(reason, count)| (reason.to_owned(), count)).collect();
    reasons.sort_by_key(|&(_, count)| Reverse(count));
    reasons
}
