//! The command line: one file for each subcommand.
//!
//! Every command says what it has to say through the [`Console`], and returns what it came to as
//! [`Finished`]: that is how `--quiet` and `--json` mean the same everywhere.

mod calibrate;
mod compare;
mod completions;
mod conform;
mod console;
mod curve;
mod diagnostic;
mod exit;
mod explore;
mod man;
mod plan;
mod progress;
mod run;
mod size;
mod sweep;
mod trace;
mod trace_events;
mod validate;

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use console::{Console, Finished, OutputOptions};
use diagnostic::Usage;

/// Simulates LLM serving with vLLM's prefix cache.
#[derive(Debug, Parser)]
#[command(name = "kvsim", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    output: OutputOptions,
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
    Completions(completions::CompletionsArguments),
    Man(man::ManArguments),
}

/// Runs the command that was typed.
pub fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let parsed =
        takes_negative_numbers(Arguments::command()).try_get_matches_from(&typed).and_then(|matches| {
            let name = names(&matches).join(" ");
            Ok((name, Arguments::from_arg_matches(&matches)?))
        });
    let (name, arguments) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return ExitCode::from(not_understood(&error, &typed)),
    };
    let console = Console::new(arguments.output);
    let result = console.started(&name).map_err(Into::into).and_then(|()| {
        let finished = dispatch(&arguments.command, &console)?;
        console.finished(&finished)?;
        Ok(finished.code)
    });
    let code = result.unwrap_or_else(|error: Box<dyn Error>| {
        if exit::is_closed_pipe(error.as_ref()) {
            return exit::OK;
        }
        let code = if error.is::<calibrate::NoGpu>() { exit::NO_GPU } else { exit::BAD_INPUT };
        console.error(error.as_ref(), code);
        code
    });
    ExitCode::from(code)
}

/// A number below zero is a wrong value and no unknown option: its argument says what it takes.
fn takes_negative_numbers(command: clap::Command) -> clap::Command {
    command.allow_negative_numbers(true).mut_subcommands(takes_negative_numbers)
}

fn dispatch(command: &Command, console: &Console) -> Result<Finished, Box<dyn Error>> {
    match command {
        Command::Run(arguments) => run::run(arguments, console),
        Command::Size(arguments) => size::size(arguments, console),
        Command::Sweep(arguments) => sweep::sweep(arguments, console),
        Command::Plan(arguments) => plan::plan(arguments, console),
        Command::Curve(arguments) => curve::curve(arguments, console),
        Command::Compare(arguments) => compare::run(arguments, console),
        Command::Conform(arguments) => conform::conform(arguments, console),
        Command::Trace(arguments) => trace::trace(arguments, console),
        Command::Calibrate(arguments) => calibrate::calibrate(arguments, console),
        Command::Validate(arguments) => validate::validate(arguments, console),
        Command::Completions(arguments) => completions::completions(arguments, console),
        Command::Man(arguments) => man::man(arguments, console),
    }
}

/// The names of the command and what is below it, such as `trace`, `info`.
fn names(mut matches: &ArgMatches) -> Vec<&str> {
    let mut names = Vec::new();
    while let Some((name, below)) = matches.subcommand() {
        names.push(name);
        matches = below;
    }
    names
}

/// What was typed is no command, or asks for help or the version. Returns the exit code.
fn not_understood(error: &clap::Error, typed: &[OsString]) -> u8 {
    // Help and version are no errors; a closed pipe while they are printed is none either.
    if !error.use_stderr() {
        let _ = error.print();
        return exit::OK;
    }
    if typed.iter().any(|argument| argument == "--json") {
        let console = Console::new(OutputOptions { quiet: false, json: true });
        console.error(&Usage::new(&error.render().to_string()), exit::BAD_INPUT);
    } else {
        let _ = error.print();
    }
    exit::BAD_INPUT
}
