//! `kvsim trace scale`: more or less load of the same kind.

use std::error::Error;

use clap::Args;

use super::input::{InputArguments, how_known, number_within};
use super::output::OutputArguments;
use crate::cli::console::{Console, Finished};
use crate::cli::progress::Unit;
use crate::trace_tools::{Population, scale_rate};
use crate::workload::trace::TraceReader;

/// Write a trace with more or less load: the same requests faster, or more users
#[derive(Debug, Args)]
pub(super) struct ScaleArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    factor: FactorArguments,
    /// Another seed multiplies other sessions, and starts them at other times
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct FactorArguments {
    /// Divide times and think times: 2 sends the same requests in half the time
    #[arg(long, value_name = "FACTOR", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Multiply the sessions, each with tokens of its own behind what several sessions share; below 1
    /// leave whole sessions out. Holds the trace in memory
    #[arg(long, value_name = "FACTOR", value_parser = parse_population)]
    population: Option<f64>,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    number_within(text, 1e-6, 1e6)
}

fn parse_population(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 1e4)
}

pub(super) fn scale(arguments: &ScaleArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    arguments.output.check_keeps(arguments.input.path())?;
    match (arguments.factor.rate, arguments.factor.population) {
        (Some(rate), _) => at_rate(arguments, rate, console),
        (None, population) => with_population(arguments, population.unwrap_or(1.0), console),
    }
}

fn at_rate(
    ScaleArguments { input, output, .. }: &ScaleArguments,
    rate: f64,
    console: &Console,
) -> Result<Finished, Box<dyn Error>> {
    let mut reader = input.open(console)?;
    let made = format!("times and think times divided by {rate}");
    let header = reader.header(Some(made));
    let written = output.write(&header, console, |write| {
        let mut copy = || {
            while let Some(mut request) = reader.next_request()? {
                scale_rate(&mut request, rate)?;
                write(&request)?;
            }
            Ok(())
        };
        copy().map_err(|error| input.locate(error))
    })?;
    Ok(Finished::new(written))
}

fn with_population(
    ScaleArguments { input, output, seed, .. }: &ScaleArguments,
    factor: f64,
    console: &Console,
) -> Result<Finished, Box<dyn Error>> {
    let mut reader = input.open(console)?;
    let population = Population::read(&mut reader).map_err(|error| input.locate(error))?;
    let made = format!(
        "sessions multiplied by {factor} with --seed {seed}: copies have tokens of their own behind what several \
         sessions share, and start when other sessions start"
    );
    let header = reader.header(Some(made));
    let requests = population.multiply(factor, *seed).map_err(|error| input.locate(error))?;
    let written = output.write(&header, console, |write| {
        let mut bar = console.bar("writing", Unit::Requests, Some(requests.len()));
        let mut write = |request| {
            bar.add(1);
            write(request)
        };
        requests.iter().try_for_each(&mut write).map_err(|error| input.locate(error))
    })?;
    let (before, after) = (population.num_sessions(), (population.num_sessions() as f64 * factor).round());
    let known = how_known(population.num_estimated(), before);
    console.note(format_args!("sessions: {after} from {before}{known}"))?;
    if factor > 1.0 {
        let (shared, all) = population.shared_prompt_tokens();
        console.note(format_args!(
            "shared with copies: {shared} of {all} prompt tokens, which several sessions have in front"
        ))?;
    }
    Ok(Finished::new(written))
}
