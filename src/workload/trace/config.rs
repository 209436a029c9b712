//! What can be set about a trace and its replay.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::TraceFormat;
use super::hf_tokenizer::HfTokenizer;
use super::reuse::ReuseConfig;
use crate::units::SimTime;
use crate::workload::{ArrivalProcess, ConfigError, Distribution};

/// Which file to replay and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// The file, plain, gzip or zstd. The caller opens it and passes it to [`Trace::new`](super::Trace::new).
    pub path: PathBuf,
    /// Told by the file's beginning if left out.
    #[serde(default)]
    pub format: Option<TraceFormat>,
    /// The prompt tokens that one hash id stands for; the format's own number if left out.
    #[serde(default)]
    pub hash_id_tokens: Option<u32>,
    /// How texts become tokens.
    #[serde(default)]
    pub text: TextConfig,
    /// What prompts share of which only the length is recorded.
    #[serde(default)]
    pub reuse: Option<ReuseConfig>,
    /// Leaves out rows that cannot be read, and counts them.
    #[serde(default)]
    pub skip_bad_rows: bool,
    /// How far rows may be out of order, in seconds: so much of the trace is kept in memory. The
    /// format's own number if left out.
    #[serde(default)]
    pub sort_window_s: Option<f64>,
    /// Ends the trace after so many requests.
    #[serde(default)]
    pub max_requests: Option<u64>,
    /// Divides all recorded times: 2 replays the trace in half the time.
    #[serde(default = "one")]
    pub rate_scale: f64,
    /// When requests, or sessions whose turns follow one another in the file, begin.
    #[serde(default)]
    pub arrivals: TraceArrivals,
    /// A turn of a session waits for the answer before, and is sent a think time later, but not
    /// before its recorded time. Otherwise turns are sent at their recorded times; those without
    /// one wait in any case.
    #[serde(default)]
    pub closed_loop: bool,
    /// From the end of an answer to the session's next turn, instead of what the trace records.
    #[serde(default)]
    pub think_time_s: Option<Distribution>,
}

/// When requests are sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceArrivals {
    /// At the recorded times.
    #[default]
    Recorded,
    /// In the order of the file, at a rate of our own.
    Rate(RateArrivals),
    /// In the order of the file, so many at a time: one begins when another has ended.
    Concurrency(u32),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateArrivals {
    /// Requests, or sessions, in a second.
    pub per_s: f64,
    #[serde(default)]
    pub process: ArrivalProcess,
}

/// How texts become tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// A `tokenizer.json` of Hugging Face, relative to the scenario. The caller reads it.
    #[serde(default)]
    pub tokenizer: Option<PathBuf>,
    /// Without a tokenizer, how many characters count as a token.
    #[serde(default = "four_characters")]
    pub characters_per_token: f64,
    /// Tokens that the chat template puts around each message.
    #[serde(default = "four_tokens")]
    pub template_tokens_per_message: u32,
    /// Placeholder tokens of an image; without it a message with an image is a bad row.
    #[serde(default)]
    pub image_tokens: Option<u32>,
}

const fn one() -> f64 {
    1.0
}

/// A rule of thumb for English and the tokenizers of GPT models.
const fn four_characters() -> f64 {
    4.0
}

/// ChatML, for one: `<|im_start|>`, the role, a line end, and `<|im_end|>`.
const fn four_tokens() -> u32 {
    4
}

impl Default for TextConfig {
    fn default() -> Self {
        Self {
            tokenizer: None,
            characters_per_token: four_characters(),
            template_tokens_per_message: four_tokens(),
            image_tokens: None,
        }
    }
}

