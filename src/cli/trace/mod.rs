//! `kvsim trace`: tells of a trace, and makes others of it.

mod convert;
mod info;
mod input;
mod output;

use std::error::Error;

use clap::{Args, Subcommand};

/// Tell of a trace, or make another of it
#[derive(Debug, Args)]
pub(super) struct TraceArguments {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Debug, Subcommand)]
enum TraceCommand {
    Info(info::InfoArguments),
    Convert(convert::ConvertArguments),
}

pub(super) fn trace(arguments: &TraceArguments) -> Result<u8, Box<dyn Error>> {
    match &arguments.command {
        TraceCommand::Info(arguments) => info::info(arguments),
        TraceCommand::Convert(arguments) => convert::convert(arguments),
    }
}
