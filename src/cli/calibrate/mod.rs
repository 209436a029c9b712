//! `kvsim calibrate`: measured kernel timings to a profile, and what a profile is worth.

pub(super) mod bench;
mod gpu;
mod hashing;
mod host_terms;
mod output;
mod show;
mod table;

use std::error::Error;
use std::io;
use std::path::Path;

use clap::{Args, Subcommand};

pub(super) use gpu::NoGpu;
pub(super) use output::counted;

use super::console::{Console, Finished};
use crate::catalog::Gpu;

use crate::calibrate::CalibrateError;

/// Fit the cost model to measured timings, or show how well it fits
#[derive(Debug, Args)]
pub(super) struct CalibrateArguments {
    #[command(subcommand)]
    command: CalibrateCommand,
}

#[derive(Debug, Subcommand)]
enum CalibrateCommand {
    Gpu(gpu::GpuArguments),
    Table(table::TableArguments),
    Bench(bench::BenchArguments),
    Hashing(hashing::HashingArguments),
    Show(show::ShowArguments),
}

pub(super) fn calibrate(
    arguments: &CalibrateArguments,
    console: &Console,
) -> Result<Finished, Box<dyn Error>> {
    match &arguments.command {
        CalibrateCommand::Gpu(arguments) => gpu::calibrate_gpu(arguments, console),
        CalibrateCommand::Table(arguments) => table::table(arguments, console),
        CalibrateCommand::Bench(arguments) => bench::bench(arguments, console),
        CalibrateCommand::Hashing(arguments) => hashing::hashing(arguments, console),
        CalibrateCommand::Show(arguments) => show::show(arguments, console),
    }
}

fn wrong_use(problem: String, hint: &str) -> Box<dyn Error> {
    CalibrateError::Use { problem, hint: hint.to_owned() }.into()
}

/// What stands for a profile on the command line.
enum ProfileName<'a> {
    File(&'a Path),
    /// Its built-in profile.
    Gpu(&'static Gpu),
}

impl<'a> ProfileName<'a> {
    fn parse(name: &'a str) -> Result<Self, Box<dyn Error>> {
        let path = Path::new(name);
        if is_yaml(path) {
            return Ok(Self::File(path));
        }
        match Gpu::find(name) {
            Ok(gpu) => Ok(Self::Gpu(gpu)),
            Err(_) if path.extension().is_some() || path.exists() => Err(wrong_use(
                format!("`{name}` is neither a GPU nor the name of a profile, which ends in .yaml"),
                "give a profile that `kvsim calibrate table` wrote, or a GPU with a built-in one such as H100",
            )),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> CalibrateError {
    let path = path.to_owned();
    move |source| CalibrateError::Write { path, source }
}
