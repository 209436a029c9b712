//! What a kind of generated traffic is made of: its configuration, when its sessions start, and
//! what they say.

use super::recording::{Recording, TraceFile};
use super::starts::{Starts, StartsConfig};
use super::trace::TraceConfig;
use super::{ArrivalProcess, ConfigError, Workload, WorkloadError};

/// The configuration of a generator.
pub(super) trait Generator {
    /// When its sessions start.
    fn starts(&self) -> StartsConfig<'_>;

    /// What a mix or a change of the load sets.
    fn starts_mut(&mut self) -> StartsMut<'_>;

    /// Checks the values, those of the starts included; the error names the path of the field.
    fn validate(&self) -> Result<(), ConfigError>;

    /// The most tokens that prompt and answer of a request can have together; `None` if only a trace
    /// knows.
    fn max_request_tokens(&self) -> Option<u64>;

    /// The trace that lengths are taken from, and its field behind the kind of the workload.
    fn recorded_lengths(&self) -> Option<(&'static str, &TraceConfig)> {
        None
    }

    /// The workload; `lengths` is what [`Self::recorded_lengths`] names, opened.
    fn workload(&self, seed: u64, starts: Starts, lengths: Option<Recording>) -> Box<dyn Workload>;
}

pub(super) struct StartsMut<'a> {
    pub rate_per_s: &'a mut Option<f64>,
    pub duration_s: &'a mut Option<f64>,
    pub process: &'a mut ArrivalProcess,
}

/// Opens the file of the trace at a field.
pub(super) type Open<'a, E> = dyn FnMut(&str, &TraceConfig) -> Result<TraceFile, E> + 'a;

/// The workload of a configuration, and of the traces that it names.
pub(super) fn generate<E: From<ConfigError> + From<WorkloadError>>(
    config: &dyn Generator,
    seed: u64,
    open: &mut Open<'_, E>,
) -> Result<Box<dyn Workload>, E> {
    config.validate()?;
    let starts = config.starts();
    let mut record = |field: &str, trace| Ok::<_, E>(Recording::new(open(field, trace)?, trace)?);
    let replay = match starts.process {
        ArrivalProcess::Replay(trace) => Some(record(".arrival_process.replay", trace)?),
        _ => None,
    };
    let lengths = match config.recorded_lengths() {
        Some((field, trace)) => Some(record(field, trace)?),
        None => None,
    };
    Ok(config.workload(seed, starts.starts(seed, replay), lengths))
}
