//! `kvsim calibrate bench`: fits host terms to end-to-end results.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use super::exit;
use crate::catalog::Gpu;
use crate::cost::Coefficients;
use crate::validate::{BenchRun, fit_host, read_runs_csv};

/// Fit host times and global efficiencies to end-to-end results
#[derive(Debug, Args)]
pub(super) struct BenchArguments {
    /// Tables of runs
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The GPU whose results are fitted
    #[arg(long)]
    gpu: String,
    /// Leave out runs whose id, source, model or version holds this text; may be given again
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
        runs.extend(read_runs_csv(path)?);
    }
    runs.retain(|run: &BenchRun| {
        let settings = &run.settings;
        let text = format!(
            "{} {} {} tp{} v{} {}",
            run.id,
            run.source,
            settings.model,
            settings.tensor_parallel_size,
            settings.engine_version,
            settings.weight_dtype.as_deref().unwrap_or("bf16")
        );
        Gpu::find(&settings.gpu).is_ok_and(|other| other.name == gpu.name)
            && !arguments.without.iter().any(|out| text.contains(out.as_str()))
    });
    let mut coefficients = Coefficients::built_in(gpu)?;
    let fit = fit_host(&runs, &coefficients)?;
    coefficients.host = fit.host;
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{} runs on {}: median error {:.1} % before, {:.1} % after",
        fit.num_runs, gpu.name, fit.before_percent, fit.after_percent
    )?;
    writeln!(out, "{}", serde_json::to_string_pretty(&fit.host)?)?;
    if let Some(path) = &arguments.out {
        std::fs::write(path, serde_json::to_string_pretty(&coefficients)?)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(exit::OK)
}
