//! Which candidate to take, and what else there is.

use serde::Serialize;

use super::fleet::FleetSize;
use super::result::PlanResult;

/// Candidates by their positions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The cheapest that meets the targets; of equals the fastest.
    pub candidate: usize,
    /// Less money, and what one gives up for it.
    pub next_cheaper: Option<Alternative>,
    /// The cheapest that is faster.
    pub next_faster: Option<Alternative>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    pub candidate: usize,
    pub replicas: u32,
    #[serde(skip)]
    pub size: FleetSize,
    pub cost_per_hour: f64,
    pub latency_ms: f64,
    /// As a whole fleet; else it follows from one replica alone.
    pub is_simulated: bool,
    /// `None` where nothing is given up but money.
    pub gives_up: Option<String>,
}

/// Marks the front and picks.
pub(super) fn recommend(result: &mut PlanResult) {
    let points: Vec<Option<(f64, f64)>> = result
        .candidates
        .iter()
        .map(|candidate| {
            let capacity = candidate.capacity()?;
            Some((capacity.fleet.cost_per_hour, result.latency_ms(capacity)))
        })
        .collect();
    for (index, on_front) in front(&points).into_iter().enumerate() {
        result.candidates[index].is_on_front = on_front;
    }
    let all = points.iter().enumerate().filter_map(|(index, point)| Some((index, (*point)?)));
    let best = all.clone().min_by(|a, b| a.1.partial_cmp(&b.1).unwrap_or(std::cmp::Ordering::Equal));
    result.recommendation = best.map(|(candidate, (cost, latency_ms))| {
        let faster = all
            .filter(|(_, point)| point.1 < latency_ms && point.0 >= cost)
            .min_by(|a, b| a.1.partial_cmp(&b.1).unwrap_or(std::cmp::Ordering::Equal));
        Recommendation {
            candidate,
            next_cheaper: next_cheaper(result, cost),
            next_faster: faster.map(|(index, (cost_per_hour, latency_ms))| Alternative {
                candidate: index,
                replicas: result.candidates[index].capacity().map_or(0, |it| it.fleet.replicas),
                size: result.candidates[index].capacity().map_or(FleetSize::alike(0), |it| it.fleet.size()),
                cost_per_hour,
                latency_ms,
                is_simulated: result.candidates[index].capacity().is_some_and(|it| !it.verified.is_empty()),
                gives_up: None,
            }),
        }
    });
}

/// Nobody who meets the targets with spare replicas is cheaper than the recommended one: who pays less
/// gives up what is spare. The dearest such fleet below the cost.
fn next_cheaper(result: &PlanResult, cost: f64) -> Option<Alternative> {
    let fewer = |(index, candidate): (usize, &super::result::CandidateResult)| {
        let capacity = candidate.capacity()?;
        let fleet = &capacity.fleet;
        let counts = [
            (fleet.counts.with_headroom, "no replica may be lost"),
            (fleet.counts.with_losses, "no headroom"),
            (fleet.counts.at_least, "no headroom, and no replica may be lost"),
        ];
        let options = counts.into_iter().filter(|(size, _)| size.replicas < fleet.replicas);
        let cheaper = options
            .map(|(size, gives_up)| (fleet.cost_of(size), size, gives_up))
            .filter(|option| option.0 < cost);
        let (cost_per_hour, size, gives_up) = cheaper.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Alternative {
            candidate: index,
            replicas: size.replicas,
            size,
            cost_per_hour,
            // At most: so long it takes with the fewest replicas, or a replica at its highest load.
            latency_ms: result.latency_at_ms(match capacity.check() {
                Some(check) => &check.at_least,
                None => &capacity.highest,
            }),
            is_simulated: !capacity.verified.is_empty(),
            gives_up: Some(gives_up.to_owned()),
        })
    };
    let options = result.candidates.iter().enumerate().filter_map(fewer);
    options.max_by(|a, b| {
        // Of equals the first.
        a.cost_per_hour.total_cmp(&b.cost_per_hour).then(b.candidate.cmp(&a.candidate))
    })
}

/// For each pair, of which less is better, whether no other one is better in one and as good in the other.
fn front(points: &[Option<(f64, f64)>]) -> Vec<bool> {
    let beats = |a: (f64, f64), b: (f64, f64)| a.0 <= b.0 && a.1 <= b.1 && a != b;
    let is_beaten = |own: (f64, f64)| points.iter().flatten().any(|&other| beats(other, own));
    points.iter().map(|point| point.is_some_and(|own| !is_beaten(own))).collect()
}

#[cfg(test)]
mod tests {
    use super::front;

    #[test]
    fn who_is_beaten_in_both_is_not_on_the_front() {
        let points =
            [Some((1.0, 9.0)), Some((2.0, 3.0)), Some((2.0, 4.0)), None, Some((9.0, 3.0)), Some((2.0, 3.0))];
        assert_eq!(front(&points), [true, true, false, false, false, true]);
    }
}
