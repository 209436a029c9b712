//! `kvsim trace info`: what a trace holds.

use std::error::Error;
use std::io::{self, Write};

use clap::Args;

use super::input::InputArguments;
use crate::cli::exit;
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn info(arguments: &InfoArguments) -> Result<u8, Box<dyn Error>> {
    let mut reader = arguments.input.open()?;
    let info = trace_info(reader.format, &mut reader, &arguments.block_sizes)
        .map_err(|error| arguments.input.locate(error))?;
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &info).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", info_table(&info))?;
    }
    Ok(exit::OK)
}
