//! What a plan comes to.

use serde::Serialize;
use serde_json::{Map, Value};

use super::binding::Binding;
use super::decision::Verdict;
use super::fleet::{Counts, Fleet, TokenRates};
use super::measured::Measured;
use super::recommend::Recommendation;
use super::settings::Settings;
use crate::simulation::router::RouterConfig;

/// A finished plan.
#[derive(Clone, Debug, Serialize)]
pub struct PlanResult {
    pub kvsim_version: String,
    pub name: String,
    pub description: String,
    /// The load that is planned for, where one number says it: what starts, and how often in a second.
    pub rate: Option<(&'static str, f64)>,
    pub settings: Settings,
    /// The paths of what the candidates differ in.
    pub fields: Vec<String>,
    /// In the order of the file.
    pub candidates: Vec<CandidateResult>,
    /// `None` where no candidate meets the targets.
    pub recommendation: Option<Recommendation>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CandidateResult {
    pub name: Option<String>,
    /// By their paths; a field that is not here is as in the scenario.
    pub fields: Map<String, Value>,
    pub outcome: Outcome,
    /// No other one is cheaper and as fast, or faster and as cheap.
    pub is_on_front: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Why it cannot start, or a run of it cannot go on.
    CannotRun(String),
    /// No load meets the targets; the lowest that misses one.
    MeetsNoLoad(Box<LoadResult>),
    Meets(Box<Capacity>),
    /// A replica meets them, but no fleet of them that was tried.
    FleetMisses(Box<FleetCheck>),
}

/// A load that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadResult {
    /// Times the scenario's, on one replica.
    pub load: f64,
    pub verdict: Verdict,
    /// Of each target.
    pub verdicts: Vec<Verdict>,
    pub replications: u32,
    /// Means over the replications.
    pub measured: Measured,
}

#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// The highest load that one replica was shown to take.
    pub highest: LoadResult,
    /// The lowest load above it that it was not shown to; `None` if there seems to be none.
    pub too_much: Option<LoadResult>,
    pub binding: Binding,
    pub binding_because: String,
    /// The targets that `too_much` misses first, by their positions.
    pub binding_targets: Vec<usize>,
    pub rates: TokenRates,
    pub fleet: Fleet,
    /// The fleet at the load; before it was verified, one replica at its part of it.
    pub at_load: LoadResult,
    /// What the fleet does behind each router; empty of a candidate that was not simulated as a fleet,
    /// because others are better in any case.
    pub verified: Vec<FleetCheck>,
    /// The best router for the fleet, by its position in `verified`; `None` before that, and of a single
    /// replica.
    pub router: Option<usize>,
    /// Of replicas with roles, what a scenario says of them.
    #[serde(skip)]
    pub pools: Option<Value>,
    /// How to start a replica, or one of each role on a line.
    pub command: String,
    /// What the command cannot say, and what predictions rest on, in sentences.
    pub notes: Vec<String>,
    /// Of the GPU time at the load and at the highest load of a replica, the share in steps beyond what was
    /// measured for the cost profile, whichever is more.
    pub extrapolated: f64,
}

/// A fleet behind a router, as it was simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetCheck {
    pub router: RouterConfig,
    /// The fewest that were found to be enough; if none were, the most that were tried.
    #[serde(flatten)]
    pub counts: Counts,
    /// Everything was met; else so many replicas were not enough, and no more were tried.
    pub is_enough: bool,
    /// All replicas, at the load.
    pub at_load: LoadResult,
    /// The fewest that take the load: what is left when as many as may be lost are lost.
    pub at_least: LoadResult,
    /// The fewest that take the load with the plan's headroom, at that.
    pub with_headroom: LoadResult,
}

impl Capacity {
    /// The best router of a fleet.
    pub fn router(&self) -> Option<&RouterConfig> {
        Some(&self.verified.get(self.router?)?.router)
    }

    /// The fleet as it was simulated, behind its best router.
    pub fn check(&self) -> Option<&FleetCheck> {
        self.verified.get(self.router.unwrap_or(0))
    }
}

impl FleetCheck {
    /// The first of its loads that was not shown to keep the promises.
    pub fn missed(&self) -> Option<&LoadResult> {
        [&self.at_least, &self.with_headroom, &self.at_load]
            .into_iter()
            .find(|look| look.verdict != Verdict::Met)
    }
}

impl CandidateResult {
    pub fn capacity(&self) -> Option<&Capacity> {
        match &self.outcome {
            Outcome::Meets(capacity) => Some(capacity),
            Outcome::CannotRun(_) | Outcome::MeetsNoLoad(_) | Outcome::FleetMisses(_) => None,
        }
    }
}

impl PlanResult {
    /// What is called latency of a candidate: the value of the first target with one limit, TTFT p90 where
    /// there is none.
    pub fn latency_ms(&self, capacity: &Capacity) -> f64 {
        self.latency_at_ms(&capacity.at_load)
    }

    /// The same of a load.
    pub fn latency_at_ms(&self, look: &LoadResult) -> f64 {
        look.measured.values_ms.iter().flatten().next().copied().unwrap_or(look.measured.ttft_p90_ms)
    }

    /// Replicas of some candidate prefill or decode.
    pub fn has_roles(&self) -> bool {
        let fleets = self.candidates.iter().filter_map(CandidateResult::capacity);
        fleets.into_iter().any(|capacity| capacity.fleet.prefill_replicas.is_some())
    }

    /// A router among those of the plan: its policy, and its position where several have that.
    pub fn router_name(&self, router: &RouterConfig) -> String {
        let policy = router.policy;
        let routers = &self.settings.routers;
        let position = routers.iter().position(|it| it == router);
        match routers.iter().filter(|it| it.policy == policy).count() {
            0 | 1 => policy.name().to_owned(),
            _ => format!("{} (router {})", policy.name(), position.unwrap_or(0)),
        }
    }

    /// What [`Self::latency_ms`] is of.
    pub fn latency_name(&self) -> String {
        let target = self.settings.targets.iter().find(|target| target.limits.len() == 1);
        target.map_or_else(
            || "TTFT p90".to_owned(),
            |target| {
                let of = target.tenant.as_ref().map(|tenant| format!(" of {tenant}")).unwrap_or_default();
                target.percentile_name() + &of
            },
        )
    }
}
