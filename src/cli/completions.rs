//! `kvsim completions`: what a shell needs to complete our commands.

use std::error::Error;

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::Arguments;
use super::console::{Console, Finished};

/// Print completions for a shell
#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// The shell that will read them
    shell: Shell,
}

pub(super) fn completions(
    arguments: &CompletionsArguments,
    console: &Console,
) -> Result<Finished, Box<dyn Error>> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut Arguments::command(), "kvsim", &mut script);
    let script = String::from_utf8_lossy(&script);
    console.product(&script)?;
    Ok(Finished::new(script))
}
