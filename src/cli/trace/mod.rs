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

pub(super) fn trace(arguments: &TraceArguments) -> Result<u8, Box<dyn Error>> {
    match &arguments.command {
        TraceCommand::Info(arguments) => info::info(arguments),
        TraceCommand::Convert(arguments) => convert::convert(arguments),
        TraceCommand::Generate(arguments) => generate::generate(arguments),
        TraceCommand::Sample(arguments) => sample::sample(arguments),
        TraceCommand::Scale(arguments) => scale::scale(arguments),
    }
}
