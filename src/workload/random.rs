//! Independent requests of random content, as the `random` dataset of `vllm bench serve`
//! (`vllm/benchmarks/datasets`, `RandomDataset`): all start with the same prefix, if it has a
//! length, and share nothing else.

use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::generator::{Generator, StartsMut};
use super::recording::Recording;
use super::sessions::{Independent, Requests, Sessions};
use super::starts::{Starts, StartsConfig};
use super::token_ids::{first_own_token, shared_text};
use super::trace::TraceConfig;
use super::{ArrivalProcess, ConfigError, Distribution, RequestSpec, Workload, WorkloadError, require, rng};
use crate::prompt::TokenRuns;

/// Requests that share no more than a prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomConfig {
    /// None where the arrival process sets its times.
    #[serde(default)]
    pub requests_per_s: Option<f64>,
    #[serde(default)]
    pub arrival_process: ArrivalProcess,
    /// No request is sent at or after this time.
    #[serde(default)]
    pub duration_s: Option<f64>,
    #[serde(default)]
    pub num_requests: Option<u64>,
    /// So many requests at a time: the next is sent when one ends.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
    /// Tokens that all prompts begin with, before their `input_len`.
    #[serde(default)]
    pub prefix_len: u32,
    /// Prompt tokens after the prefix; 1024 if left out, as vLLM's default.
    #[serde(default)]
    pub input_len: Option<Distribution>,
    /// Tokens of the answer; 128 if left out, as vLLM's default.
    #[serde(default)]
    pub output_len: Option<Distribution>,
    /// Makes fixed lengths uniform between `1 - range_ratio` and `1 + range_ratio` times them,
    /// rounded down and up, as vLLM's `--random-range-ratio`.
    #[serde(default)]
    pub range_ratio: f64,
    /// Pairs of input and output length from a trace, in place of the two lengths.
    #[serde(default)]
    pub lengths: Option<RecordedLengths>,
}

/// Lengths of input and output as they were recorded together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedLengths {
    pub trace: TraceConfig,
    /// Take one pair after the other and end with the trace, instead of drawing any of them again
    /// and again.
    #[serde(default)]
    pub in_order: bool,
}

/// vLLM's `DEFAULT_INPUT_LEN` and `DEFAULT_OUTPUT_LEN`.
const DEFAULT_INPUT_LEN: f64 = 1024.0;
const DEFAULT_OUTPUT_LEN: f64 = 128.0;

impl RandomConfig {
    /// The two lengths as they are drawn.
    fn lengths(&self) -> (Distribution, Distribution) {
        let of = |typed: &Option<Distribution>, default: f64| {
            let length = typed.clone().unwrap_or(Distribution::Fixed(default));
            match length {
                Distribution::Fixed(value) if self.range_ratio > 0.0 => Distribution::Uniform {
                    min: (value * (1.0 - self.range_ratio)).floor().max(1.0),
                    max: (value * (1.0 + self.range_ratio)).ceil(),
                },
                other => other,
            }
        };
        (of(&self.input_len, DEFAULT_INPUT_LEN), of(&self.output_len, DEFAULT_OUTPUT_LEN))
    }
}

impl Generator for RandomConfig {
    fn starts(&self) -> StartsConfig<'_> {
        StartsConfig {
            rate_per_s: self.requests_per_s,
            rate_field: "requests_per_s",
            process: &self.arrival_process,
            duration_s: self.duration_s,
            count: self.num_requests,
            count_field: "num_requests",
            max_concurrency: self.max_concurrency,
            stream: "random arrivals",
        }
    }

    fn starts_mut(&mut self) -> StartsMut<'_> {
        StartsMut { rate_per_s: &mut self.requests_per_s, duration_s: &mut self.duration_s }
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.starts().validate()?;
        let valid = (0.0..1.0).contains(&self.range_ratio);
        require(valid, "range_ratio", self.range_ratio, "a number from 0 to less than 1")?;
        for (name, length) in [("input_len", &self.input_len), ("output_len", &self.output_len)] {
            let Some(length) = length else { continue };
            length.validate_count().map_err(|error| error.within(name))?;
            require(self.lengths.is_none(), name, "a length beside `lengths`", "one of the two")?;
            let is_fixed = matches!(length, Distribution::Fixed(_));
            let expected = "0 with a length that is not fixed";
            require(is_fixed || self.range_ratio == 0.0, "range_ratio", self.range_ratio, expected)?;
        }
        match &self.lengths {
            Some(lengths) => lengths.trace.validate().map_err(|error| error.within("lengths.trace")),
            None => Ok(()),
        }
    }

    fn max_request_tokens(&self) -> Option<u64> {
        if self.lengths.is_some() {
            return None;
        }
        let (input, output) = self.lengths();
        Some([self.prefix_len, input.count_bounds().1, output.count_bounds().1].map(u64::from).iter().sum())
    }

    fn recorded_lengths(&self) -> Option<(&'static str, &TraceConfig)> {
        self.lengths.as_ref().map(|lengths| (".lengths.trace", &lengths.trace))
    }

    fn workload(&self, seed: u64, starts: Starts, recording: Option<Recording>) -> Box<dyn Workload> {
        let (input, output) = self.lengths();
        let lengths = match (recording, &self.lengths) {
            (Some(recording), Some(RecordedLengths { in_order: true, .. })) => Lengths::InOrder(recording),
            (Some(recording), _) => Lengths::Drawn { recording, pairs: Vec::new() },
            (None, _) => Lengths::Laws { input, output },
        };
        let max_tokens = self.max_request_tokens().unwrap_or(u64::MAX);
        let requests = Independent(Random {
            seed,
            prefix: shared_text(0, self.prefix_len),
            lengths,
            max_tokens: max_tokens.try_into().unwrap_or(u32::MAX),
        });
        Box::new(Sessions::new(requests, starts))
    }
}

/// What the requests of a [`RandomConfig`] say.
struct Random {
    seed: u64,
    prefix: TokenRuns,
    lengths: Lengths,
    /// Of one request.
    max_tokens: u32,
}

enum Lengths {
    Laws {
        input: Distribution,
        output: Distribution,
    },
    InOrder(Recording),
    /// Any of the pairs, which are read when the first is needed.
    Drawn {
        recording: Recording,
        pairs: Vec<(u32, u32)>,
    },
}

impl Requests for Random {
    fn request(&mut self, index: u64) -> Result<Option<RequestSpec>, WorkloadError> {
        let mut rng = rng::stream(self.seed, "random request", index);
        let (input, output) = match &mut self.lengths {
            Lengths::Laws { input, output } => (input.sample_count(&mut rng), output.sample_count(&mut rng)),
            Lengths::InOrder(recording) => match recording.next_lengths()? {
                Some(lengths) => lengths,
                None => return Ok(None),
            },
            Lengths::Drawn { recording, pairs } => {
                while let Some(lengths) = recording.next_lengths()? {
                    pairs.push(lengths);
                }
                if pairs.is_empty() {
                    return Ok(None);
                }
                pairs[rng.random_range(0..pairs.len())]
            }
        };
        let first = first_own_token(index, self.max_tokens);
        let mut prompt = self.prefix.clone();
        prompt.push_run(first, input);
        Ok(Some(RequestSpec::plain(prompt, TokenRuns::from_run(first + u64::from(input), output))))
    }
}
