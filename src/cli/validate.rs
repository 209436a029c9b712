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
    Profiles, compare_all, read_bench_file, summarise, terminal_table, write_csv, write_json, write_page,
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
    runs.retain(|run| arguments.only.iter().all(|text| run.label().contains(text.as_str())));
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
    write_json(&arguments.out.join("summary.json"), &outcomes, &groups)?;
    write_page(&arguments.out, &outcomes, &groups)?;
    console.say(terminal_table(&groups))?;
    let left_out = outcomes.iter().filter(|outcome| outcome.left_out.is_some()).count();
    let page = arguments.out.join("index.html");
    console.say(format_args!("{} runs, of which {left_out} could not be simulated", outcomes.len()))?;
    console.written("report", &page)?;
    Ok(Finished::new(json!({"runs": outcomes.len(), "left_out": left_out, "groups": groups})))
}
