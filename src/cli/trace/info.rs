//! `kvsim trace info`: what a trace holds.

use std::error::Error;

use clap::Args;

use super::input::InputArguments;
use crate::cli::console::{Console, Finished};
use crate::trace_tools::info::{info_table, trace_info};

/// Show what a trace holds: requests, rates, lengths, what could be reused, sessions
#[derive(Debug, Args)]
pub(super) struct InfoArguments {
    #[command(flatten)]
    input: InputArguments,
    /// Block sizes of the prefix cache, in tokens
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "16,32,64,128,256")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    block_sizes: Vec<u32>,
}

pub(super) fn info(arguments: &InfoArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let mut reader = arguments.input.open(console)?;
    let info = trace_info(reader.format, &mut reader, &arguments.block_sizes)
        .map_err(|error| arguments.input.locate(error))?;
    drop(reader);
    console.say(info_table(&info).trim_end_matches('\n'))?;
    Ok(Finished::new(&info))
}
