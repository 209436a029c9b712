//! `kvsim calibrate bench`: fits host terms to end-to-end results.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde_json::json;

use super::output::{counted, host_terms_table};
use super::{cannot_write, wrong_use};
use crate::calibrate::CalibrateError;
use crate::catalog::Gpu;
use crate::cli::console::{Console, Finished};
use crate::cli::progress::Unit;
use crate::cost::Profile;
use crate::text_file::read_text;
use crate::validate::{BenchRun, fit_host, read_bench_file};
use crate::whole_file::write_whole;

/// Fit host times and global efficiencies to end-to-end results
#[derive(Debug, Args)]
pub(super) struct BenchArguments {
    /// JSON of `vllm bench serve --save-result`, logs of requests (CSV), or tables of runs (CSV)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The GPU whose results are fitted
    #[arg(long)]
    gpu: String,
    /// The profile that is fitted on, instead of the built-in one
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Only runs whose id, source, GPU, model, tpN, vVERSION and format hold this text; may be given again
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Leave out runs that hold this text; may be given again
    #[arg(long, value_name = "TEXT")]
    without: Vec<String>,
    /// The profile that is written
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn bench(arguments: &BenchArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let gpu = Gpu::find(&arguments.gpu)?;
    let mut runs = Vec::new();
    for path in &arguments.files {
        runs.extend(read_bench_file(path, gpu.name)?);
    }
    let all = runs.len();
    runs.retain(|run: &BenchRun| {
        let label = run.label();
        Gpu::find(&run.settings.gpu).is_ok_and(|other| other.name == gpu.name)
            && arguments.only.iter().all(|text| label.contains(text.as_str()))
            && !arguments.without.iter().any(|text| label.contains(text.as_str()))
    });
    if runs.is_empty() {
        return Err(wrong_use(
            format!("none of the {all} runs is on {} and holds what --only and --without ask for", gpu.name),
            "give results of this GPU, name the GPU that they are of with --gpu, or say less with --only",
        ));
    }
    let mut profile = match &arguments.profile {
        Some(path) => read_profile(path)?,
        None => Profile::built_in(gpu)?.clone(),
    };
    let bar = Mutex::new(console.bar(gpu.name, Unit::Runs, None));
    let fit = fit_host(&runs, &profile, &|most| {
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.set_all(most);
        bar.add(1);
    })?;
    drop(bar);
    console.say(format_args!(
        "{} on {}: median error {:.1} % before, {:.1} % after\n",
        counted(fit.num_runs, "run"),
        gpu.name,
        fit.before_percent,
        fit.after_percent
    ))?;
    console.say(host_terms_table(&profile.host, &fit.host))?;
    if fit.after_percent >= fit.before_percent {
        console.say("\ncaution: no better than before; these runs do not tell the host terms")?;
    }
    profile.host = fit.host;
    console.say("")?;
    if let Some(path) = &arguments.out {
        write_whole(path, profile.to_yaml()).map_err(cannot_write(path))?;
        console.written("profile", path)?;
    }
    Ok(Finished::new(json!({
        "gpu": gpu.name,
        "runs": fit.num_runs,
        "median_error_before_percent": fit.before_percent,
        "median_error_after_percent": fit.after_percent,
        "host": fit.host,
    })))
}

pub(in crate::cli) fn read_profile(path: &Path) -> Result<Profile, Box<dyn Error>> {
    let text = read_text(path)?;
    Ok(Profile::from_yaml(&text)
        .map_err(|source| CalibrateError::Profile { path: path.to_owned(), source: Box::new(source) })?)
}
