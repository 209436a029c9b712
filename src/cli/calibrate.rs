//! `kvsim calibrate`: measured timings for the cost model.

use std::error::Error;

use clap::{Args, Subcommand};

use super::calibrate_gpu::{GpuArguments, calibrate_gpu};

/// Measure what the cost model needs to know of a GPU
#[derive(Debug, Args)]
pub(super) struct CalibrateArguments {
    #[command(subcommand)]
    command: CalibrateCommand,
}

#[derive(Debug, Subcommand)]
enum CalibrateCommand {
    Gpu(GpuArguments),
}

pub(super) fn calibrate(arguments: &CalibrateArguments) -> Result<u8, Box<dyn Error>> {
    match &arguments.command {
        CalibrateCommand::Gpu(arguments) => calibrate_gpu(arguments),
    }
}
