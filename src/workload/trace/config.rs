//! What can be set about the replay of a trace.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::TraceFormat;
use crate::workload::ConfigError;

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
    /// Ends the trace after so many requests.
    #[serde(default)]
    pub max_requests: Option<u64>,
    /// Divides all times: 2 replays the trace in half the time.
    #[serde(default = "one")]
    pub rate_scale: f64,
}

const fn one() -> f64 {
    1.0
}

impl TraceConfig {
    /// A trace whose format its beginning tells, as it was recorded.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: None, hash_id_tokens: None, max_requests: None, rate_scale: one() }
    }

    /// Checks the values; the error names the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.hash_id_tokens == Some(0) {
            return Err(ConfigError::new("hash_id_tokens", 0, "at least 1 (Mooncake traces: 512)"));
        }
        if !(1e-6..=1e6).contains(&self.rate_scale) {
            let expected = "a number from 0.000001 to 1000000; 1 replays the recorded times";
            return Err(ConfigError::new("rate_scale", self.rate_scale, expected));
        }
        Ok(())
    }

    /// What of it says how to read the file.
    pub fn read_options(&self) -> ReadOptions {
        ReadOptions { format: self.format, hash_id_tokens: self.hash_id_tokens }
    }
}

/// How to read a trace; [`Default`] is as its format says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReadOptions {
    /// Told by the file's beginning if `None`.
    pub format: Option<TraceFormat>,
    /// The prompt tokens that one hash id stands for, at least 1; the format's own number if `None`.
    pub hash_id_tokens: Option<u32>,
}
