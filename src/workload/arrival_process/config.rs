//! What can be set about arrivals.

use serde::{Deserialize, Serialize};

use crate::workload::trace::TraceConfig;
use crate::workload::{ConfigError, recording, require};

/// How users arrive; the mean rate is given beside it, but for `batch` and `replay`.
///
/// In YAML its name, or one key with its parameters: `poisson`, `{gamma: {burstiness: 0.5}}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ArrivalProcess {
    /// Independent exponential gaps.
    #[default]
    Poisson,
    /// Equal gaps; the first arrival is at time 0.
    Fixed,
    /// Independent gaps of a gamma distribution with this shape, `vllm bench serve --burstiness`:
    /// 1 is Poisson, less comes in bursts, more is more even. A gap has the variance
    /// `1 / burstiness` in squared mean gaps.
    Gamma { burstiness: f64 },
    /// A Poisson process whose rate jumps at random (Markov-modulated): it stays in a state for an
    /// exponential time, then goes to one of the others, each equally likely. It starts in the long
    /// run's mixture of states, so the expected number of arrivals until `t` is the rate times `t`.
    Mmpp { states: Vec<MmppState> },
    /// A Poisson process whose rate follows a cosine.
    Diurnal {
        /// From 0, no change, to 1: the rate is 0 when it is lowest, and twice its mean at the peak.
        amplitude: f64,
        #[serde(default = "day")]
        period_s: f64,
        /// From the start of the run to the first peak.
        #[serde(default)]
        peak_at_s: f64,
    },
    /// A Poisson process whose rate follows steps, and begins again after the last: hours of a day,
    /// a ramp.
    Profile {
        /// How long each step lasts.
        step_s: f64,
        /// Rates in proportion to each other; the given rate is their mean.
        relative_rates: Vec<f64>,
    },
    /// All at once. With `max_concurrency` that many start, and the next when one ends.
    Batch { at_s: f64 },
    /// At the times of a recorded trace, of which nothing else is used; its `rate_scale` divides
    /// them. Ends with the trace.
    Replay(Box<TraceConfig>),
}

const fn day() -> f64 {
    86_400.0
}

/// A state of [`ArrivalProcess::Mmpp`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmppState {
    /// In proportion to the other states'; the given rate is the long run's mean.
    pub relative_rate: f64,
    /// How long it lasts on average.
    pub mean_s: f64,
}

impl ArrivalProcess {
    /// Whether the times come from elsewhere, so that a rate beside them says nothing.
    pub(crate) fn sets_its_times(&self) -> bool {
        matches!(self, Self::Batch { .. } | Self::Replay(_))
    }

    /// Checks the values; the error names the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive_s = |field: &str, value: f64| {
            require((1e-9..=1e9).contains(&value), field, value, "a number above 0, at most 1000000000")
        };
        let time = |field: &str, value: f64| {
            require((0.0..=1e9).contains(&value), field, value, "a number from 0 to 1000000000")
        };
        let rates = |field: &str, rates: &mut dyn Iterator<Item = f64>| {
            let (mut sum, mut index) = (0.0, 0);
            for rate in rates {
                let name = field.replace("[]", &format!("[{index}]"));
                require((0.0..=1e6).contains(&rate), &name, rate, "a number from 0 to 1000000")?;
                sum += rate;
                index += 1;
            }
            let list = field.split("[]").next().unwrap_or(field);
            require(sum > 0.0, list, format!("{index} rates, none above 0"), "a rate above 0")
        };
        match self {
            Self::Poisson | Self::Fixed => Ok(()),
            Self::Gamma { burstiness } => {
                let valid = (1e-3..=1e6).contains(burstiness);
                require(valid, "gamma.burstiness", burstiness, "a number from 0.001 to 1000000")
            }
            Self::Mmpp { states } => {
                let found = format!("{} states", states.len());
                require(states.len() >= 2, "mmpp.states", found, "two or more")?;
                let mut relative = states.iter().map(|state| state.relative_rate);
                rates("mmpp.states[].relative_rate", &mut relative)?;
                for (index, state) in states.iter().enumerate() {
                    positive_s(&format!("mmpp.states[{index}].mean_s"), state.mean_s)?;
                }
                Ok(())
            }
            Self::Diurnal { amplitude, period_s, peak_at_s } => {
                let valid = (0.0..=1.0).contains(amplitude);
                require(valid, "diurnal.amplitude", amplitude, "a number from 0 to 1")?;
                positive_s("diurnal.period_s", *period_s)?;
                time("diurnal.peak_at_s", *peak_at_s)
            }
            Self::Profile { step_s, relative_rates } => {
                positive_s("profile.step_s", *step_s)?;
                rates("profile.relative_rates[]", &mut relative_rates.iter().copied())
            }
            Self::Batch { at_s } => time("batch.at_s", *at_s),
            Self::Replay(trace) => recording::validate(trace).map_err(|error| error.within("replay")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_named_with_its_path() {
        let message = |process: ArrivalProcess| process.validate().unwrap_err().to_string();
        let state = |relative_rate, mean_s| MmppState { relative_rate, mean_s };
        assert_eq!(
            message(ArrivalProcess::Gamma { burstiness: 0.0 }),
            "`gamma.burstiness`: found 0, expected a number from 0.001 to 1000000"
        );
        assert_eq!(
            message(ArrivalProcess::Mmpp { states: vec![state(1.0, 5.0)] }),
            "`mmpp.states`: found 1 states, expected two or more"
        );
        assert_eq!(
            message(ArrivalProcess::Mmpp { states: vec![state(1.0, 5.0), state(-1.0, 5.0)] }),
            "`mmpp.states[1].relative_rate`: found -1, expected a number from 0 to 1000000"
        );
        assert_eq!(
            message(ArrivalProcess::Mmpp { states: vec![state(0.0, 5.0), state(0.0, 5.0)] }),
            "`mmpp.states`: found 2 rates, none above 0, expected a rate above 0"
        );
        assert_eq!(
            message(ArrivalProcess::Mmpp { states: vec![state(1.0, 5.0), state(2.0, f64::NAN)] }),
            "`mmpp.states[1].mean_s`: found NaN, expected a number above 0, at most 1000000000"
        );
        assert_eq!(
            message(ArrivalProcess::Diurnal { amplitude: 1.5, period_s: 60.0, peak_at_s: 0.0 }),
            "`diurnal.amplitude`: found 1.5, expected a number from 0 to 1"
        );
        assert_eq!(
            message(ArrivalProcess::Profile { step_s: 1.0, relative_rates: vec![] }),
            "`profile.relative_rates`: found 0 rates, none above 0, expected a rate above 0"
        );
        assert!(ArrivalProcess::Batch { at_s: -1.0 }.validate().is_err());
    }

    #[test]
    fn yaml_is_a_name_or_one_key_with_its_parameters() {
        let read = |yaml: &str| serde_yaml::from_str::<ArrivalProcess>(yaml);
        assert_eq!(read("poisson").unwrap(), ArrivalProcess::Poisson);
        assert_eq!(read("{gamma: {burstiness: 0.5}}").unwrap(), ArrivalProcess::Gamma { burstiness: 0.5 });
        assert_eq!(
            read("{diurnal: {amplitude: 0.5}}").unwrap(),
            ArrivalProcess::Diurnal { amplitude: 0.5, period_s: 86_400.0, peak_at_s: 0.0 }
        );
        assert!(read("{gamma: {shape: 0.5}}").is_err());
    }
}
