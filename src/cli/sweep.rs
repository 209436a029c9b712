//! `kvsim sweep`: runs a scenario at many points, and joins the parts of several machines.

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::console::{Console, Finished};
use super::progress::{Bar, Unit};
use crate::study::sweep::{Overrides, Progress, Row, RunOptions, Shard, Sweep, merge, terminal_table};

/// Run a scenario at many points, several at a time; a killed sweep goes on where it was
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct SweepArguments {
    #[command(subcommand)]
    command: Option<SweepCommand>,
    /// The sweep, a YAML file
    #[arg(required = true)]
    sweep: Option<PathBuf>,
    /// Run only the i-th of n parts, for one of several machines; `kvsim sweep merge` joins them
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// The trace to replay, instead of the scenario's
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Leave out rows of the trace that cannot be read, and count them
    #[arg(long)]
    skip_bad_rows: bool,
    /// Change a field of the scenario for all points; may be given again
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// The folder of the journal and the results [default: reports/NAME, with the shard behind it]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the report of each run too, into the folder's `reports`
    #[arg(long)]
    reports: bool,
    /// Forget the runs of an earlier start
    #[arg(long)]
    restart: bool,
    /// Simulations at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

#[derive(Debug, Subcommand)]
enum SweepCommand {
    /// Join the folders of all shards of a sweep
    Merge(MergeArguments),
}

#[derive(Debug, Args)]
struct MergeArguments {
    /// The folders of the shards, in any order
    #[arg(required = true)]
    parts: Vec<PathBuf>,
    /// The folder of the whole sweep
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace the sweep that is there
    #[arg(long)]
    restart: bool,
}

pub(super) fn sweep(arguments: &SweepArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    match (&arguments.command, &arguments.sweep) {
        (Some(SweepCommand::Merge(arguments)), _) => merge_parts(arguments, console),
        (None, Some(path)) => run(arguments, path, console),
        (None, None) => Err("there is no sweep; give its YAML file".into()),
    }
}

fn run(arguments: &SweepArguments, path: &Path, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let overrides = Overrides {
        set: arguments.overrides.clone(),
        trace: arguments.trace.clone(),
        skip_bad_rows: arguments.skip_bad_rows,
    };
    let sweep = Sweep::load(path, &overrides)?;
    let shard = arguments.shard.unwrap_or(Shard::ALL);
    let folder = arguments.out.clone().unwrap_or_else(|| default_folder(&sweep.plan.name, shard));
    let options = RunOptions {
        folder: folder.clone(),
        shard,
        restart: arguments.restart,
        reports: arguments.reports,
        threads: arguments.threads.map_or(0, NonZeroUsize::get),
    };
    let name = &sweep.plan.name;
    let mut watch = Watch { name, console, bar: None, failed: 0 };
    let results = sweep.run(&options, &mut watch)?;
    drop(watch);
    let Some(results) = results else {
        console.written(&format!("shard {shard} is complete"), &folder)?;
        let whole = default_folder(name, Shard::ALL);
        let parts = match &arguments.out {
            Some(own) => format!("{} and the folders of the others", own.display()),
            None => all_parts(name, shard),
        };
        console.say(format_args!("when all are: kvsim sweep merge --out {} {parts}", whole.display()))?;
        return Ok(Finished::new(json!({"shard": shard})));
    };
    console.say(terminal_table(&results))?;
    console.written("results", &folder)?;
    Ok(Finished::new(results.to_json()))
}

fn default_folder(name: &str, shard: Shard) -> PathBuf {
    let name = match shard {
        Shard::ALL => name.to_owned(),
        Shard { index, of } => format!("{name}.{index}-of-{of}"),
    };
    Path::new("reports").join(name)
}

/// The folders of all shards, as one types them.
fn all_parts(name: &str, shard: Shard) -> String {
    const MOST_NAMED: usize = 8;
    let folder = |index: usize| default_folder(name, Shard { index, ..shard }).display().to_string();
    if shard.of <= MOST_NAMED {
        return (1..=shard.of).map(folder).collect::<Vec<_>>().join(" ");
    }
    // Spelt out by the shell.
    format!("reports/{name}.{{1..{of}}}-of-{of}", of = shard.of)
}

fn merge_parts(arguments: &MergeArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let results = merge(&arguments.parts, &arguments.out, arguments.restart)?;
    console.say(terminal_table(&results))?;
    console.written("results", &arguments.out)?;
    Ok(Finished::new(results.to_json()))
}

/// Tells of the runs.
struct Watch<'a> {
    name: &'a str,
    console: &'a Console,
    bar: Option<Bar<'a>>,
    failed: usize,
}

impl Progress for Watch<'_> {
    fn begin(&mut self, done: usize, all: usize) -> io::Result<()> {
        if done > 0 {
            self.console.note(format_args!("{}: {done} of {all} runs are there already", self.name))?;
        }
        self.bar = Some(self.console.bar(self.name, Unit::Runs, Some(all - done)));
        Ok(())
    }

    fn row(&mut self, row: &Row) -> io::Result<()> {
        if let Some(bar) = &mut self.bar {
            if row.error().is_some() {
                self.failed += 1;
                bar.remark(format!("{} with errors", self.failed));
            }
            bar.add(1);
        }
        self.console.row(row)
    }
}
