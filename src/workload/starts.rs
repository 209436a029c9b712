//! When the sessions of a generator start, and how many.

use super::recording::Recording;
use super::{ArrivalProcess, ArrivalTimes, ConfigError, WorkloadError, WorkloadNotes, require};
use crate::units::SimTime;

/// What every generator can be told of its starts. The names of two fields differ: what starts is a
/// session, or a request where each session is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartsConfig<'a> {
    pub rate_per_s: Option<f64>,
    pub rate_field: &'static str,
    pub process: &'a ArrivalProcess,
    pub duration_s: Option<f64>,
    pub count: Option<u64>,
    pub count_field: &'static str,
    pub max_concurrency: Option<u32>,
    /// The name of the streams that they are drawn from.
    pub stream: &'static str,
}

impl StartsConfig<'_> {
    /// Checks the values; the error names the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.process.validate().map_err(|error| error.within("arrival_process"))?;
        match self.rate_per_s {
            None if self.process.sets_its_times() => {}
            None => return Err(ConfigError::new(self.rate_field, "nothing", "a number above 0")),
            Some(rate) if self.process.sets_its_times() => {
                let expected = "nothing: the `arrival_process` says when";
                return Err(ConfigError::new(self.rate_field, rate, expected));
            }
            Some(rate) => {
                let valid = (1e-9..=1e6).contains(&rate);
                require(valid, self.rate_field, rate, "a number above 0, at most 1000000")?;
            }
        }
        if let Some(duration_s) = self.duration_s {
            let valid = (0.0..=1e9).contains(&duration_s);
            require(valid, "duration_s", duration_s, "a number from 0 to 1000000000")?;
        }
        require(self.max_concurrency != Some(0), "max_concurrency", 0, "at least 1")?;
        let count = self.count_field;
        match self.process {
            ArrivalProcess::Replay(_) => Ok(()),
            ArrivalProcess::Batch { .. } => {
                let ends =
                    self.count.is_some() || (self.duration_s.is_some() && self.max_concurrency.is_some());
                let expected = "the size of the batch, or `duration_s` and `max_concurrency`";
                require(ends, count, "nothing", expected)
            }
            _ => {
                let ends = self.count.is_some() || self.duration_s.is_some();
                let expected = format!("`duration_s` or `{count}`, so that the run ends");
                require(ends, "duration_s", "nothing", expected)
            }
        }
    }

    /// The starts; `replay` is the trace of a replay.
    pub fn starts(&self, seed: u64, replay: Option<Recording>) -> Starts {
        let times = match (replay, self.process) {
            (Some(recording), _) => Times::Recorded(recording),
            (None, ArrivalProcess::Batch { at_s }) => Times::Batch(SimTime::from_secs_f64(*at_s)),
            (None, process) => Times::Law(Box::new(ArrivalTimes::new(
                process,
                self.rate_per_s.unwrap_or(1.0),
                seed,
                self.stream,
            ))),
        };
        Starts {
            times,
            until: self.duration_s.map_or(SimTime::MAX, SimTime::from_secs_f64),
            count: self.count,
            last: SimTime::ZERO,
            num_starts: 0,
            is_over: false,
            max_concurrency: self.max_concurrency.map_or(usize::MAX, |most| most as usize),
        }
    }
}

/// The starts of one generator, in order.
pub(super) struct Starts {
    times: Times,
    until: SimTime,
    count: Option<u64>,
    /// The newest, and how many there were.
    last: SimTime,
    num_starts: u64,
    is_over: bool,
    /// So many sessions may be open at the same time.
    pub max_concurrency: usize,
}

enum Times {
    Law(Box<ArrivalTimes>),
    Batch(SimTime),
    Recorded(Recording),
}

impl Starts {
    /// The next start, not before the given time: the limit of concurrency may have held it back.
    /// `None` when there is no more.
    pub fn next(&mut self, not_before: SimTime) -> Result<Option<SimTime>, WorkloadError> {
        // An error ends them too.
        let was_over = std::mem::replace(&mut self.is_over, true);
        if was_over || self.count.is_some_and(|count| self.num_starts >= count) {
            return Ok(None);
        }
        let at = match &mut self.times {
            Times::Law(times) => times.next(),
            Times::Batch(at) => Some(*at),
            Times::Recorded(recording) => recording.next_time()?,
        };
        let at = at.map(|at| at.max(not_before)).filter(|&at| at < self.until);
        if let Some(at) = at {
            self.is_over = false;
            self.last = at;
            self.num_starts += 1;
        }
        Ok(at)
    }

