//! `kvsim sweep`: runs a scenario at many points, and joins the parts of several machines.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use indicatif::ProgressBar;

use super::exit;
use super::progress::runs_bar;
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
    threads: Option<usize>,
    /// Print each finished run as a line of JSON, and no table
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
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
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub(super) fn sweep(arguments: &SweepArguments) -> Result<u8, Box<dyn Error>> {
    match (&arguments.command, &arguments.sweep) {
        (Some(SweepCommand::Merge(arguments)), _) => merge_parts(arguments),
        (None, Some(path)) => run(arguments, path),
        // clap has asked for one of them.
        (None, None) => Ok(exit::BAD_INPUT),
    }
}

fn run(arguments: &SweepArguments, path: &Path) -> Result<u8, Box<dyn Error>> {
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
        threads: arguments.threads.unwrap_or(0),
    };
    let name = sweep.plan.name.clone();
    let mut watch = Watch { name, quiet: arguments.quiet, json: arguments.json, bar: None, failed: 0 };
    let results = sweep.run(&options, &mut watch);
    watch.finish();
    let results = results?;
    if arguments.quiet || arguments.json {
        return Ok(exit::OK);
    }
    let mut out = io::stdout().lock();
    match results {
        Some(results) => {
            writeln!(out, "{}", terminal_table(&results))?;
            writeln!(out, "results: {}", folder.display())?;
        }
        None => writeln!(
            out,
            "shard {shard} is complete: {}\nwhen all are: kvsim sweep merge --out {} {}",
            folder.display(),
            default_folder(&sweep.plan.name, Shard::ALL).display(),
            (1..=shard.of)
                .map(|index| default_folder(&sweep.plan.name, Shard { index, ..shard }).display().to_string())
                .collect::<Vec<_>>()
                .join(" ")
        )?,
    }
    Ok(exit::OK)
}

fn default_folder(name: &str, shard: Shard) -> PathBuf {
    let name = match shard {
        Shard::ALL => name.to_owned(),
        Shard { index, of } => format!("{name}.{index}-of-{of}"),
    };
    Path::new("reports").join(name)
}

fn merge_parts(arguments: &MergeArguments) -> Result<u8, Box<dyn Error>> {
    let results = merge(&arguments.parts, &arguments.out, arguments.restart)?;
    if !arguments.quiet {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", terminal_table(&results))?;
        writeln!(out, "results: {}", arguments.out.display())?;
    }
    Ok(exit::OK)
}

/// A bar on a terminal, lines of JSON where they were asked for.
struct Watch {
    name: String,
    quiet: bool,
    json: bool,
    bar: Option<ProgressBar>,
    failed: usize,
}

impl Watch {
    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Watch {
    fn begin(&mut self, done: usize, all: usize) {
        if done > 0 && !self.quiet {
            eprintln!("{}: {done} of {all} runs are there already", self.name);
        }
        self.bar = runs_bar(&self.name, done, all, self.quiet);
    }

    fn row(&mut self, row: &Row) -> io::Result<()> {
        if row.error().is_some() {
            self.failed += 1;
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
            if self.failed > 0 {
                bar.set_message(format!("{} with errors", self.failed));
            }
        }
        if self.json {
            writeln!(io::stdout().lock(), "{}", serde_json::to_string(row)?)?;
        }
        Ok(())
    }
}
