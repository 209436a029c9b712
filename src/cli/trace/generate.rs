//! `kvsim trace generate`: the requests of a scenario as a trace.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Args;

use super::input::number_within;
use super::output::OutputArguments;
use crate::cli::console::{Console, Finished};
use crate::cli::diagnostic::InFile;
use crate::cli::progress::Unit;
use crate::scenario::{Scenario, Source};
use crate::text_file::read_text;
use crate::trace_tools::{AnswerTimes, Generator, TraceError, TurnTimes};
use crate::units::SimTime;
use crate::workload::WorkloadNotes;
use crate::workload::trace::KvsimHeader;

/// Write the requests of a scenario's workload as a trace, without a server
#[derive(Debug, Args)]
pub(super) struct GenerateArguments {
    /// The scenario, a YAML file
    scenario: PathBuf,
    #[command(flatten)]
    output: OutputArguments,
    /// Change a field of the scenario, such as workload.chat.sessions_per_s=2; may be given again
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// The seed, instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// How long an answer takes to its first token, in milliseconds; users go on when it has ended
    #[arg(long, value_name = "MS", default_value = "200", value_parser = parse_ms)]
    ttft_ms: f64,
    /// How long each further token takes, in milliseconds
    #[arg(long, value_name = "MS", default_value = "20", value_parser = parse_ms)]
    tpot_ms: f64,
    /// Write no time for turns that wait for an answer, only their think time: whoever replays the
    /// trace then decides when they are sent
    #[arg(long)]
    closed_loop: bool,
}

fn parse_ms(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 1e9)
}

pub(super) fn generate(arguments: &GenerateArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let path = &arguments.scenario;
    let text = read_text(path)?;
    let scenario = Scenario::load(Source {
        path: path.clone(),
        text,
        overrides: arguments.overrides.clone(),
        seed: arguments.seed,
        ..Source::default()
    })?;
    let mut workload = scenario.workload()?;
    // What is known of a trace is known once its first request has been read.
    workload.peek().map_err(|error| locate(path, error.into()))?;
    let answers = AnswerTimes {
        ttft: SimTime::from_secs_f64(arguments.ttft_ms / 1e3),
        tpot: SimTime::from_secs_f64(arguments.tpot_ms / 1e3),
    };
    let turn_times = if arguments.closed_loop { TurnTimes::ClosedLoop } else { TurnTimes::Recorded };
    let made = format!("made of the scenario {} with seed {}", scenario.file.name, scenario.seed());
    let rule = match turn_times {
        TurnTimes::Recorded => answers.note(),
        TurnTimes::ClosedLoop => "turns that wait for an answer have a think time and no time".into(),
    };
    let WorkloadNotes { notes: assumed, hash_id_tokens, .. } = workload.notes();
    let notes = [vec![made, rule.clone()], assumed].concat();
    let header = KvsimHeader { tenants: workload.tenants().to_vec(), notes, hash_id_tokens };
    let mut generator = Generator::new(workload, answers, turn_times);
    let mut bar = console.bar(&scenario.file.name, Unit::Requests, None);
    let mut requests = 0;
    let written = arguments.output.write(&header, console, |write| {
        let run = generator.run(|request, share| {
            requests += 1;
            bar.set(f64::from(requests), share);
            write(request)
        });
        run.map_err(|error| locate(path, error))
    })?;
    console.note(&rule)?;
    Ok(Finished::new(written))
}

/// The error with its place in front.
fn locate(scenario: &Path, error: TraceError) -> Box<dyn Error> {
    match error {
        TraceError::Write(_) => error.into(),
        TraceError::Lacks { line, problem, instead } => {
            InFile::new(scenario, format!("request {line}: {problem}; {instead}")).into()
        }
        error => InFile::new(scenario, error).into(),
    }
}