    /// See [`Workload::progress`](super::Workload::progress).
    pub fn progress(&self) -> Option<f64> {
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
        let by_number = self.count.map(|count| share(self.num_starts as f64, count as f64));
        let has_end = self.until < SimTime::MAX;
        let by_time = has_end.then(|| share(self.last.as_secs_f64(), self.until.as_secs_f64()));
        if self.is_over { Some(1.0) } else { by_time.into_iter().chain(by_number).reduce(f64::max) }
    }

    /// See [`Workload::notes`](super::Workload::notes).
    pub fn notes(&self) -> WorkloadNotes {
        match &self.times {
            Times::Recorded(recording) => recording.notes(),
            Times::Law(_) | Times::Batch(_) => WorkloadNotes::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(process: &ArrivalProcess) -> StartsConfig<'_> {
        StartsConfig {
            rate_per_s: Some(2.0),
            rate_field: "requests_per_s",
            process,
            duration_s: None,
            count: Some(3),
            count_field: "num_requests",
            max_concurrency: None,
            stream: "test",
        }
    }

    fn all(config: StartsConfig<'_>, not_before: SimTime) -> Vec<f64> {
        config.validate().unwrap();
        let mut starts = config.starts(1, None);
        std::iter::from_fn(|| starts.next(not_before).unwrap()).map(SimTime::as_secs_f64).collect()
    }

    #[test]
    fn starts_end_with_their_count_or_their_time() {
        let fixed = ArrivalProcess::Fixed;
        assert_eq!(all(config(&fixed), SimTime::ZERO), [0.0, 0.5, 1.0]);
        let timed = StartsConfig { count: None, duration_s: Some(2.0), ..config(&fixed) };
        assert_eq!(all(timed, SimTime::ZERO), [0.0, 0.5, 1.0, 1.5]);
        let both = StartsConfig { duration_s: Some(0.7), ..config(&fixed) };
        assert_eq!(all(both, SimTime::ZERO), [0.0, 0.5]);
        assert_eq!(all(both, SimTime::from_ms(600)), [0.6, 0.6]);
        assert!(all(both, SimTime::from_ms(700)).is_empty());
    }

    #[test]
    fn a_batch_starts_all_at_once() {
        let batch = ArrivalProcess::Batch { at_s: 2.5 };
        assert_eq!(all(StartsConfig { rate_per_s: None, ..config(&batch) }, SimTime::ZERO), [2.5; 3]);
    }

    #[test]
    fn mistakes_are_named() {
        let message = |config: StartsConfig<'_>| config.validate().unwrap_err().to_string();
        let (fixed, batch) = (ArrivalProcess::Fixed, ArrivalProcess::Batch { at_s: 0.0 });
        assert_eq!(
            message(StartsConfig { rate_per_s: None, ..config(&fixed) }),
            "`requests_per_s`: found nothing, expected a number above 0"
        );
        assert_eq!(
            message(config(&batch)),
            "`requests_per_s`: found 2, expected nothing: the `arrival_process` says when"
        );
        assert_eq!(
            message(StartsConfig { count: None, ..config(&fixed) }),
            "`duration_s`: found nothing, expected `duration_s` or `num_requests`, so that the run ends"
        );
        assert_eq!(
            message(StartsConfig { rate_per_s: None, count: None, duration_s: Some(1.0), ..config(&batch) }),
            "`num_requests`: found nothing, expected the size of the batch, or `duration_s` and \
             `max_concurrency`"
        );
        assert_eq!(
            message(StartsConfig { max_concurrency: Some(0), ..config(&fixed) }),
            "`max_concurrency`: found 0, expected at least 1"
        );
        let gamma = ArrivalProcess::Gamma { burstiness: -1.0 };
        assert!(message(config(&gamma)).starts_with("`arrival_process.gamma.burstiness`"));
    }
}
