//! The highest load that meets the promises: the load is doubled or cut until one meets them and one does
//! not, then halved between them in equal ratios.

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
    /// Requests are all alone on the server: with less load nothing gets faster.
    pub is_alone: bool,
}

/// What the search ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// The highest load that meets the promises; `None` if none does.
    pub met: Option<f64>,
    /// The lowest load above it that was not shown to; `None` if there seems to be no limit.
    pub not_met: Option<f64>,
}

/// Looks from `first` on, until the two loads are no further apart than `1 + precision`.
///
/// # Errors
/// Those of `look`.
pub(super) fn highest_load<E>(
    first: f64,
    precision: f64,
    mut look: impl FnMut(f64) -> Result<Look, E>,
) -> Result<Found, E> {
    let mut found = Found::default();
    let mut load = first;
    loop {
        let seen = look(load)?;
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
            (None, _) if seen.is_alone || load <= first / WIDEST => return Ok(found),
            (None, _) => load * seen.served_share.clamp(CUT.0, CUT.1),
        };
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
            Ok::<_, ()>(Look { verdict, served_share: (limit / load).min(1.0), is_alone: load < 1e-3 })
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
    fn what_runs_cannot_tell_is_not_met() {
        let look = |load: f64| {
            let verdict = if load <= 2.0 { Verdict::Met } else { Verdict::Open };
            Ok::<_, ()>(Look { verdict, served_share: 1.0, is_alone: false })
        };
        let found = highest_load(1.0, 0.01, look).unwrap();
        assert!(found.met.unwrap() <= 2.0 && found.not_met.unwrap() > 2.0);
    }
}