impl TraceConfig {
    /// A trace whose format its beginning tells, as it was recorded.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            format: None,
            hash_id_tokens: None,
            text: TextConfig::default(),
            reuse: None,
            skip_bad_rows: false,
            sort_window_s: None,
            max_requests: None,
            rate_scale: one(),
            arrivals: TraceArrivals::Recorded,
            closed_loop: false,
            think_time_s: None,
        }
    }

    /// Checks the values; the error names the path of the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.hash_id_tokens == Some(0) {
            return Err(ConfigError::new("hash_id_tokens", 0, "at least 1 (Mooncake traces: 512)"));
        }
        number("rate_scale", self.rate_scale, 1e-6, 1e6, "; 1 replays the recorded times")?;
        if let Some(window_s) = self.sort_window_s {
            number("sort_window_s", window_s, 0.0, 1e9, "")?;
        }
        match &self.arrivals {
            TraceArrivals::Recorded => {}
            TraceArrivals::Rate(RateArrivals { per_s, process }) => {
                number("arrivals.rate.per_s", *per_s, 1e-9, 1e6, "")?;
                process.validate().map_err(|error| error.within("arrivals.rate.process"))?;
                if process.sets_its_times() {
                    let expected = "one with a rate, such as poisson or gamma";
                    let found = "times of its own";
                    return Err(ConfigError::new("arrivals.rate.process", found, expected));
                }
            }
            TraceArrivals::Concurrency(0) => {
                return Err(ConfigError::new("arrivals.concurrency", 0, "at least 1"));
            }
            TraceArrivals::Concurrency(_) => {}
        }
        if self.arrivals != TraceArrivals::Recorded && self.rate_scale != one() {
            let expected = "either `rate_scale` for the recorded times or `arrivals` instead of them";
            return Err(ConfigError::new("rate_scale", self.rate_scale, expected));
        }
        if let Some(think_time_s) = &self.think_time_s {
            think_time_s.validate_time().map_err(|error| error.within("think_time_s"))?;
        }
        self.text.validate().map_err(|error| error.within("text"))?;
        self.reuse.as_ref().map_or(Ok(()), |reuse| reuse.validate().map_err(|error| error.within("reuse")))
    }

    /// Only what of it decides which requests are read and how, save for the path.
    pub(super) fn reading(&self) -> Self {
        Self {
            format: self.format,
            hash_id_tokens: self.hash_id_tokens,
            text: self.text.clone(),
            skip_bad_rows: self.skip_bad_rows,
            sort_window_s: self.sort_window_s,
            max_requests: self.max_requests,
            ..Self::new("")
        }
    }

    /// What of it says how to read the file. `tokenizer` is what was read from
    /// [`TextConfig::tokenizer`].
    pub fn read_options(&self, tokenizer: Option<HfTokenizer>) -> ReadOptions {
        ReadOptions {
            format: self.format,
            hash_id_tokens: self.hash_id_tokens,
            text: self.text.clone(),
            tokenizer,
            skip_bad_rows: self.skip_bad_rows,
            sort_window: self.sort_window_s.map(SimTime::from_secs_f64),
        }
    }
}

impl TextConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        number("characters_per_token", self.characters_per_token, 0.1, 1000.0, "")?;
        let tokens = |field: &str, value: u32, least: u32| {
            let expected = format!("a whole number from {least} to 1000");
            if (least..=1000).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::new(field, value, expected))
            }
        };
        tokens("template_tokens_per_message", self.template_tokens_per_message, 0)?;
        match self.image_tokens {
            Some(image_tokens) if !(1..=1_000_000).contains(&image_tokens) => {
                Err(ConfigError::new("image_tokens", image_tokens, "a whole number from 1 to 1000000"))
            }
            _ => Ok(()),
        }
    }
}

fn number(field: &str, value: f64, least: f64, most: f64, note: &str) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(field, value, format!("a number from {least} to {most}{note}")))
}

/// How to read a trace; [`Default`] is as its format says.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Told by the file's beginning if `None`.
    pub format: Option<TraceFormat>,
    /// The prompt tokens that one hash id stands for, at least 1; the format's own number if `None`.
    pub hash_id_tokens: Option<u32>,
    pub text: TextConfig,
    /// Of [`TextConfig::tokenizer`].
    pub tokenizer: Option<HfTokenizer>,
    /// Leaves out rows that cannot be read, and counts them.
    pub skip_bad_rows: bool,
    /// How far rows may be out of order; the format's own number if `None`.
    pub sort_window: Option<SimTime>,
}
