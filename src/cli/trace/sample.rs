//! `kvsim trace sample`: fewer sessions, each whole.

use std::error::Error;

use clap::Args;

use super::input::{InputArguments, how_known, number_within};
use super::output::OutputArguments;
use crate::cli::console::{Console, Finished};
use crate::trace_tools::{SampleSize, SessionTable, sample as choose};
use crate::workload::trace::TraceReader;

/// Write some of a trace's sessions, each whole
#[derive(Debug, Args)]
pub(super) struct SampleArguments {
    #[command(flatten)]
    input: InputArguments,
    #[command(flatten)]
    output: OutputArguments,
    #[command(flatten)]
    size: SizeArguments,
    /// Another seed chooses other sessions
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct SizeArguments {
    /// The share of the sessions, from 0 to 1
    #[arg(long, value_parser = parse_fraction)]
    fraction: Option<f64>,
    /// As many sessions as fit into so many requests
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 1.0)
}

pub(super) fn sample(arguments: &SampleArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let SampleArguments { input, output, size, seed } = arguments;
    output.check_keeps(input.path())?;
    let mut reader = input.open(console)?;
    let table = SessionTable::read(&mut reader).map_err(|error| input.locate(error))?;
    let (size, how_much) = match (size.fraction, size.requests) {
        (Some(fraction), _) => (SampleSize::Fraction(fraction), format!("--fraction {fraction}")),
        (None, requests) => {
            let requests = requests.unwrap_or(u64::MAX);
            (SampleSize::Requests(requests), format!("--requests {requests}"))
        }
    };
    let keep = choose(&table, size, *seed);
    let kept = keep.iter().filter(|&&kept| kept).count();
    let made = format!("{kept} of {} sessions, chosen by {how_much} --seed {seed}", keep.len());
    let mut reader = input.open(console)?;
    let header = reader.header(Some(made));
    let written = output.write(&header, console, |write| {
        let mut copy = || {
            for &session in &table.session_of {
                let Some(request) = reader.next_request()? else { break };
                if keep[session as usize] {
                    write(&request)?;
                }
            }
            Ok(())
        };
        copy().map_err(|error| input.locate(error))
    })?;
    let known = how_known(table.num_estimated as usize, keep.len());
    console.note(format_args!("sessions: {kept} of {}{known}", keep.len()))?;
    Ok(Finished::new(written))
}
