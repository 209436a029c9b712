//! What users are promised. Every promise is of one form: at least a share of the requests, or of the
//! gaps between tokens, keeps within limits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// From arrival to the first output token.
    Ttft,
    /// Per output token after the first, one value for each request.
    Tpot,
    /// Between one output of a request and the next.
    Itl,
    /// From arrival to the last output token.
    E2e,
}

impl Metric {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT",
            Self::Tpot => "TPOT",
            Self::Itl => "ITL",
            Self::E2e => "E2E",
        }
    }
}

/// A limit of a percentile, as it is typed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PercentileTarget {
    pub metric: Metric,
    /// Above 0 and below 100.
    pub percentile: f64,
    pub at_most_ms: f64,
    /// Of this tenant's requests alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A share of requests that keep all limits at once, as it is typed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoodputTarget {
    /// Above 0 and below 1.
    pub share: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    pub metric: Metric,
    pub at_most_ms: f64,
}

/// A promise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Of the requests; of gaps between tokens where ITL is limited.
    pub share: f64,
    /// One for a percentile; all must be kept.
    pub limits: Vec<Limit>,
    pub tenant: Option<String>,
    /// Where the tenant stands in the workload's list.
    pub tenant_index: Option<u32>,
}

impl Target {
    pub fn of_percentile(typed: &PercentileTarget) -> Self {
        Self {
            share: typed.percentile / 100.0,
            limits: vec![Limit { metric: typed.metric, at_most_ms: typed.at_most_ms }],
            tenant: typed.tenant.clone(),
            tenant_index: None,
        }
    }

    pub fn of_goodput(typed: &GoodputTarget) -> Self {
        let limits =
            [(Metric::Ttft, typed.ttft_ms), (Metric::Tpot, typed.tpot_ms), (Metric::E2e, typed.e2e_ms)];
        Self {
            share: typed.share,
            limits: limits
                .into_iter()
                .filter_map(|(metric, at_most_ms)| Some(Limit { metric, at_most_ms: at_most_ms? }))
                .collect(),
            tenant: typed.tenant.clone(),
            tenant_index: None,
        }
    }

    /// Of gaps between tokens, not of requests.
    pub fn is_of_gaps(&self) -> bool {
        self.limits.iter().any(|limit| limit.metric == Metric::Itl)
    }

    /// The percentile, where there is one limit.
    pub fn percentile_name(&self) -> String {
        let percent = (self.share * 1e5).round() / 1e3;
        match &self.limits[..] {
            [limit] => format!("{} p{percent}", limit.metric.name()),
            _ => "goodput".to_owned(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.limits[..] {
            [limit] => write!(f, "{} <= {} ms", self.percentile_name(), limit.at_most_ms)?,
            limits => {
                let limits: Vec<String> = limits
                    .iter()
                    .map(|limit| format!("{} <= {} ms", limit.metric.name(), limit.at_most_ms))
                    .collect();
                let percent = (self.share * 1e5).round() / 1e3;
                write!(f, "{percent} % with {}", limits.join(" and "))?;
            }
        }
        match &self.tenant {
            Some(tenant) => write!(f, " for {tenant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_as_promises() {
        let ttft = PercentileTarget {
            metric: Metric::Ttft,
            percentile: 99.9,
            at_most_ms: 500.0,
            tenant: Some("shop".to_owned()),
        };
        assert_eq!(Target::of_percentile(&ttft).to_string(), "TTFT p99.9 <= 500 ms for shop");
        let goodput = GoodputTarget {
            share: 0.95,
            ttft_ms: Some(500.0),
            tpot_ms: Some(50.0),
            e2e_ms: None,
            tenant: None,
        };
        let goodput = Target::of_goodput(&goodput);
        assert_eq!(goodput.to_string(), "95 % with TTFT <= 500 ms and TPOT <= 50 ms");
        assert_eq!(goodput.percentile_name(), "goodput");
    }
}
