//! `kvsim calibrate bench`: fits host terms to end-to-end results.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::catalog::Gpu;
use crate::cli::exit;
use crate::cost::Profile;
use crate::validate::{BenchRun, fit_host, read_bench_file};

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

pub(super) fn bench(arguments: &BenchArguments) -> Result<u8, Box<dyn Error>> {
    let gpu = Gpu::find(&arguments.gpu)?;
    let mut runs = Vec::new();
    for path in &arguments.files {
        runs.extend(read_bench_file(path, gpu.name)?);
    }
    runs.retain(|run: &BenchRun| {
        let label = run.label();
        Gpu::find(&run.settings.gpu).is_ok_and(|other| other.name == gpu.name)
            && arguments.only.iter().all(|text| label.contains(text.as_str()))
            && !arguments.without.iter().any(|text| label.contains(text.as_str()))
    });
    let mut profile = match &arguments.profile {
        Some(path) => read_profile(path)?,
        None => Profile::built_in(gpu)?.clone(),
    };
    let fit = fit_host(&runs, &profile)?;
    profile.host = fit.host;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} runs on {}: median error {:.1} % before, {:.1} % after",
        fit.num_runs, gpu.name, fit.before_percent, fit.after_percent
    )?;
    writeln!(out, "{}", serde_json::to_string_pretty(&fit.host)?)?;
    if let Some(path) = &arguments.out {
        std::fs::write(path, profile.to_yaml())
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(exit::OK)
}

pub(in crate::cli) fn read_profile(path: &Path) -> Result<Profile, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the profile {}: {error}", path.display()))?;
    Ok(Profile::from_yaml(&text).map_err(|error| format!("{}: {error}", path.display()))?)
}
