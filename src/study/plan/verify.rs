//! Whole fleets behind their routers: what one replica takes alone says little of how prefixes and load
//! spread over many.

use rayon::prelude::*;

use super::candidate::End;
use super::decision::Verdict;
use super::recommend::recommend;
use super::result::{FleetCheck, Outcome, PlanResult};
use super::run::{Runs, Setup, Stopped};

/// More replicas than so many times those that follow from one replica's capacity are not tried.
const MOST_REPLICAS: u32 = 4;
/// Where a fleet is not enough, a part of it is added: one in so many, and one at least.
const ADDED: u32 = 8;

impl Runs<'_> {
    /// Simulates the fleets on the front. A fleet that needs more replicas than one of them alone would
    /// say is dearer, so that others may come to the front, until all on it have been simulated.
    pub fn verify(&self, result: &mut PlanResult) -> Result<(), Stopped> {
        loop {
            recommend(result);
            let is_open = |index: &usize| {
                let candidate = &result.candidates[*index];
                candidate.is_on_front && candidate.capacity().is_some_and(|it| it.verified.is_empty())
            };
            let open: Vec<usize> = (0..result.candidates.len()).filter(is_open).collect();
            if open.is_empty() {
                return Ok(());
            }
            let check = |&index: &usize| self.check_fleets(result, index);
            let checks: Vec<_> = open.par_iter().map(check).collect::<Result<_, Stopped>>()?;
            for (index, checks) in open.into_iter().zip(checks) {
                self.take(result, index, checks);
            }
        }
    }

    /// The best of the routers decides over a candidate.
    fn take(&self, result: &mut PlanResult, index: usize, checks: Result<Vec<FleetCheck>, String>) {
        let settings = &self.planner.header.settings;
        let candidate = &mut result.candidates[index];
        let checks = match checks {
            Ok(checks) => checks,
            Err(error) => {
                candidate.outcome = Outcome::CannotRun(error);
                return;
            }
        };
        let Ok(scenario) = self.planner.scenario(index) else { return };
        let Outcome::Meets(capacity) = &mut candidate.outcome else { return };
        let best = checks.iter().enumerate().filter(|(_, check)| check.is_enough).min_by(|a, b| {
            let latency = |check: &FleetCheck| {
                check.at_load.measured.values_ms.first().copied().flatten().unwrap_or(f64::MAX)
            };
            let by_latency = latency(a.1).total_cmp(&latency(b.1));
            a.1.replicas.cmp(&b.1.replicas).then(by_latency).then(a.0.cmp(&b.0))
        });
        let Some((router, best)) = best else {
            // All routers fail: the one that came nearest to the load tells why.
            if let Some(check) = checks.into_iter().next() {
                candidate.outcome = Outcome::FleetMisses(Box::new(check));
            }
            return;
        };
        capacity.fleet =
            capacity.fleet.clone().with_replicas(best.replicas, scenario, settings, capacity.rates);
        capacity.at_load = best.at_load.clone();
        capacity.extrapolated = best.at_load.measured.steps.extrapolated();
        capacity.router = (best.replicas > 1).then_some(router);
        capacity.verified = checks;
    }

    fn check_fleets(
        &self,
        result: &PlanResult,
        candidate: usize,
    ) -> Result<Result<Vec<FleetCheck>, String>, Stopped> {
        let Some(capacity) = result.candidates[candidate].capacity() else { return Ok(Ok(Vec::new())) };
        let first = capacity.fleet.replicas;
        let routers = 0..self.planner.header.settings.routers.len();
        let check = |router| self.check_fleet(candidate, router, first);
        match routers.into_par_iter().map(check).collect::<Result<Vec<_>, End>>() {
            Ok(checks) => Ok(Ok(checks)),
            Err(End::Failed(error)) => Ok(Err(error)),
            Err(End::Stopped) => Err(Stopped),
        }
    }

    fn check_fleet(&self, candidate: usize, router: usize, first: u32) -> Result<FleetCheck, End> {
        let settings = &self.planner.header.settings;
        let at = |load: f64, replicas: u32| {
            // A single replica needs no router.
            let router = if replicas == 1 { 0 } else { router };
            self.look(Setup { candidate, load, replicas, router })
        };
        let mut replicas = first;
        loop {
            let with_headroom = at(1.0 + settings.headroom, replicas)?;
            let with_losses = at(1.0, replicas.saturating_sub(settings.lost_replicas).max(1))?;
            let at_load = at(1.0, replicas)?;
            let is_enough =
                [&with_headroom, &with_losses, &at_load].iter().all(|look| look.verdict == Verdict::Met);
            let more = replicas + (replicas / ADDED).max(1);
            if is_enough || more > first.saturating_mul(MOST_REPLICAS) {
                let router = settings.routers[router].clone();
                return Ok(FleetCheck { router, replicas, is_enough, at_load, with_headroom, with_losses });
            }
            replicas = more;
        }
    }
}
