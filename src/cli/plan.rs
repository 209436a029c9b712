//! `kvsim plan`: what to rent so that users are served as promised.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::exit;
use crate::study::plan::{Overrides, Planner, Progress, RunOptions, terminal_text};

/// Find the cheapest servers that keep what users are promised; a killed plan goes on where it was
#[derive(Debug, Args)]
pub(super) struct PlanArguments {
    /// The plan, a YAML file
    plan: PathBuf,
    /// The trace to replay, instead of the scenario's
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Change a field of the scenario for all candidates; may be given again
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// The folder of the journal and the results [default: reports/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Forget the runs of an earlier start
    #[arg(long)]
    restart: bool,
    /// Simulations at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print the results as JSON, as in the folder's plan.json
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn plan(arguments: &PlanArguments) -> Result<u8, Box<dyn Error>> {
    let overrides = Overrides { set: arguments.overrides.clone(), trace: arguments.trace.clone() };
    let planner = Planner::load(&arguments.plan, &overrides)?;
    let folder = arguments.out.clone().unwrap_or_else(|| Path::new("reports").join(&planner.name));
    let options = RunOptions {
        folder: folder.clone(),
        restart: arguments.restart,
        threads: arguments.threads.unwrap_or(0),
    };
    let mut watch = Watch { name: planner.name.clone(), quiet: arguments.quiet, bar: None, runs: 0 };
    let result = planner.run(&options, &mut watch);
    watch.finish();
    let result = result?;
    if arguments.quiet {
        return Ok(exit::OK);
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&result)?)?;
    } else {
        write!(out, "{}", terminal_text(&result))?;
        writeln!(out, "\nplan: {}", folder.display())?;
    }
    Ok(exit::OK)
}

/// Candidates that are done, and how many simulations there were: nobody knows before how many it takes.
struct Watch {
    name: String,
    quiet: bool,
    bar: Option<ProgressBar>,
    runs: u64,
}

impl Watch {
    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Watch {
    fn begin(&mut self, runs: usize, candidates: usize) {
        if runs > 0 && !self.quiet {
            eprintln!("{}: {runs} runs are there already", self.name);
        }
        self.bar = (!self.quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(candidates as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template(
                "{spinner} {prefix} [{bar:30}] {pos}/{len} candidates, {msg} [{elapsed_precise}]",
            );
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(self.name.clone());
            bar.set_message("0 runs");
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
    }

    fn run(&mut self) {
        self.runs += 1;
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} runs", self.runs));
        }
    }

    fn candidate(&mut self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }
}
