//! `--trace-events` and what goes with it.

use std::path::PathBuf;

use clap::Args;

use crate::report::TraceEventsOptions;
use crate::units::SimTime;

#[derive(Debug, Args)]
pub(super) struct TraceEventsArguments {
    /// Write what happened when, for ui.perfetto.dev and chrome://tracing; .gz at the end of the name
    /// compresses it [default: trace_events.json.gz in the report's folder]
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_parser = parse_path)]
    trace_events: Option<Option<PathBuf>>,
    /// Leave out of the trace what ends before this time of the run, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "trace_events")]
    trace_events_from: Option<SimTime>,
    /// Leave out of the trace what begins at or after this time of the run, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, requires = "trace_events")]
    trace_events_to: Option<SimTime>,
}

impl TraceEventsArguments {
    pub fn options(&self) -> Result<Option<TraceEventsOptions>, String> {
        let Some(path) = &self.trace_events else { return Ok(None) };
        let window =
            self.trace_events_from.unwrap_or(SimTime::ZERO)..self.trace_events_to.unwrap_or(SimTime::MAX);
        if window.is_empty() {
            return Err(format!(
                "--trace-events-from {} is not before --trace-events-to {}",
                window.start.as_secs_f64(),
                window.end.as_secs_f64()
            ));
        }
        Ok(Some(TraceEventsOptions { path: path.clone(), window }))
    }
}

/// Only names that a trace can have: a scenario that stands behind the flag is not written over.
fn parse_path(text: &str) -> Result<PathBuf, String> {
    let is_trace = [".json", ".json.gz"].iter().any(|end| text.ends_with(end));
    is_trace.then(|| text.into()).ok_or_else(|| {
        "the name ends with .json or .json.gz; put the flag behind the scenario to leave it out".to_owned()
    })
}

fn parse_seconds(text: &str) -> Result<SimTime, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(SimTime::from_secs_f64(seconds)),
        _ => Err("give seconds from 0 on, such as 12.5".to_owned()),
    }
}
