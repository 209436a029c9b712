//! `kvsim run`: simulates a scenario and writes its report.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Args;

use super::console::{Console, Finished};
use super::diagnostic::InFile;
use super::explore::ExploreArguments;
use super::progress::Unit;
use super::trace_events::TraceEventsArguments;
use crate::report::{RunInfo, RunReport, TRACE_EVENTS, TraceInfo, terminal_table};
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
    /// Leave blocks.csv and blocks.parquet out: of a run with millions of evictions, most of the report's bytes
    #[arg(long)]
    no_blocks: bool,
    #[command(flatten)]
    explore: ExploreArguments,
    #[command(flatten)]
    trace_events: TraceEventsArguments,
}

/// An event takes less than a microsecond, and the bar looks at the clock.
const EVENTS_BETWEEN_LOOKS: u32 = 1_000;

pub(super) fn run(arguments: &RunArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let path = &arguments.scenario;
    let text = read_text(path)?;
    let mut scenario = Scenario::load(Source {
        path: path.clone(),
        text,
        overrides: arguments.overrides.clone(),
        seed: arguments.seed,
        trace: arguments.trace.clone(),
        skip_bad_rows: arguments.skip_bad_rows,
    })?;
    let explore = arguments.explore.options(scenario.num_engines() as u32)?;
    let trace_events = arguments.trace_events.options()?;
    let explores = explore.is_some();
    if explores {
        scenario.check_no_lockstep("--explore")?;
        scenario.hash_digests();
    }
    let mut simulation = scenario.build()?;
    let trace_path = scenario.trace_path()?;
    let target = arguments.out.clone().unwrap_or_else(|| Path::new("reports").join(&scenario.file.name));
    let trace = trace_path.as_deref().map(TraceInfo::of).transpose()?;
    let info = scenario.run_info(&simulation, trace);
    let mut report = RunReport::create(&target, RunInfo { blocks: !arguments.no_blocks, ..info })?;
    if let Some(options) = &trace_events {
        let tiers: Vec<_> = simulation.ending().tiers.iter().map(|tier| tier.kind).collect();
        report.trace_events(options, &tiers)?;
    }
    if let Some(options) = explore {
        report.explore(options, &mut simulation);
    }
    let mut bar = console.bar(&scenario.file.name, Unit::SimulatedSeconds, None);
    let mut events = 0;
    loop {
        match simulation.step(&mut report) {
            Ok(true) => {
                events += 1;
                if events == EVENTS_BETWEEN_LOOKS {
                    events = 0;
                    bar.set(simulation.now().as_secs_f64(), simulation.progress());
                }
            }
            Ok(false) => break,
            Err(error) => {
                return Err(match &trace_path {
                    Some(path) => {
                        let text = error.in_trace(Some(path.display()));
                        InFile::with_text(path, text, error).into()
                    }
                    None => error.into(),
                });
            }
        }
    }
    drop(bar);
    let summary = report.finish(simulation.ending())?;
    console.say(terminal_table(&summary))?;
    console.written("report", &target)?;
    if explores {
        console.written("explorer", &target.join("explorer.html"))?;
    }
    if let Some(options) = trace_events {
        console.written("trace of events", &options.path.unwrap_or_else(|| target.join(TRACE_EVENTS)))?;
    }
    Ok(Finished::new(&summary))
}
