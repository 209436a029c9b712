//! The same users, more or fewer of them: what a planner varies.

use super::config::Source;
use super::generator::Generator;
use super::mix::MixConfig;
use super::{ArrivalProcess, ConfigError, WorkloadConfig};

const HINT: &str = "traffic whose rate can be changed";

impl WorkloadConfig {
    /// Makes sessions and requests start at `factor` times their rate. Which sessions they are does not
    /// change, nor what they say: only how close they follow each other.
    ///
    /// # Errors
    /// The load is a number of users at a time, or a batch, and has no rate.
    pub fn scale_load(&mut self, factor: f64) -> Result<(), ConfigError> {
        match self {
            Self::Trace(trace) => {
                trace.rate_scale *= factor;
                Ok(())
            }
            Self::Mix(mix) => scale_mix(mix, factor),
            other => match other.generator_mut() {
                Some(generator) => scale_generator(generator, factor),
                None => Ok(()),
            },
        }
    }

    /// The starts in a second and what starts, where one number says it.
    pub fn rate_per_s(&self) -> Option<(&'static str, f64)> {
        match self.source() {
            Source::Generator(generator) => {
                let starts = generator.starts();
                Some((starts.rate_field, starts.rate_per_s?))
            }
            Source::Mix(mix) => Some(("rate_per_s", mix.rate_per_s?)),
            Source::Trace(_) => None,
        }
    }

    /// The rate is the same all the time but for chance: what waits more and more will not stop to.
    pub fn is_steady(&self) -> bool {
        match self.source() {
            Source::Generator(generator) => matches!(
                generator.starts().process,
                ArrivalProcess::Poisson | ArrivalProcess::Fixed | ArrivalProcess::Gamma { .. }
            ),
            Source::Mix(mix) => mix.parts.iter().all(|part| part.workload.is_steady()),
            Source::Trace(_) => false,
        }
    }
}

fn scale_mix(mix: &mut MixConfig, factor: f64) -> Result<(), ConfigError> {
    if let Some(rate_per_s) = &mut mix.rate_per_s {
        *rate_per_s *= factor;
    }
    for (index, part) in mix.parts.iter_mut().enumerate() {
        let kind = part.workload.kind();
        // A share is of the rate above.
        if part.share.is_none() {
            let scaled = part.workload.scale_load(factor);
            scaled.map_err(|error| error.within(&format!("parts[{index}].workload.{kind}")))?;
        }
    }
    Ok(())
}

fn scale_generator(generator: &mut dyn Generator, factor: f64) -> Result<(), ConfigError> {
    let starts = generator.starts();
    if let Some(most) = starts.max_concurrency {
        return Err(ConfigError::new(
            "max_concurrency",
            most,
            format!("nothing, as it limits the load: {HINT}"),
        ));
    }
    if matches!(starts.process, ArrivalProcess::Batch { .. }) {
        return Err(ConfigError::new("arrival_process", "a batch", HINT));
    }
    let starts = generator.starts_mut();
    match starts.process {
        ArrivalProcess::Replay(trace) => trace.rate_scale *= factor,
        _ => {
            if let Some(rate_per_s) = starts.rate_per_s {
                *rate_per_s *= factor;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(yaml: &str) -> WorkloadConfig {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn every_kind_of_rate_is_scaled() {
        let mut random = workload("random: {requests_per_s: 3, num_requests: 10}");
        random.scale_load(2.0).unwrap();
        assert_eq!(random.rate_per_s(), Some(("requests_per_s", 6.0)));
        assert!(random.is_steady());
        let mut trace = workload("trace: {path: x.jsonl, rate_scale: 0.5}");
        trace.scale_load(4.0).unwrap();
        let WorkloadConfig::Trace(config) = &trace else { panic!() };
        assert_eq!((config.rate_scale, trace.rate_per_s(), trace.is_steady()), (2.0, None, false));
        let mut mix = workload(
            "mix: {rate_per_s: 3, duration_s: 9, parts: [{name: a, share: 1, workload: {random: {}}}, \
             {name: b, workload: {random: {requests_per_s: 5}}}]}",
        );
        mix.scale_load(2.0).unwrap();
        let WorkloadConfig::Mix(config) = &mix else { panic!() };
        assert_eq!(config.rate_per_s, Some(6.0));
        assert_eq!(config.parts[1].workload.rate_per_s(), Some(("requests_per_s", 10.0)));
        assert!(mix.is_steady());
    }

    #[test]
    fn load_without_a_rate_is_refused() {
        let error = |yaml: &str| workload(yaml).scale_load(2.0).unwrap_err().field;
        let batch = "random: {arrival_process: {batch: {at_s: 0}}, num_requests: 10}";
        assert_eq!(error(batch), "arrival_process");
        assert_eq!(error("random: {requests_per_s: 1, max_concurrency: 4}"), "max_concurrency");
        let part = format!("mix: {{parts: [{{name: a, workload: {{{batch}}}}}]}}");
        assert_eq!(error(&part), "parts[0].workload.random.arrival_process");
    }
}
