//! The command line: one file for each subcommand.

mod calibrate;
mod compare;
mod conform;
mod curve;
mod exit;
mod plan;
mod progress;
mod run;
mod size;
mod sweep;
mod trace;
mod validate;

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
    Size(size::SizeArguments),
    Sweep(sweep::SweepArguments),
    Plan(plan::PlanArguments),
    Curve(curve::CurveArguments),
    Compare(compare::CompareArguments),
    Conform(conform::ConformArguments),
    Trace(trace::TraceArguments),
    Calibrate(calibrate::CalibrateArguments),
    Validate(validate::ValidateArguments),
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
        Command::Size(arguments) => size::size(&arguments),
        Command::Sweep(arguments) => sweep::sweep(&arguments),
        Command::Plan(arguments) => plan::plan(&arguments),
        Command::Curve(arguments) => curve::curve(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Conform(arguments) => conform::conform(&arguments),
        Command::Trace(arguments) => trace::trace(&arguments),
        Command::Calibrate(arguments) => calibrate::calibrate(&arguments),
        Command::Validate(arguments) => validate::validate(&arguments),
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
