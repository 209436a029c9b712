//! What a sweep comes to, complete: a journal and the results say it, and two parts fit together
//! only if it is the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::file::Pareto;
use crate::report::TraceInfo;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub kvsim_version: String,
    /// A checksum of the sources that decide what a simulation comes to.
    #[serde(default)]
    pub kvsim_build: String,
    pub name: String,
    pub description: String,
    /// The scenario as it was typed, with what is set for all points.
    pub scenario: Value,
    /// Models by the name that was typed: the SHA-256 of what was understood, in hex.
    pub models: BTreeMap<String, String>,
    pub traces: Vec<TraceInfo>,
    /// The paths of what varies.
    pub fields: Vec<String>,
    pub points: Vec<PlannedPoint>,
    /// Runs of each point, with seeds from its own upwards.
    pub replications: u32,
    /// Of all intervals: the share of sweeps whose interval has the true mean in it.
    pub confidence: f64,
    pub baseline: Option<usize>,
    /// Names in `summary.json`.
    pub metrics: Vec<String>,
    pub pareto: Option<Pareto>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedPoint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// By their paths; a field that is not here is as in the scenario.
    pub fields: Map<String, Value>,
}

impl Plan {
    /// Runs of all points.
    pub fn num_runs(&self) -> usize {
        self.points.len() * self.replications as usize
    }

    /// Points have names.
    pub fn is_named(&self) -> bool {
        self.points.iter().any(|point| point.name.is_some())
    }

    /// What `other` has changed, in words; `None` if nothing.
    pub fn change(&self, other: &Self) -> Option<String> {
        if self.kvsim_version != other.kvsim_version {
            return Some(format!("kvsim was {} and is {}", self.kvsim_version, other.kvsim_version));
        }
        if self.kvsim_build != other.kvsim_build {
            let (was, is) = (&self.kvsim_build, &other.kvsim_build);
            return Some(format!("kvsim was another build of the same version ({was}, now {is})"));
        }
        for (is_same, what) in [
            (self.scenario == other.scenario, "the scenario has changed"),
            (self.models == other.models, "a model's config.json has changed"),
            (self.traces == other.traces, "the trace has changed"),
            (self.fields == other.fields && self.points == other.points, "the points have changed"),
            (self.replications == other.replications, "the number of replications has changed"),
            (self.metrics == other.metrics, "the metrics have changed"),
            (self == other, "the sweep file has changed"),
        ] {
            if !is_same {
                return Some(what.to_owned());
            }
        }
        None
    }
}

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub point: usize,
    /// Of the point, from 0.
    pub replication: u32,
    /// `None` where the scenario is not valid.
    pub seed: Option<u64>,
    pub fields: Map<String, Value>,
    pub outcome: Outcome,
}

/// What came out of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// By name; null where the run has no such figure.
    Metrics(Map<String, Value>),
    /// Why there is none.
    Error(String),
}

impl Row {
    /// A metric, where there is one.
    pub fn metric(&self, name: &str) -> Option<f64> {
        match &self.outcome {
            Outcome::Metrics(metrics) => metrics.get(name)?.as_f64(),
            Outcome::Error(_) => None,
        }
    }

    pub fn error(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Metrics(_) => None,
            Outcome::Error(error) => Some(error),
        }
    }
}

/// Every n-th point, for one of several machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 1.
    pub index: usize,
    pub of: usize,
}

impl Shard {
    /// The whole sweep.
    pub const ALL: Self = Self { index: 1, of: 1 };
    /// Shards of a sweep: more than any scheduler's array of jobs.
    const MAX: usize = 100_000;

    pub fn has(self, point: usize) -> bool {
        point % self.of == self.index - 1
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((index, of)) if 1 <= index && index <= of && of <= Self::MAX => Ok(Self { index, of }),
            Some((_, of)) if of > Self::MAX => Err(format!("give {} shards at most", Self::MAX)),
            _ => Err("give i/n, such as 2/3 for the second of three".to_owned()),
        }
    }
}
