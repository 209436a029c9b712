//! Everything about one candidate: the highest load of a replica, the fleet for the whole load, and what
//! a replica of it does.

use super::binding::Binding;
use super::command::serve_commands;
use super::decision::{Verdict, fewest_requests, of_targets};
use super::fleet::{Counts, Fleet, FleetSize, TokenRates};
use super::measured::{Measured, mean_of};
use super::result::{CandidateResult, Capacity, LoadResult, Outcome};
use super::run::{Runs, Setup, Stopped};
use super::search::{Look, highest_load};
use crate::scenario::Scenario;
use crate::simulation::router::RouterConfig;

/// Requests that meet another one less often than this are alone.
const ALONE: f64 = 0.05;
/// Replications of a load until they can tell: at first so many, then up to twice as many as there were.
const FIRST_REPLICATIONS: u32 = 2;

/// Why a candidate's study ends early.
#[derive(Debug)]
pub(super) enum End {
    Stopped,
    Failed(String),
}

/// How to start a replica behind a router, or one of each role, and what that and the predictions rest on.
pub(super) fn start(scenario: &Scenario, router: Option<&RouterConfig>) -> (String, Vec<String>) {
    let (command, mut notes) = serve_commands(scenario, router);
    notes.extend(scenario.caveats());
    (command, notes)
}

fn extrapolated(look: &LoadResult) -> f64 {
    look.measured.steps.extrapolated()
}

impl Runs<'_> {
    pub fn study(&self, candidate: usize) -> Result<CandidateResult, Stopped> {
        let outcome = match self.planner.scenario(candidate) {
            Err(error) => Outcome::CannotRun(error.clone()),
            Ok(scenario) => match self.outcome(candidate, scenario) {
                Ok(outcome) => outcome,
                Err(End::Failed(error)) => Outcome::CannotRun(error),
                Err(End::Stopped) => return Err(Stopped),
            },
        };
        let point = &self.planner.sweep.plan.points[candidate];
        Ok(CandidateResult {
            name: point.name.clone(),
            fields: point.fields.clone(),
            outcome,
            is_on_front: false,
        })
    }

    fn outcome(&self, candidate: usize, scenario: &Scenario) -> Result<Outcome, End> {
        let settings = &self.planner.header.settings;
        let unit = FleetSize::unit(scenario);
        let mut looks: Vec<LoadResult> = Vec::new();
        let found = highest_load(1.0, settings.precision, |load| {
            // Another one than the asked load may be beyond what the workload's rate can be.
            if load != 1.0 && scenario.scaled(load).is_err() {
                return Ok(None);
            }
            let seen = self.look(Setup { candidate, load, size: unit, router: 0 })?;
            let look = Look {
                verdict: seen.verdict,
                served_share: seen.measured.served_share,
                is_least: seen.measured.mean_concurrency < ALONE || self.has_too_few_requests(&seen),
            };
            looks.push(seen);
            Ok(Some(look))
        })?;
        let mut at = |load: Option<f64>| {
            let index = looks.iter().position(|look| Some(look.load) == load)?;
            Some(looks.swap_remove(index))
        };
        let (highest, too_much) = (at(found.met), at(found.not_met));
        let Some(highest) = highest else {
            // The search has looked at one load at least. If it ended for want of requests, that is why nothing is
            // met; else a load that misses a target says more than one that is not sure.
            looks.extend(too_much);
            let rank = |look: &LoadResult| match look.verdict {
                Verdict::Open if self.has_too_few_requests(look) => 0,
                Verdict::Missed => 1,
                _ => 2,
            };
            let lowest =
                looks.into_iter().min_by(|a, b| rank(a).cmp(&rank(b)).then(a.load.total_cmp(&b.load)));
            let lowest = lowest.ok_or_else(|| End::Failed("no load was tried".to_owned()))?;
            return Ok(Outcome::MeetsNoLoad(Box::new(lowest)));
        };
        let rates = TokenRates {
            prompt_tokens_per_s: highest.measured.prompt_tokens_per_s / highest.load,
            output_tokens_per_s: highest.measured.output_tokens_per_s / highest.load,
        };
        let fleet = Fleet::new(Counts::of_capacity(highest.load, unit, settings), scenario, settings, rates);
        let units = fleet.replicas.div_ceil(unit.replicas);
        let load = 1.0 / f64::from(units);
        let at_load = self.look(Setup { candidate, load, size: unit, router: 0 })?;
        let limit = too_much.as_ref().unwrap_or(&highest);
        let (binding, binding_because) = Binding::of_load(&limit.measured);
        let binding_targets = too_much.iter().flat_map(|look| {
            let worst = [Verdict::Missed, Verdict::Open].into_iter().find(|it| look.verdicts.contains(it));
            let is_worst = move |verdict: &Verdict| Some(*verdict) == worst;
            look.verdicts.iter().enumerate().filter(move |(_, it)| is_worst(it)).map(|(index, _)| index)
        });
        let (command, notes) = start(scenario, None);
        Ok(Outcome::Meets(Box::new(Capacity {
            binding,
            binding_because,
            binding_targets: binding_targets.collect(),
            rates,
            pools: None,
            extrapolated: extrapolated(&highest).max(extrapolated(&at_load)),
            fleet,
            at_load,
            command,
            notes,
            highest,
            too_much,
            verified: Vec::new(),
            router: None,
        })))
    }

    /// A target cannot be told for want of requests.
    fn has_too_few_requests(&self, seen: &LoadResult) -> bool {
        let settings = &self.planner.header.settings;
        settings.targets.iter().enumerate().any(|(index, target)| {
            let of = seen.measured.shares[index].of;
            seen.verdicts[index] == Verdict::Open && of < fewest_requests(target.share, settings.confidence)
        })
    }

    /// Runs a load until the confidence intervals decide, or as often as is allowed.
    pub fn look(&self, setup: Setup) -> Result<LoadResult, End> {
        let settings = &self.planner.header.settings;
        let mut runs: Vec<Measured> = Vec::new();
        loop {
            let done = runs.len() as u32;
            let wanted = (2 * done).max(FIRST_REPLICATIONS).min(settings.max_replications);
            let more = self.at(setup, done..wanted).map_err(|Stopped| End::Stopped)?;
            for run in more {
                runs.push(run.map_err(End::Failed)?);
            }
            let (verdict, verdicts) = of_targets(&settings.targets, &runs, settings.confidence);
            // A workload that draws nothing from the seed says the same for ever.
            let is_repeated = runs.windows(2).all(|pair| pair[0] == pair[1]);
            if verdict != Verdict::Open || wanted == settings.max_replications || is_repeated {
                let measured = mean_of(&runs);
                return Ok(LoadResult {
                    load: setup.load,
                    verdict,
                    verdicts,
                    replications: wanted,
                    measured,
                });
            }
        }
    }
}
