//! `kvsim trace`: tells of a trace, and makes others of it.

mod convert;
mod generate;
mod info;
pub(super) mod input;
mod output;
mod sample;
mod scale;

use std::error::Error;

use clap::{Args, Subcommand};

use super::console::{Console, Finished};

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
    Generate(generate::GenerateArguments),
    Sample(sample::SampleArguments),
    Scale(scale::ScaleArguments),
}

pub(super) fn trace(arguments: &TraceArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    match &arguments.command {
        TraceCommand::Info(arguments) => info::info(arguments, console),
        TraceCommand::Convert(arguments) => convert::convert(arguments, console),
        TraceCommand::Generate(arguments) => generate::generate(arguments, console),
        TraceCommand::Sample(arguments) => sample::sample(arguments, console),
        TraceCommand::Scale(arguments) => scale::scale(arguments, console),
    }
}
