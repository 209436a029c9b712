//! `kvsim run`: simulates a scenario and writes its report.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use sha2::{Digest, Sha256};

use super::exit;
use super::progress::Progress;
use crate::report::{RunInfo, RunReport, TraceInfo, terminal_table};
use crate::scenario::{Scenario, Source};
use crate::simulation::{Simulation, SimulationError};
use crate::text_file::read_text;

/// Simulate a scenario and write its report
#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// The scenario, a YAML file
    scenario: PathBuf,
    /// The trace to replay, instead of the scenario's
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Leave out rows of the trace that cannot be read, and count them
    #[arg(long)]
    skip_bad_rows: bool,
    /// Change a field of the scenario, such as engine.block_size=32; may be given again
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// The seed, instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// The report's folder [default: reports/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn run(arguments: &RunArguments) -> Result<u8, Box<dyn Error>> {
    let path = &arguments.scenario;
    let text = read_text(path)?;
    let scenario = Scenario::load(Source {
        path: path.clone(),
        text,
        overrides: arguments.overrides.clone(),
        seed: arguments.seed,
        trace: arguments.trace.clone(),
        skip_bad_rows: arguments.skip_bad_rows,
    })?;
    let mut simulation = scenario.build()?;
    let trace_path = scenario.trace_path()?;
    let target = arguments.out.clone().unwrap_or_else(|| Path::new("reports").join(&scenario.file.name));
    let mut report = RunReport::create(&target, run_info(&scenario, &simulation, trace_path.as_deref())?)?;
    let mut progress = Progress::new(&scenario.file.name, arguments.quiet);
    loop {
        match simulation.step(&mut report) {
            Ok(true) => progress.event(&simulation),
            Ok(false) => break,
            Err(error) => {
                progress.finish();
                return Err(locate(&error, trace_path.as_deref()).into());
            }
        }
    }
    progress.finish();
    let summary = report.finish(&simulation.replica().tier_stats(), simulation.workload_notes())?;
    if !arguments.quiet {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", terminal_table(&summary))?;
        writeln!(out, "report: {}", target.display())?;
    }
    Ok(exit::OK)
}

fn run_info(
    scenario: &Scenario,
    simulation: &Simulation,
    trace_path: Option<&Path>,
) -> Result<RunInfo, Box<dyn Error>> {
    let trace = trace_path.map(trace_info).transpose()?;
    Ok(RunInfo {
        name: scenario.file.name.clone(),
        seed: scenario.seed(),
        scenario: scenario.resolved(),
        trace,
        model: scenario.model.name.clone(),
        gpu: scenario.gpu.name.to_owned(),
        tensor_parallel_size: scenario.file.engine.tensor_parallel_size,
        num_gpu_blocks: scenario.engine.num_gpu_blocks,
        block_size_tokens: scenario.engine.block_size,
        enable_prefix_caching: scenario.engine.enable_prefix_caching,
        num_kv_cache_groups: scenario.engine.kv_cache_groups.len(),
        shortest_hit: simulation.replica().scheduler().kv_cache_manager().shortest_hit(),
        kv_events: scenario.engine.enable_kv_cache_events,
        tenants: simulation.tenants().to_vec(),
    })
}

fn trace_info(path: &Path) -> io::Result<TraceInfo> {
    let mut hasher = Sha256::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = io::Read::read(&mut file, &mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
    }
    Ok(TraceInfo {
        file_name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        sha256: hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
    })
}

/// The error with the trace's name and line in front, where it comes from one.
fn locate(error: &SimulationError, trace: Option<&Path>) -> String {
    let Some(trace) = trace.map(Path::display) else { return error.to_string() };
    match error {
        SimulationError::Workload(error) => format!("{trace}: {error}"),
        SimulationError::Request { trace_line: Some(line), source, .. } => {
            format!("{trace}: line {line}: {source}")
        }
        other => other.to_string(),
    }
}
