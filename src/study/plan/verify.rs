//! Whole fleets behind their routers: what one replica takes alone says little of how prefixes and load
//! spread over many.

use std::collections::HashMap;

use rayon::prelude::*;

use super::candidate::End;
use super::cluster_line::pools_of;
use super::decision::Verdict;
use super::fleet::{Counts, Fleet, FleetSize};
use super::recommend::recommend;
use super::result::{FleetCheck, LoadResult, Outcome, PlanResult};
use super::run::{Runs, Setup, Stopped, fleet};
use super::search::fewest_replicas;
use crate::simulation::Endpoints;
use crate::simulation::router::RouterConfig;

/// A fleet whose hit rate is so much below that of a replica alone could do with another router.
const HITS_LOST: f64 = 0.05;

impl Runs<'_> {
    /// Simulates the fleets on the front, then those that are within reach of it. A fleet that needs more
    /// or fewer replicas than one of them alone would say moves, so that others may come to the front,
    /// until all that could matter have been simulated.
    pub fn verify(&self, result: &mut PlanResult) -> Result<(), Stopped> {
        loop {
            recommend(result);
            let is_open = |index: &usize| {
                result.candidates[*index].capacity().is_some_and(|capacity| capacity.verified.is_empty())
            };
            let open: Vec<usize> = (0..result.candidates.len()).filter(is_open).collect();
            let (on_front, others): (Vec<usize>, Vec<usize>) =
                open.into_iter().partition(|&index| result.candidates[index].is_on_front);
            let next = match on_front.is_empty() {
                false => on_front,
                true => others.into_iter().filter(|&index| self.is_within_reach(result, index)).collect(),
            };
            if next.is_empty() {
                return Ok(());
            }
            let check = |&index: &usize| self.check_fleets(result, index);
            let checks: Vec<_> = next.par_iter().map(check).collect::<Result<_, Stopped>>()?;
            for (index, checks) in next.into_iter().zip(checks) {
                self.take(result, index, checks);
            }
        }
    }

    /// No fleet that was simulated is as fast and cheaper by more than the plan's reach. What is known of pools with
    /// roles before they are simulated as a fleet is too little: one of them may need far fewer replicas.
    fn is_within_reach(&self, result: &PlanResult, index: usize) -> bool {
        let reach = 1.0 + self.planner.header.settings.reach;
        let Some(own) = result.candidates[index].capacity() else { return false };
        if own.fleet.prefill_replicas.is_some() {
            return true;
        }
        let beats = |other: &super::result::Capacity| {
            !other.verified.is_empty()
                && other.fleet.cost_per_hour * reach < own.fleet.cost_per_hour
                && result.latency_ms(other) <= result.latency_ms(own)
        };
        !result.candidates.iter().filter_map(|candidate| candidate.capacity()).any(beats)
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
            a.1.counts.size().replicas.cmp(&b.1.counts.size().replicas).then(by_latency).then(a.0.cmp(&b.0))
        });
        let Some((router, best)) = best else {
            // All routers fail: the first tells why.
            if let Some(check) = checks.into_iter().next() {
                candidate.outcome = Outcome::FleetMisses(Box::new(check));
            }
            return;
        };
        capacity.fleet = Fleet::new(best.counts, scenario, settings, capacity.rates);
        capacity.at_load = best.at_load.clone();
        capacity.extrapolated = capacity.extrapolated.max(best.at_load.measured.steps.extrapolated());
        if self.is_routed(index, router, best.counts.size().replicas) {
            let config = &best.router;
            (capacity.command, capacity.notes) = super::candidate::start(scenario, Some(config));
            capacity.router = Some(router);
            let fleet = fleet(scenario, best.counts.size(), config);
            capacity.pools = fleet.ok().as_ref().and_then(pools_of);
        }
        let lost = capacity.highest.measured.hit_rate() - best.at_load.measured.hit_rate();
        if lost > HITS_LOST && !settings.routers.iter().any(RouterConfig::looks_at_prefixes) {
            capacity.notes.push(format!(
                "a replica alone finds {:.1} % of its prompt tokens in its cache, and in this fleet {:.1} %: a router \
                 that looks at prefixes may save replicas (`routers: [{{policy: prefix_aware}}, {{policy: kv_aware}}]`)",
                100.0 * capacity.highest.measured.hit_rate(),
                100.0 * best.at_load.measured.hit_rate()
            ));
        }
        capacity.verified = checks;
    }

    /// A single replica needs no router, unless that chooses among its data-parallel ranks.
    fn is_routed(&self, candidate: usize, router: usize, replicas: u32) -> bool {
        let router = &self.planner.header.settings.routers[router];
        let has_ranks = || {
            self.planner.scenario(candidate).as_ref().is_ok_and(|it| it.file.engine.data_parallel_size > 1)
        };
        replicas > 1 || (router.endpoints == Endpoints::Ranks && has_ranks())
    }

    fn check_fleets(
        &self,
        result: &PlanResult,
        candidate: usize,
    ) -> Result<Result<Vec<FleetCheck>, String>, Stopped> {
        let Some(capacity) = result.candidates[candidate].capacity() else { return Ok(Ok(Vec::new())) };
        let fleet = &capacity.fleet;
        let routers = 0..self.planner.header.settings.routers.len();
        let check = |router| self.check_fleet(candidate, router, fleet);
        match routers.into_par_iter().map(check).collect::<Result<Vec<_>, End>>() {
            Ok(checks) => Ok(Ok(checks)),
            Err(End::Failed(error)) => Ok(Err(error)),
            Err(End::Stopped) => Err(Stopped),
        }
    }

    /// The fewest replicas that take the load, and the fewest that take it with headroom; so many of them
    /// are rented that both are there when as many as may be lost are lost.
    fn check_fleet(&self, candidate: usize, router: usize, fleet: &Fleet) -> Result<FleetCheck, End> {
        let settings = &self.planner.header.settings;
        let guess = fleet.counts;
        let unit = match self.planner.scenario(candidate) {
            Ok(scenario) => FleetSize::unit(scenario),
            Err(error) => return Err(End::Failed(error.clone())),
        };
        let units = |size: FleetSize| size.replicas.div_ceil(unit.replicas);
        let mut looks: HashMap<(u64, FleetSize), LoadResult> = HashMap::new();
        let mut look = |load: f64, size: FleetSize| -> Result<LoadResult, End> {
            if let Some(known) = looks.get(&(load.to_bits(), size)) {
                return Ok(known.clone());
            }
            let router = if self.is_routed(candidate, router, size.replicas) { router } else { 0 };
            let seen = self.look(Setup { candidate, load, size, router })?;
            looks.insert((load.to_bits(), size), seen.clone());
            Ok(seen)
        };
        let with_headroom = 1.0 + settings.headroom;
        let mut tried = guess.size();
        let mut fewest = |load: f64, guess: u32, look: &mut Look<'_>| {
            let found = fewest_replicas(guess, settings.precision, |units| {
                tried = unit.times(units);
                Ok(look(load, tried)?.verdict == Verdict::Met)
            })?;
            let Some(units) = found else { return Ok(None) };
            let is_met = |size: FleetSize| Ok(look(load, size)?.verdict == Verdict::Met);
            fewest_of_roles(unit.times(units), fleet.is_prefill_dearer(), is_met).map(Some)
        };
        let found = match fewest(1.0, units(guess.at_least), &mut look)? {
            None => None,
            Some(at_least) => {
                let more = f64::from(units(guess.with_headroom)) / f64::from(units(guess.at_least));
                let guess = (f64::from(units(at_least)) * more).ceil() as u32;
                fewest(with_headroom, guess, &mut look)?.map(|with_headroom| (at_least, with_headroom))
            }
        };
        let counts = match found {
            Some((at_least, with_headroom)) => Counts::new(at_least, with_headroom, settings.lost_replicas),
            None => Counts::new(tried, tried, 0),
        };
        let at_load = look(1.0, counts.size())?;
        Ok(FleetCheck {
            router: settings.routers[router].clone(),
            counts,
            // More replicas than are enough are nearly always enough; where they are not, it is told.
            is_enough: found.is_some() && at_load.verdict == Verdict::Met,
            at_least: look(1.0, counts.at_least)?,
            with_headroom: look(with_headroom, counts.with_headroom)?,
            at_load,
        })
    }
}

