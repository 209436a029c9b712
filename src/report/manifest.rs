//! What the report was made from, so that it can be made again.

use serde::Serialize;
use sha2::{Digest, Sha256};

pub(crate) const MANIFEST: &str = "manifest.json";

/// The trace that was replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceInfo {
    /// Without its folder.
    pub file_name: String,
    /// Of the file as it is, in hex.
    pub sha256: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Manifest<'a> {
    kvsim_version: &'static str,
    name: &'a str,
    seed: u64,
    /// Of the scenario with its defaults and overrides, in hex.
    scenario_sha256: String,
    trace: Option<&'a TraceInfo>,
    scenario: serde_json::Value,
}

impl<'a> Manifest<'a> {
    /// `scenario` is the resolved scenario as JSON.
    pub fn new(name: &'a str, seed: u64, scenario: &str, trace: Option<&'a TraceInfo>) -> Self {
        let digest = Sha256::digest(scenario.as_bytes());
        Self {
            kvsim_version: env!("CARGO_PKG_VERSION"),
            name,
            seed,
            scenario_sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
            trace,
            scenario: serde_json::from_str(scenario).unwrap_or_default(),
        }
    }
}
