//! What can be set about mixes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::workload::config::Source;
use crate::workload::generator::StartsMut;
use crate::workload::token_ids::MAX_PARTS;
use crate::workload::{ConfigError, WorkloadConfig, require};

/// Several workloads at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// New sessions and requests in a second over all parts, which the parts have a `share` of. Left
    /// out, each part has its own rate.
    #[serde(default)]
    pub rate_per_s: Option<f64>,
    /// For the parts that do not say how long they go on.
    #[serde(default)]
    pub duration_s: Option<f64>,
    pub parts: Vec<PartConfig>,
}

/// A workload of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartConfig {
    /// The name in reports, in front of the part's own tenants. It also names the part's random
    /// numbers: they do not depend on the other parts.
    pub name: String,
    /// Of the mix's rate, in proportion to the sum of all shares.
    #[serde(default)]
    pub share: Option<f64>,
    /// vLLM's request priority of all of the part's requests, in place of their own.
    #[serde(default)]
    pub priority: Option<i32>,
    pub workload: WorkloadConfig,
}

impl MixConfig {
    /// A part's workload with its share of the rate, and its duration.
    pub(super) fn workload_of<'a>(&self, part: &'a PartConfig) -> Cow<'a, WorkloadConfig> {
        let mut workload = Cow::Borrowed(&part.workload);
        if let (Some(rate_per_s), Some(share)) = (self.rate_per_s, part.share) {
            let sum: f64 = self.parts.iter().filter_map(|part| part.share).sum();
            if let Some(part) = workload.to_mut().generator_mut() {
                *part.starts_mut().rate_per_s = Some(rate_per_s * share / sum);
            }
        }
        if self.duration_s.is_some()
            && let Some(part) = workload.to_mut().generator_mut()
        {
            let StartsMut { duration_s, .. } = part.starts_mut();
            *duration_s = duration_s.or(self.duration_s);
        }
        workload
    }

    /// Checks the values; the error names the path of the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let found = format!("{} parts", self.parts.len());
        require((1..=MAX_PARTS).contains(&self.parts.len()), "parts", found, format!("1 to {MAX_PARTS}"))?;
        if let Some(rate_per_s) = self.rate_per_s {
            let valid = (1e-9..=1e6).contains(&rate_per_s);
            require(valid, "rate_per_s", rate_per_s, "a number above 0, at most 1000000")?;
        }
        let mut names = BTreeSet::new();
        for (index, part) in self.parts.iter().enumerate() {
            let mut check = || {
                let name = &part.name;
                require(!name.is_empty(), "name", "nothing", "a name")?;
                require(names.insert(name), "name", format!("`{name}` again"), "a name of its own")?;
                self.validate_share(part)?;
                let kind = part.workload.kind();
                let is_mix = matches!(part.workload, WorkloadConfig::Mix(_));
                require(!is_mix, "workload", "a mix", "its parts as parts of the outer mix")?;
                let workload = self.workload_of(part);
                workload.validate().map_err(|error| error.within(kind).within("workload"))
            };
            check().map_err(|error| error.within(&format!("parts[{index}]")))?;
        }
        Ok(())
    }

    fn validate_share(&self, part: &PartConfig) -> Result<(), ConfigError> {
        match (part.share, self.rate_per_s) {
            (None, _) => Ok(()),
            (Some(share), None) => {
                Err(ConfigError::new("share", share, "`rate_per_s` of the mix to have a share of"))
            }
            (Some(share), Some(_)) => {
                let valid = (1e-9..=1e9).contains(&share);
                require(valid, "share", share, "a number above 0, at most 1000000000")?;
                let has_rate = match part.workload.source() {
                    Source::Generator(generator) => {
                        let starts = generator.starts();
                        starts.rate_per_s.is_some() || starts.process.sets_its_times()
                    }
                    Source::Trace(_) | Source::Mix(_) => true,
                };
                let expected = "a rate or times of the part's own, or a share";
                require(!has_rate, "share", "both a share and other times", expected)
            }
        }
    }
}
