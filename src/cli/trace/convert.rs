//! `kvsim trace convert`: the same trace in another format.

use std::error::Error;

use clap::Args;

use super::input::InputArguments;
use super::output::OutputArguments;
use crate::cli::console::{Console, Finished};
use crate::workload::trace::TraceReader;

/// Write a trace in another format, and tell what that cannot say
#[derive(Debug, Args)]
pub(super) struct ConvertArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    output: OutputArguments,
}

pub(super) fn convert(arguments: &ConvertArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    arguments.output.check_keeps(arguments.input.path())?;
    let mut reader = arguments.input.open(console)?;
    let header = reader.header(None);
    let written = arguments.output.write(&header, console, |write| {
        let mut copy = || {
            while let Some(request) = reader.next_request()? {
                write(&request)?;
            }
            Ok(())
        };
        copy().map_err(|error| arguments.input.locate(error))
    })?;
    Ok(Finished::new(written))
}
