//! Whether promises are kept, as far as runs can tell.

use serde::{Deserialize, Serialize};

use super::targets::Target;
use crate::study::statistics::Estimate;

/// Of the requests that a promise is about, those for which it was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    pub kept: u64,
    pub of: u64,
}

impl Share {
    pub(super) fn value(self) -> Option<f64> {
        (self.of > 0).then(|| self.kept as f64 / self.of as f64)
    }
}

/// What runs of one load say of the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    Missed,
    /// More runs may tell.
    Open,
}

/// Of one promise, with a run's share in each replication. Met where the whole confidence interval of the
/// mean share is at or above the promised one, missed where it is below. However equal the runs are,
/// there must be so many requests that a server which misses the promise would probably have shown it.
pub(super) fn of_target(target: &Target, shares: &[Share], confidence: f64) -> Verdict {
    let values: Vec<f64> = shares.iter().filter_map(|share| share.value()).collect();
    let Some(Estimate { mean, half_width: Some(half_width) }) = Estimate::of(&values, confidence) else {
        return Verdict::Open;
    };
    let all: u64 = shares.iter().map(|share| share.of).sum();
    if mean + half_width < target.share {
        Verdict::Missed
    } else if mean - half_width >= target.share && all >= fewest_requests(target.share, confidence) {
        Verdict::Met
    } else {
        Verdict::Open
    }
}

/// Of all promises: met if each is, missed if one is.
pub(super) fn of_targets(
    targets: &[Target],
    runs: &[impl AsRef<[Share]>],
    confidence: f64,
) -> (Verdict, Vec<Verdict>) {
    let one = |(index, target): (usize, &Target)| {
        let shares: Vec<Share> = runs.iter().map(|run| run.as_ref()[index]).collect();
        of_target(target, &shares, confidence)
    };
    let each: Vec<Verdict> = targets.iter().enumerate().map(one).collect();
    let all = if each.contains(&Verdict::Missed) {
        Verdict::Missed
    } else if each.contains(&Verdict::Open) {
        Verdict::Open
    } else {
        Verdict::Met
    };
    (all, each)
}

/// So many requests of which all keep a promise are unlikely, by `1 - confidence`, where the share that
/// keeps it is no more than `share`.
pub(super) fn fewest_requests(share: f64, confidence: f64) -> u64 {
    ((1.0 - confidence).ln() / share.ln()).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::plan::targets::{Limit, Metric};

    fn target(share: f64) -> Target {
        let limits = vec![Limit { metric: Metric::Ttft, at_most_ms: 1.0 }];
        Target { share, limits, tenant: None, tenant_index: None }
    }

    fn of(kept: &[u64], of: u64) -> Verdict {
        let shares: Vec<Share> = kept.iter().map(|&kept| Share { kept, of }).collect();
        of_target(&target(0.9), &shares, 0.95)
    }

    #[test]
    fn the_interval_decides() {
        // Means 0.95 and 0.85, half widths of 4.303 * 0.01 / sqrt(3) = 0.025.
        assert_eq!(of(&[940, 950, 960], 1000), Verdict::Met);
        assert_eq!(of(&[840, 850, 860], 1000), Verdict::Missed);
        assert_eq!(of(&[890, 910, 930], 1000), Verdict::Open);
        // Two runs tell little unless they agree: 12.706 * 0.005.
        assert_eq!(of(&[945, 955], 1000), Verdict::Open);
        assert_eq!(of(&[945, 945], 1000), Verdict::Met);
        assert_eq!(of(&[945], 1000), Verdict::Open);
        assert_eq!(of(&[900, 900], 1000), Verdict::Met);
    }

    #[test]
    fn few_requests_prove_nothing() {
        // 0.9 ^ 29 is less than 0.05 and 0.9 ^ 28 is not.
        assert_eq!(fewest_requests(0.9, 0.95), 29);
        assert_eq!(fewest_requests(0.99, 0.95), 299);
        assert_eq!(of(&[14, 14], 14), Verdict::Open);
        assert_eq!(of(&[15, 15], 15), Verdict::Met);
        assert_eq!(of(&[0, 0], 0), Verdict::Open);
        assert_eq!(of(&[0, 0], 5), Verdict::Missed);
    }

    #[test]
    fn every_promise_counts() {
        let targets = [target(0.9), target(0.5)];
        let run = |a, b| [Share { kept: a, of: 100 }, Share { kept: b, of: 100 }];
        let verdict = |runs: &[[Share; 2]]| of_targets(&targets, runs, 0.95).0;
        assert_eq!(verdict(&[run(95, 80), run(95, 80)]), Verdict::Met);
        assert_eq!(verdict(&[run(95, 20), run(95, 20)]), Verdict::Missed);
        assert_eq!(verdict(&[run(95, 80), run(95, 20)]), Verdict::Open);
    }
}
