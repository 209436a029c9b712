//! `kvsim calibrate hashing`: fits the time of block hashing to timings of vLLM's own on a CPU.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;

use super::cannot_write;
use super::output::hashing_table;
use super::table::today;
use crate::calibrate::fit_hashing;
use crate::cli::console::{Console, Finished};
use crate::whole_file::write_whole;

/// Fit the time of block hashing to a table of tests/vllm/measure_hashing.py (CSV)
#[derive(Debug, Args)]
pub(super) struct HashingArguments {
    /// The table to fit
    table: PathBuf,
    /// Write the profile to this file, for `block_hashing: {profile: FILE}` of a scenario
    #[arg(long, value_name = "PROFILE")]
    out: Option<PathBuf>,
    /// The date in the profile [default: today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
}

pub(super) fn hashing(arguments: &HashingArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let profile = fit_hashing(&arguments.table, arguments.date.clone().unwrap_or_else(today))?;
    if let Some(out) = &arguments.out {
        write_whole(out, profile.to_yaml()).map_err(cannot_write(out))?;
    }
    console.say(format_args!("{}\n{}", profile.measured_on, hashing_table(&profile)))?;
    if let Some(out) = &arguments.out {
        console.say("")?;
        console.written("written", out)?;
    }
    Ok(Finished::new(profile))
}
