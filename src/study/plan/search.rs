//! The highest load that meets the promises: the load is doubled or cut until one meets them and one does
//! not, then halved between them in equal ratios. And the fewest replicas that do, the same way.

use super::decision::Verdict;

/// Beyond so many times the first load, and below its inverse, nothing is looked for.
const WIDEST: f64 = 1e6;
/// A load that misses is cut to at least and at most this share.
const CUT: (f64, f64) = (1e-3, 0.5);

/// What a look at one load shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    /// [`Verdict::Open`]: as many runs as are allowed could not tell.
    pub verdict: Verdict,
    /// Of what came, the share that was served, 0 to 1; a guess of how much less would be served.
    pub served_share: f64,
    /// With less load nothing gets faster, or there are too few requests to tell.
    pub is_least: bool,
}

/// What the search ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// The highest load that meets the promises; `None` if none does.
    pub met: Option<f64>,
    /// The lowest load above it that was not shown to; `None` if there seems to be no limit.
    pub not_met: Option<f64>,
}

/// Looks from `first` on, until the two loads are no further apart than `1 + precision`, or `look` says that a
/// workload cannot have such a load.
///
/// # Errors
/// Those of `look`.
pub(super) fn highest_load<E>(
    first: f64,
    precision: f64,
    mut look: impl FnMut(f64) -> Result<Option<Look>, E>,
) -> Result<Found, E> {
    let mut found = Found::default();
    let mut load = first;
    loop {
        let Some(seen) = look(load)? else { return Ok(found) };
        if seen.verdict == Verdict::Met {
            found.met = Some(load);
        } else {
            found.not_met = Some(load);
        }
        load = match (found.met, found.not_met) {
            (Some(met), Some(not_met)) if not_met / met <= 1.0 + precision => return Ok(found),
            (Some(met), Some(not_met)) => (met * not_met).sqrt(),
            (Some(met), None) if met >= first * WIDEST => return Ok(found),
            (Some(met), None) => 2.0 * met,
            (None, _) if seen.is_least || load <= first / WIDEST => return Ok(found),
            (None, _) => load * seen.served_share.clamp(CUT.0, CUT.1),
        };
    }
}

/// More replicas than so many times the guess are not looked at.
const MOST_REPLICAS: u32 = 4;
/// Until one fleet is enough and one is not, the next differs by a part of it: one in so many, and one at
/// least.
const PART: u32 = 8;

/// The fewest replicas that are enough, from a guess on and to within `precision`; `None` if even four times
/// the guess are not.
///
/// # Errors
/// Those of `is_enough`.
pub(super) fn fewest_replicas<E>(
    guess: u32,
    precision: f64,
    mut is_enough: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Option<u32>, E> {
    let guess = guess.max(1);
    let (mut too_few, mut enough) = (0, None);
    let mut replicas = guess;
    loop {
        if is_enough(replicas)? {
            enough = Some(replicas);
        } else {
            too_few = replicas;
        }
        let part = (replicas / PART).max(1);
        replicas = match enough {
            Some(enough) => {
                let tolerated = (f64::from(too_few) * precision) as u32;
                match enough - too_few {
                    gap if gap <= tolerated.max(1) => return Ok(Some(enough)),
                    gap if too_few > 0 => too_few + gap / 2,
                    _ => enough - part,
                }
            }
            None if replicas >= guess.saturating_mul(MOST_REPLICAS) => return Ok(None),
            None => replicas.saturating_add(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that meets its promises up to a load.
    fn search(limit: f64, precision: f64) -> (Found, usize) {
        let mut looks = 0;
        let found = highest_load(1.0, precision, |load| {
            looks += 1;
            let verdict = if load <= limit { Verdict::Met } else { Verdict::Missed };
            Ok::<_, ()>(Some(Look { verdict, served_share: (limit / load).min(1.0), is_least: load < 1e-3 }))
        });
        (found.unwrap(), looks)
    }

    #[test]
    fn the_limit_lies_between_the_two_loads() {
        for limit in [0.0173, 0.4, 0.999, 1.0, 3.3, 250.0] {
            let (found, looks) = search(limit, 0.05);
            let (met, not_met) = (found.met.unwrap(), found.not_met.unwrap());
            assert!(met <= limit && limit < not_met && not_met / met <= 1.05, "{limit}: {found:?}");
            assert!(looks <= 16, "{looks} looks for {limit}");
        }
    }

    #[test]
    fn no_load_and_any_load_are_found_out() {
        let (found, _) = search(0.0, 0.05);
        assert_eq!(found.met, None);
        let (found, _) = search(f64::INFINITY, 0.05);
        assert_eq!(found.not_met, None);
        assert!(found.met.unwrap() >= 1e6);
    }

    #[test]
    fn a_load_that_cannot_be_had_ends_the_search() {
        let look = |load: f64| {
            let met = Look { verdict: Verdict::Met, served_share: 1.0, is_least: false };
            Ok::<_, ()>((load < 10.0).then_some(met))
        };
        assert_eq!(highest_load(1.0, 0.1, look).unwrap(), Found { met: Some(8.0), not_met: None });
    }

    #[test]
    fn what_runs_cannot_tell_is_not_met() {
        let look = |load: f64| {
            let verdict = if load <= 2.0 { Verdict::Met } else { Verdict::Open };
            Ok::<_, ()>(Some(Look { verdict, served_share: 1.0, is_least: false }))
        };
        let found = highest_load(1.0, 0.01, look).unwrap();
        assert!(found.met.unwrap() <= 2.0 && found.not_met.unwrap() > 2.0);
    }

    #[test]
    fn the_fewest_replicas_are_found_from_both_sides() {
        for (guess, fewest) in [(1, 1), (9, 9), (9, 4), (9, 1), (9, 13), (75, 71), (2, 8)] {
            let mut looks = 0;
            let is_enough = |replicas| {
                looks += 1;
                Ok::<_, ()>(replicas >= fewest)
            };
            assert_eq!(fewest_replicas(guess, 0.01, is_enough), Ok(Some(fewest)), "from {guess}");
            assert!(looks <= 9, "{looks} looks from {guess} to {fewest}");
        }
        let found = fewest_replicas(75, 0.05, |replicas| Ok::<_, ()>(replicas >= 60)).unwrap().unwrap();
        assert!((60..=62).contains(&found), "{found}");
        assert_eq!(fewest_replicas(9, 0.05, |_| Ok::<_, ()>(false)), Ok(None));
    }
}
