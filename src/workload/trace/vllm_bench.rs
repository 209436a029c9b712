//! Results of `vllm bench serve --save-result --save-detailed`: one JSON object with, among its
//! figures, lists with a value for each request:
//!
//! | field | unit | meaning |
//! |---|---|---|
//! | `input_lens`, `output_lens` | tokens | prompt and answer |
//! | `start_times` | seconds of some clock | when it was sent; the first counts as the start |
//!
//! `start_times` may be missing: then the scenario's `arrivals` have to say when requests are sent.
//! Failed requests have an output length of 0 and are mistakes here, named by their position in the
//! lists.
//!
//! Which prompts share what is not known: the scenario's `reuse` has to say.
//!
//! Source of the format: `vllm/benchmarks/serve.py` of vLLM.

use serde::Deserialize;

use super::fields::LENGTH_TOKENS;
use super::head::Head;
use super::input::TraceInput;
use super::mistake::Mistake;
use super::{TraceReader, TraceRequest, TraceTokens};
use crate::units::SimTime;
use crate::workload::WorkloadError;

pub(super) fn matches(head: &Head) -> bool {
    head.is_object_with(&["input_lens", "output_lens"])
        || head.is_object_with(&["backend", "num_prompts", "request_rate"])
}

/// Some bytes for each request are kept; texts and latencies are not.
pub(super) struct VllmBench {
    input_lens: Vec<u64>,
    output_lens: Vec<u64>,
    /// In the order in which they are handed out: positions in the lists, by time.
    order: Vec<(Option<SimTime>, usize)>,
    next: usize,
}

#[derive(Deserialize)]
struct Results {
    #[serde(default)]
    input_lens: Option<Vec<u64>>,
    #[serde(default)]
    output_lens: Option<Vec<u64>>,
    #[serde(default)]
    start_times: Option<Vec<f64>>,
}

impl VllmBench {
    /// Reads the whole file.
    pub fn new(input: TraceInput) -> Result<Self, WorkloadError> {
        let mut deserializer = serde_json::Deserializer::from_reader(input);
        let results = Results::deserialize(&mut deserializer).and_then(|results| {
            deserializer.end()?;
            Ok(results)
        });
        let results = results.map_err(|error| {
            let line = error.line() as u64;
            if error.is_io() {
                return WorkloadError::Read { line, source: error.into() };
            }
            let expected = "one JSON object of results, with `input_lens` and `output_lens`";
            Mistake::new(error.to_string(), expected).at_line(line)
        })?;
        Self::of(results).map_err(|mistake| mistake.at_line(1))
    }

    fn of(results: Results) -> Result<Self, Mistake> {
        let missing =
            |field| Mistake::new("nothing", "a list; write the results with `--save-detailed`").within(field);
        let input_lens = results.input_lens.ok_or_else(|| missing("input_lens"))?;
        let output_lens = results.output_lens.ok_or_else(|| missing("output_lens"))?;
        let wrong_len = |field, len: usize| {
            let expected = format!("{}, as many as `input_lens`", input_lens.len());
            Err(Mistake::new(format!("{len} values"), expected).within(field))
        };
        if output_lens.len() != input_lens.len() {
            return wrong_len("output_lens", output_lens.len());
        }
        let mut order: Vec<(Option<SimTime>, usize)> = (0..input_lens.len()).map(|at| (None, at)).collect();
        if let Some(start_times) = results.start_times {
            if start_times.len() != input_lens.len() {
                return wrong_len("start_times", start_times.len());
            }
            for (slot, start_s) in order.iter_mut().zip(start_times) {
                slot.0 = Some(SimTime::from_secs_f64(start_s));
            }
            order.sort_unstable();
        }
        Ok(Self { input_lens, output_lens, order, next: 0 })
    }
}

impl TraceReader for VllmBench {
    fn time_field(&self) -> &'static str {
        "start_times"
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some(&(at, position)) = self.order.get(self.next) else { return Ok(None) };
        self.next += 1;
        let length = |field, value: u64| {
            if (LENGTH_TOKENS.min..=LENGTH_TOKENS.max).contains(&value) {
                // Its range is within u32.
                return Ok(TraceTokens::Length(value as u32));
            }
            let found = format!("`{value}` at position {position}");
            Err(Mistake::new(found, LENGTH_TOKENS.to_string()).within(field).at_line(1))
        };
        let prompt = length("input_lens", self.input_lens[position])?;
        let output = length("output_lens", self.output_lens[position])?;
        Ok(Some(TraceRequest::new(1, at, prompt, output)))
    }
}
