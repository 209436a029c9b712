//! `kvsim run`: simulates a scenario and writes its report.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::exit;
use super::progress::Progress;
use super::trace_events::TraceEventsArguments;
use crate::report::{DEFAULT_STEPS, ExploreOptions, RunReport, TraceInfo, terminal_table};
use crate::scenario::{Scenario, Source};
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
    #[command(flatten)]
    trace_events: TraceEventsArguments,
    /// Write explorer.html, which plays the engine's steps block by block: those from FROM to before
    /// TO, counted from 0 [default: the first 400]
    #[arg(long, value_name = "FROM..TO", num_args = 0..=1, value_parser = parse_steps)]
    explore: Option<Option<ExploreOptions>>,
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
    let mut simulation =
        if arguments.explore.is_some() { scenario.build_explored()? } else { scenario.build()? };
    let trace_path = scenario.trace_path()?;
    let target = arguments.out.clone().unwrap_or_else(|| Path::new("reports").join(&scenario.file.name));
    let trace = trace_path.as_deref().map(TraceInfo::of).transpose()?;
    let mut report = RunReport::create(&target, scenario.run_info(&simulation, trace))?;
    let tiers: Vec<_> = simulation.replica().tier_stats().iter().map(|&(kind, _)| kind).collect();
    if let Some(options) = arguments.trace_events.options()? {
        report.trace_events(&options, &tiers)?;
    }
    if let Some(options) = &arguments.explore {
        report.explore(options.clone().unwrap_or_default(), &mut simulation);
    }
    let mut progress = Progress::new(&scenario.file.name, arguments.quiet);
    loop {
        match simulation.step(&mut report) {
            Ok(true) => progress.event(&simulation),
            Ok(false) => break,
            Err(error) => {
                progress.finish();
                return Err(error.in_trace(trace_path.as_deref().map(Path::display)).into());
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

fn parse_steps(text: &str) -> Result<ExploreOptions, String> {
    let wrong = || "give steps as FROM..TO, such as 0..200, 500.. or ..100".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let step = |text: &str, default: u64| {
        if text.is_empty() { Ok(default) } else { text.parse::<u64>().map_err(|_| wrong()) }
    };
    let start = step(from, 0)?;
    let steps = start..step(to, start.saturating_add(DEFAULT_STEPS))?;
    if steps.is_empty() {
        return Err(format!("there is no step from {} to before {}", steps.start, steps.end));
    }
    Ok(ExploreOptions { steps })
}
