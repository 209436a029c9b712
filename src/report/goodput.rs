//! Goodput: how many requests keep what users were promised.

use serde::{Deserialize, Serialize};

use super::requests_csv::tpot_ns;
use crate::simulation::RequestRecord;
use crate::units::SimTime;

/// What a request has to keep to be a good one, in milliseconds; one or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoodputLimits {
    /// From arrival to the first output token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
    /// Per output token after the first. An answer of one token keeps every limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ms: Option<f64>,
    /// From arrival to the last output token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e_ms: Option<f64>,
}

impl GoodputLimits {
    /// By the names of the fields.
    pub fn all(&self) -> [(&'static str, Option<f64>); 3] {
        [("ttft_ms", self.ttft_ms), ("tpot_ms", self.tpot_ms), ("e2e_ms", self.e2e_ms)]
    }
}

/// Of all requests that came: one that got no whole answer is not a good one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Goodput {
    pub limits: GoodputLimits,
    pub requests: u64,
    /// Those that keep all limits.
    pub good_requests: u64,
    /// `good_requests / requests`; 0 without requests.
    pub share: f64,
    /// Good requests over the run's duration, as `vllm bench serve --goodput` has it.
    pub requests_per_s: f64,
    /// Output tokens of good requests over the run's duration.
    pub output_tokens_per_s: f64,
    /// Whole answers that missed a limit, each counted under every limit that it missed.
    pub missed_ttft: u64,
    pub missed_tpot: u64,
    pub missed_e2e: u64,
    /// Aborted or failed.
    pub unfinished_requests: u64,
    /// With several tenants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_tenant: Vec<TenantGoodput>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantGoodput {
    pub name: String,
    pub requests: u64,
    pub good_requests: u64,
    pub share: f64,
}

/// Counts while requests end.
#[derive(Debug, Default)]
pub(super) struct GoodputTally {
    goodput: Goodput,
    good_output_tokens: u64,
}

impl GoodputTally {
    pub fn new(limits: GoodputLimits, tenants: &[String]) -> Self {
        let tenant = |name: &String| TenantGoodput { name: name.clone(), ..TenantGoodput::default() };
        let by_tenant = if tenants.len() > 1 { tenants.iter().map(tenant).collect() } else { Vec::new() };
        Self { goodput: Goodput { limits, by_tenant, ..Goodput::default() }, good_output_tokens: 0 }
    }

    pub fn on_request(&mut self, request: &RequestRecord) {
        let goodput = &mut self.goodput;
        goodput.requests += 1;
        let is_good = if request.is_whole() {
            let since_arrival = |at: SimTime| at.since(request.arrival).as_ns();
            let mut is_good = true;
            for (ns, at_most_ms, missed) in [
                (request.first_token.map(since_arrival), goodput.limits.ttft_ms, &mut goodput.missed_ttft),
                (tpot_ns(request), goodput.limits.tpot_ms, &mut goodput.missed_tpot),
                (Some(since_arrival(request.finished)), goodput.limits.e2e_ms, &mut goodput.missed_e2e),
            ] {
                if let (Some(ns), Some(at_most_ms)) = (ns, at_most_ms)
                    && ns as f64 > at_most_ms * 1e6
                {
                    *missed += 1;
                    is_good = false;
                }
            }
            is_good
        } else {
            goodput.unfinished_requests += 1;
            false
        };
        goodput.good_requests += u64::from(is_good);
        if is_good {
            self.good_output_tokens += u64::from(request.num_output_tokens);
        }
        if let Some(tenant) = goodput.by_tenant.get_mut(request.tenant as usize) {
            tenant.requests += 1;
            tenant.good_requests += u64::from(is_good);
        }
    }

    pub fn summary(&self, duration_s: f64) -> Goodput {
        let share = |good: u64, all: u64| if all > 0 { good as f64 / all as f64 } else { 0.0 };
        let per_s = |count: u64| if duration_s > 0.0 { count as f64 / duration_s } else { 0.0 };
        let mut goodput = self.goodput.clone();
        goodput.share = share(goodput.good_requests, goodput.requests);
        goodput.requests_per_s = per_s(goodput.good_requests);
        goodput.output_tokens_per_s = per_s(self.good_output_tokens);
        for tenant in &mut goodput.by_tenant {
            tenant.share = share(tenant.good_requests, tenant.requests);
        }
        goodput
    }
}

impl Goodput {
    /// What was asked of each request.
    pub(super) fn promise(&self) -> String {
        let limits =
            [("TTFT", self.limits.ttft_ms), ("TPOT", self.limits.tpot_ms), ("E2E", self.limits.e2e_ms)];
        let limit = |(name, at_most_ms): (&str, Option<f64>)| Some(format!("{name} <= {} ms", at_most_ms?));
        limits.into_iter().filter_map(limit).collect::<Vec<_>>().join(", ")
    }

    /// Why requests were no good ones, with their counts.
    pub(super) fn misses(&self) -> String {
        [
            ("missed TTFT", self.missed_ttft),
            ("missed TPOT", self.missed_tpot),
            ("missed E2E", self.missed_e2e),
            ("got no whole answer", self.unfinished_requests),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{count} {what}"))
        .collect::<Vec<_>>()
        .join(", ")
    }
}
