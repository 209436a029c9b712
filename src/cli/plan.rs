//! `kvsim plan`: what to rent so that users are served as promised.

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;

use super::console::{Console, Finished};
use super::progress::{Bar, Unit};
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
    threads: Option<NonZeroUsize>,
}

pub(super) fn plan(arguments: &PlanArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let overrides = Overrides { set: arguments.overrides.clone(), trace: arguments.trace.clone() };
    let planner = Planner::load(&arguments.plan, &overrides)?;
    let folder = arguments.out.clone().unwrap_or_else(|| Path::new("reports").join(&planner.name));
    let options = RunOptions {
        folder: folder.clone(),
        restart: arguments.restart,
        threads: arguments.threads.map_or(0, NonZeroUsize::get),
    };
    let mut watch = Watch { name: &planner.name, console, bar: None, candidates: (0, 0) };
    let result = planner.run(&options, &mut watch)?;
    drop(watch);
    console.say(terminal_text(&result))?;
    console.written("plan", &folder)?;
    Ok(Finished::new(result))
}

/// Counts the simulations: nobody knows before how many it takes.
struct Watch<'a> {
    name: &'a str,
    console: &'a Console,
    bar: Option<Bar<'a>>,
    /// Done, and all.
    candidates: (usize, usize),
}

impl Watch<'_> {
    fn tell(&mut self) {
        let (done, all) = self.candidates;
        if let Some(bar) = &mut self.bar {
            bar.remark(format!("{done} of {all} candidates"));
        }
    }
}

impl Progress for Watch<'_> {
    fn begin(&mut self, runs: usize, candidates: usize) -> io::Result<()> {
        if runs > 0 {
            self.console.note(format_args!("{}: {runs} runs are there already", self.name))?;
        }
        self.bar = Some(self.console.bar(self.name, Unit::Runs, None));
        self.candidates.1 = candidates;
        self.tell();
        Ok(())
    }

    fn run(&mut self) {
        if let Some(bar) = &mut self.bar {
            bar.add(1);
        }
    }

    fn candidate(&mut self) {
        self.candidates.0 += 1;
        self.tell();
    }
}
