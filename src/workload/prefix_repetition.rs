//! Requests that begin with one of a few prefixes, as the `prefix_repetition` dataset of
//! `vllm bench serve` (`vllm/benchmarks/datasets`, `PrefixRepetitionRandomDataset`).

use rand::RngExt;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::generator::{Generator, StartsMut};
use super::recording::Recording;
use super::sessions::{Independent, Requests, Sessions};
use super::starts::{Starts, StartsConfig};
use super::token_ids::{MAX_SHARED_TEXTS, first_own_token, shared_text};
use super::{ArrivalProcess, ConfigError, Distribution, RequestSpec, Workload, WorkloadError, require, rng};
use crate::prompt::TokenRuns;

/// Prompts of a prefix that others have too and a suffix of their own. The defaults are vLLM's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrefixRepetitionConfig {
    /// None where the arrival process sets its times.
    #[serde(default)]
    pub requests_per_s: Option<f64>,
    #[serde(default)]
    pub arrival_process: ArrivalProcess,
    /// No request is sent at or after this time.
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// Each prefix comes equally often, `num_requests / num_prefixes` times rounded down, in random
    /// order, as in vLLM. Left out, each request draws its prefix.
    #[serde(default)]
    pub num_requests: Option<u64>,
    /// So many requests at a time: the next is sent when one ends.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
    #[serde(default = "tokens_256")]
    pub prefix_len: u32,
    #[serde(default = "fixed_256")]
    pub suffix_len: Distribution,
    #[serde(default = "ten")]
    pub num_prefixes: u64,
    #[serde(default = "fixed_128")]
    pub output_len: Distribution,
}

const fn tokens_256() -> u32 {
    256
}

const fn fixed_256() -> Distribution {
    Distribution::Fixed(256.0)
}

const fn ten() -> u64 {
    10
}

const fn fixed_128() -> Distribution {
    Distribution::Fixed(128.0)
}

/// The order of prefixes is drawn before the first request.
const MAX_REQUESTS: u64 = 100_000_000;

impl PrefixRepetitionConfig {
    fn requests_per_prefix(&self) -> Option<u64> {
        Some(self.num_requests? / self.num_prefixes.max(1))
    }
}

impl Generator for PrefixRepetitionConfig {
    fn starts(&self) -> StartsConfig<'_> {
        StartsConfig {
            rate_per_s: self.requests_per_s,
            rate_field: "requests_per_s",
            process: &self.arrival_process,
            duration_s: self.duration_s,
            count: self.requests_per_prefix().map(|requests| requests * self.num_prefixes),
            count_field: "num_requests",
            max_concurrency: self.max_concurrency,
            stream: "prefix_repetition arrivals",
        }
    }

    fn starts_mut(&mut self) -> StartsMut<'_> {
        StartsMut {
            rate_per_s: &mut self.requests_per_s,
            duration_s: &mut self.duration_s,
            process: &mut self.arrival_process,
        }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.starts().validate()?;
        let valid = (1..=MAX_SHARED_TEXTS).contains(&self.num_prefixes);
        let expected = format!("a whole number from 1 to {MAX_SHARED_TEXTS}");
        require(valid, "num_prefixes", self.num_prefixes, expected)?;
        if let Some(num_requests) = self.num_requests {
            let valid = (self.num_prefixes..=MAX_REQUESTS).contains(&num_requests);
            let expected =
                format!("at least `num_prefixes`, {}, and at most {MAX_REQUESTS}", self.num_prefixes);
            require(valid, "num_requests", num_requests, expected)?;
        }
        self.suffix_len.validate_count().map_err(|error| error.within("suffix_len"))?;
        self.output_len.validate_count().map_err(|error| error.within("output_len"))
    }

    fn max_request_tokens(&self) -> Option<u64> {
        let lengths = [self.prefix_len, self.suffix_len.count_bounds().1, self.output_len.count_bounds().1];
        Some(lengths.map(u64::from).iter().sum())
    }

    fn workload(&self, seed: u64, starts: Starts, _lengths: Option<Recording>) -> Box<dyn Workload> {
        let order = self.requests_per_prefix().map(|requests| {
            let prefixes = 0..self.num_prefixes as u32;
            let mut order: Vec<u32> =
                prefixes.flat_map(|prefix| std::iter::repeat_n(prefix, requests as usize)).collect();
            order.shuffle(&mut rng::stream(seed, "prefix_repetition order", 0));
            order
        });
        let requests = Independent(PrefixRepetition { config: self.clone(), seed, order });
        Box::new(Sessions::new(requests, starts))
    }
}