type Look<'a> = dyn FnMut(f64, FleetSize) -> Result<LoadResult, End> + 'a;

/// From a fleet that is enough: one replica of a role less after the other, of the dearer role first, while it
/// still is. A fleet without roles is as small as it can be.
fn fewest_of_roles<E>(
    mut size: FleetSize,
    is_prefill_dearer: bool,
    mut is_enough: impl FnMut(FleetSize) -> Result<bool, E>,
) -> Result<FleetSize, E> {
    if !size.has_roles() {
        return Ok(size);
    }
    for is_prefill in [is_prefill_dearer, !is_prefill_dearer] {
        loop {
            let (prefill, decode) = (size.prefill, size.decode());
            let smaller = match is_prefill {
                true if prefill > 1 => FleetSize::of_roles(prefill - 1, decode),
                false if decode > 1 => FleetSize::of_roles(prefill, decode - 1),
                _ => break,
            };
            if !is_enough(smaller)? {
                break;
            }
            size = smaller;
        }
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a role of a fleet must have at least.
    fn fewest(size: FleetSize, prefill: u32, decode: u32) -> FleetSize {
        let is_enough = |size: FleetSize| Ok::<_, ()>(size.prefill >= prefill && size.decode() >= decode);
        fewest_of_roles(size, false, is_enough).unwrap()
    }

    #[test]
    fn each_role_has_as_few_as_it_takes() {
        assert_eq!(fewest(FleetSize::of_roles(4, 8), 3, 2), FleetSize::of_roles(3, 2));
        assert_eq!(fewest(FleetSize::of_roles(4, 8), 4, 8), FleetSize::of_roles(4, 8));
        assert_eq!(fewest(FleetSize::of_roles(2, 2), 0, 0), FleetSize::of_roles(1, 1));
        assert_eq!(fewest(FleetSize::alike(5), 0, 0), FleetSize::alike(5));
    }
}
