//! The command line: one file for each subcommand.

mod calibrate;
mod calibrate_gpu;
mod conform;
mod exit;
mod progress;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Simulates LLM serving with vLLM's prefix cache.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::RunArguments),
    Calibrate(calibrate::CalibrateArguments),
    Conform(conform::ConformArguments),
}

/// Runs the command that was typed.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors; a closed pipe while they are printed is none either.
            let code = if error.use_stderr() { exit::BAD_INPUT } else { exit::OK };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let result = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Calibrate(arguments) => calibrate::calibrate(&arguments),
        Command::Conform(arguments) => conform::conform(&arguments),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if exit::is_closed_pipe(error.as_ref()) => ExitCode::from(exit::OK),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(exit::BAD_INPUT)
        }
    }
}