/// What the requests of a [`PrefixRepetitionConfig`] say.
struct PrefixRepetition {
    config: PrefixRepetitionConfig,
    seed: u64,
    /// The prefix of each request, if their number is known.
    order: Option<Vec<u32>>,
}

impl Requests for PrefixRepetition {
    fn request(&mut self, index: u64) -> Result<Option<RequestSpec>, WorkloadError> {
        let config = &self.config;
        let mut rng = rng::stream(self.seed, "prefix_repetition request", index);
        let suffix = config.suffix_len.sample_count(&mut rng);
        let output = config.output_len.sample_count(&mut rng);
        let prefix = match &self.order {
            Some(order) => order.get(index as usize).copied().map_or(0, u64::from),
            None => rng.random_range(0..config.num_prefixes),
        };
        let max_tokens = config.max_request_tokens().and_then(|tokens| tokens.try_into().ok());
        let first = first_own_token(index, max_tokens.unwrap_or(u32::MAX));
        let mut prompt = shared_text(prefix, config.prefix_len);
        prompt.push_run(first, suffix);
        Ok(Some(RequestSpec::plain(prompt, TokenRuns::from_run(first + u64::from(suffix), output))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::workload::testing::{generated, infinite_cache_hits};

    fn config(yaml: &str) -> PrefixRepetitionConfig {
        serde_yaml::from_str(yaml).unwrap()
    }

    /// Requests by the first token of their prefix.
    fn by_prefix(config: &PrefixRepetitionConfig, seed: u64) -> BTreeMap<u64, u32> {
        let mut counts = BTreeMap::new();
        for arrival in generated(config, seed) {
            *counts.entry(arrival.request.prompt.get(0)).or_default() += 1;
        }
        counts
    }

    #[test]
    fn each_prefix_comes_equally_often_and_is_hit_all_but_once() {
        let config = config(
            "{requests_per_s: 9, num_requests: 107, num_prefixes: 10, prefix_len: 64, suffix_len: 20, output_len: 3}",
        );
        let arrivals = generated(&config, 5);
        // 107 / 10 rounded down is 10 for each prefix, as in vLLM.
        assert_eq!(arrivals.len(), 100);
        assert!(arrivals.iter().all(|a| (a.request.prompt.len(), a.request.output.len()) == (84, 3)));
        assert_eq!(by_prefix(&config, 5), (0..10).map(|prefix| (prefix << 32, 10)).collect());
        assert_eq!(infinite_cache_hits(&arrivals), (100 - 10) * 64);
        // The order is random, and another with another seed.
        let order =
            |seed| generated(&config, seed).iter().map(|a| a.request.prompt.get(0)).collect::<Vec<_>>();
        assert_eq!(order(5), order(5));
        assert_ne!(order(5), order(6));
        assert!(!order(5).is_sorted());
    }

    #[test]
    fn without_a_number_each_request_draws_its_prefix() {
        let config = config("{requests_per_s: 100, duration_s: 100, num_prefixes: 4}");
        let counts = by_prefix(&config, 3);
        let total: u32 = counts.values().sum();
        // 5 standard deviations of a Poisson count of 10,000, and of a quarter of them.
        assert!(total.abs_diff(10_000) < 500, "{total}");
        assert!(
            counts.len() == 4 && counts.values().all(|count| count.abs_diff(total / 4) < 217),
            "{counts:?}"
        );
    }

    #[test]
    fn the_defaults_are_those_of_vllm() {
        let config = config("{requests_per_s: 1, num_requests: 10}");
        let arrivals = generated(&config, 1);
        assert_eq!(by_prefix(&config, 1).len(), 10);
        assert!(arrivals.iter().all(|a| (a.request.prompt.len(), a.request.output.len()) == (512, 128)));
    }

    #[test]
    fn fewer_requests_than_prefixes_are_refused() {
        let error = Generator::validate(&config("{requests_per_s: 1, num_requests: 9}")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`num_requests`: found 9, expected at least `num_prefixes`, 10, and at most 100000000"
        );
    }
}
