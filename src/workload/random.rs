//! Independent requests of random content, as the `random` dataset of `vllm bench serve`
//! (`vllm/benchmarks/datasets`, `RandomDataset`): all start with the same prefix, if it has a
//! length, and share nothing else.

use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::generator::{Generator, StartsMut};
use super::recording::{self, Recording};
use super::sessions::{Independent, Requests, Sessions};
use super::starts::{Starts, StartsConfig};
use super::token_ids::{first_own_token, shared_text};
use super::trace::TraceConfig;
use super::{
    ArrivalProcess, ConfigError, Distribution, RequestSpec, Workload, WorkloadError, WorkloadNotes, require,
    rng,
};
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
        StartsMut {
            rate_per_s: &mut self.requests_per_s,
            duration_s: &mut self.duration_s,
            process: &mut self.arrival_process,
        }
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
            Some(lengths) => {
                recording::validate(&lengths.trace).map_err(|error| error.within("lengths.trace"))
            }
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

    fn notes(&self) -> WorkloadNotes {
        match &self.lengths {
            Lengths::InOrder(recording) | Lengths::Drawn { recording, .. } => recording.notes(),
            Lengths::Laws { .. } => WorkloadNotes::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SimTime;
    use crate::workload::testing::{generated, infinite_cache_hits, max_under_way, run, workload};
    use crate::workload::trace::TraceInput;
    use crate::workload::{Arrival, TraceFile, WorkloadConfig};

    fn config(yaml: &str) -> RandomConfig {
        serde_yaml::from_str(yaml).unwrap()
    }

    #[test]
    fn fixed_lengths_are_exact_and_only_the_prefix_is_shared() {
        let config =
            config("{requests_per_s: 4, num_requests: 50, prefix_len: 96, input_len: 200, output_len: 30}");
        let arrivals = generated(&config, 7);
        assert_eq!(arrivals.len(), 50);
        for arrival in &arrivals {
            assert_eq!((arrival.request.prompt.len(), arrival.request.output.len()), (296, 30));
        }
        assert_eq!(infinite_cache_hits(&arrivals), 49 * 96);
        assert_eq!(Generator::max_request_tokens(&config), Some(326));
    }

    #[test]
    fn the_defaults_and_the_range_ratio_are_those_of_vllm() {
        let plain = generated(&config("{requests_per_s: 4, num_requests: 3}"), 1);
        assert!(plain.iter().all(|a| (a.request.prompt.len(), a.request.output.len()) == (1024, 128)));

        // floor(1023 * 0.9) = 920, ceil(1023 * 1.1) = 1126; floor(9 * 0.9) = 8, ceil(9 * 1.1) = 10.
        let config = config(
            "{requests_per_s: 4, num_requests: 20000, input_len: 1023, output_len: 9, range_ratio: 0.1}",
        );
        let arrivals = generated(&config, 1);
        let bounds = |lengths: &mut dyn Iterator<Item = u32>| {
            lengths.fold((u32::MAX, 0), |(min, max), length| (length.min(min), length.max(max)))
        };
        assert_eq!(bounds(&mut arrivals.iter().map(|a| a.request.prompt.len())), (920, 1126));
        assert_eq!(bounds(&mut arrivals.iter().map(|a| a.request.output.len())), (8, 10));
        // The mean of 207 whole numbers around 1023 has a standard error of 59.8 / sqrt(20000).
        let mean = arrivals.iter().map(|a| f64::from(a.request.prompt.len())).sum::<f64>() / 20_000.0;
        assert!((mean - 1023.0).abs() < 5.0 * 59.8 / 20_000.0_f64.sqrt(), "{mean}");
        assert_eq!(Generator::max_request_tokens(&config), Some(1126 + 10));
    }

    #[test]
    fn a_batch_keeps_max_concurrency_busy_until_it_is_done() {
        let config = config(
            "{arrival_process: {batch: {at_s: 2}}, num_requests: 40, max_concurrency: 4, input_len: 10, output_len: 1}",
        );
        // Answers of different lengths: whenever one ends the next request is sent.
        let answer_ns = |index| 1_000 * (1 + index * 7 % 5);
        let arrivals = run(&mut *workload(&config, 1).unwrap(), answer_ns);
        assert_eq!(arrivals.len(), 40);
        assert_eq!(max_under_way(&arrivals, answer_ns), 4);
        assert!(arrivals[..4].iter().all(|a| a.at == SimTime::from_ms(2_000)));
        let mut ends: Vec<SimTime> =
            arrivals.iter().map(|a| a.at + SimTime(answer_ns(a.request.index))).collect();
        ends.sort_unstable();
        let starts: Vec<SimTime> = arrivals[4..].iter().map(|a| a.at).collect();
        assert_eq!(starts, ends[..36]);
    }

    #[test]
    fn without_a_number_concurrent_users_go_on_for_the_duration() {
        let config = config(
            "{arrival_process: {batch: {at_s: 0}}, duration_s: 1, max_concurrency: 3, input_len: 10, output_len: 1}",
        );
        // 10 rounds of 3: the one that ends at 1 s brings no other.
        let arrivals = run(&mut *workload(&config, 1).unwrap(), |_| 100_000_000);
        assert_eq!(arrivals.len(), 30);
        assert_eq!(arrivals[29].at, SimTime::from_ms(900));
    }

    #[test]
    fn a_rate_waits_for_room_and_then_catches_up() {
        let config = config(
            "{requests_per_s: 10, arrival_process: fixed, num_requests: 5, max_concurrency: 1, input_len: 1, output_len: 1}",
        );
        // Due at 0, 100, 200, 300, 400 ms; the first takes 250 ms, the others 10 ms.
        let arrivals =
            run(
                &mut *workload(&config, 1).unwrap(),
                |index| {
                    if index == 0 { 250_000_000 } else { 10_000_000 }
                },
            );
        let at: Vec<f64> = arrivals.iter().map(|a| a.at.as_ms_f64()).collect();
        assert_eq!(at, [0.0, 250.0, 260.0, 300.0, 400.0]);
    }

    /// A trace of three requests at 1, 2 and 4 s.
    fn recorded(config: &RandomConfig, seed: u64) -> Vec<(f64, u32, u32)> {
        const TRACE: &str = "\
{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [1, 2]}
{\"timestamp\": 2000, \"input_length\": 700, \"output_length\": 6, \"hash_ids\": [1, 3]}
{\"timestamp\": 4000, \"input_length\": 30, \"output_length\": 7, \"hash_ids\": [4]}
";
        let mut workload = WorkloadConfig::Random(Box::new(config.clone()))
            .build::<Box<dyn std::error::Error>>(seed, &mut |field, _| {
                assert!(field == ".arrival_process.replay" || field == ".lengths.trace", "{field}");
                let input = TraceInput::new(TRACE.as_bytes())?;
                Ok(TraceFile { path: "t.jsonl".into(), input, tokenizer: None })
            })
            .unwrap();
        let arrivals = run(&mut *workload, |_| 1);
        let of = |a: &Arrival| (a.at.as_secs_f64(), a.request.prompt.len(), a.request.output.len());
        arrivals.iter().map(of).collect()
    }

    #[test]
    fn times_of_a_trace_are_replayed_at_a_scaled_rate() {
        let config = config(
            "{arrival_process: {replay: {path: t.jsonl, rate_scale: 2}}, input_len: 10, output_len: 1}",
        );
        assert_eq!(recorded(&config, 1), [(0.5, 10, 1), (1.0, 10, 1), (2.0, 10, 1)]);
    }

    #[test]
    fn lengths_of_a_trace_come_in_pairs() {
        let in_order = config(
            "{requests_per_s: 1, arrival_process: fixed, duration_s: 99, lengths: {trace: {path: t.jsonl}, in_order: true}}",
        );
        assert_eq!(recorded(&in_order, 1), [(0.0, 600, 5), (1.0, 700, 6), (2.0, 30, 7)]);

        let drawn = config("{requests_per_s: 1, num_requests: 3000, lengths: {trace: {path: t.jsonl}}}");
        let drawn = recorded(&drawn, 1);
        for pair in [(600, 5), (700, 6), (30, 7)] {
            let count = drawn.iter().filter(|&&(_, input, output)| (input, output) == pair).count();
            // 5 standard errors of a third of 3,000 are 129.
            assert!(count.abs_diff(1_000) < 129, "{count} of {pair:?}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let message = |yaml| Generator::validate(&config(yaml)).unwrap_err().to_string();
        assert_eq!(
            message("{requests_per_s: 1, num_requests: 1, input_len: 0}"),
            "`input_len.fixed`: found 0, expected a whole number from 1 to 2147483647"
        );
        assert_eq!(
            message("{requests_per_s: 1, num_requests: 1, range_ratio: 1}"),
            "`range_ratio`: found 1, expected a number from 0 to less than 1"
        );
        assert_eq!(
            message(
                "{requests_per_s: 1, num_requests: 1, range_ratio: 0.5, input_len: {uniform: {min: 1, max: 2}}}"
            ),
            "`range_ratio`: found 0.5, expected 0 with a length that is not fixed"
        );
        assert_eq!(
            message("{requests_per_s: 1, num_requests: 1, output_len: 3, lengths: {trace: {path: x}}}"),
            "`output_len`: found a length beside `lengths`, expected one of the two"
        );
    }
}
