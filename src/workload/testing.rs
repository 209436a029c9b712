//! What the tests of generators share.

use std::collections::{BTreeMap, BTreeSet};

use super::generator::{Generator, generate};
use super::{Arrival, ConfigError, Workload, WorkloadError};
use crate::units::SimTime;

/// Of what names no trace, only the configuration can be wrong.
struct NoTrace(ConfigError);

impl From<ConfigError> for NoTrace {
    fn from(error: ConfigError) -> Self {
        Self(error)
    }
}

impl From<WorkloadError> for NoTrace {
    fn from(error: WorkloadError) -> Self {
        unreachable!("{error}")
    }
}

/// The workload of a configuration that names no trace.
pub(super) fn workload(config: &dyn Generator, seed: u64) -> Result<Box<dyn Workload>, ConfigError> {
    generate(config, seed, &mut |field, _| Err(ConfigError::new(field, "a trace", "none").into()))
        .map_err(|NoTrace(error)| error)
}

/// Runs to the end, the answer to request `index` taking `answer_ns(index)`.
pub(super) fn run(workload: &mut dyn Workload, answer_ns: impl Fn(u64) -> u64) -> Vec<Arrival> {
    let mut arrivals: Vec<Arrival> = Vec::new();
    let mut answers = BTreeSet::new();
    loop {
        let arrival_at = workload.peek().unwrap();
        match (arrival_at, answers.first().copied()) {
            (None, None) => return arrivals,
            (Some(at), answer) if answer.is_none_or(|(answer_at, _)| at < answer_at) => {
                let arrival = workload.next().unwrap().unwrap();
                assert_eq!(arrival.at, at);
                assert_eq!(arrival.request.index, arrivals.len() as u64);
                assert!(arrivals.last().is_none_or(|last| last.at <= at), "time went back");
                answers.insert((at + SimTime(answer_ns(arrival.request.index)), arrival.request.index));
                arrivals.push(arrival);
            }
            (_, Some((at, index))) => {
                answers.remove(&(at, index));
                workload.finished(index, at);
            }
            (Some(_), None) => unreachable!("the guard above takes it"),
        }
    }
}

/// All requests of a configuration, each answered after a nanosecond.
pub(super) fn generated(config: &dyn Generator, seed: u64) -> Vec<Arrival> {
    run(&mut *workload(config, seed).unwrap(), |_| 1)
}

/// The requests of each session, in order.
pub(super) fn by_session(arrivals: &[Arrival]) -> BTreeMap<u64, Vec<&Arrival>> {
    let mut sessions: BTreeMap<u64, Vec<&Arrival>> = BTreeMap::new();
    for arrival in arrivals {
        sessions.entry(arrival.request.session.unwrap()).or_default().push(arrival);
    }
    sessions
}

/// Prompt tokens that a cache without bounds finds, in blocks of one token, when it knows each
/// prompt and its answer before the next comes.
pub(super) fn infinite_cache_hits(arrivals: &[Arrival]) -> u64 {
    let mut known: BTreeSet<Vec<u64>> = BTreeSet::new();
    let mut hits = 0;
    for Arrival { request, .. } in arrivals {
        let ids: Vec<u64> = request.prompt.ids(0, request.prompt.len()).collect();
        let common = |other: &Vec<u64>| ids.iter().zip(other).take_while(|(a, b)| a == b).count();
        // The longest common prefix is with a neighbour in the order of the alphabet.
        let before = known.range(..ids.clone()).next_back().map_or(0, common);
        let after = known.range(ids.clone()..).next().map_or(0, common);
        hits += before.max(after) as u64;
        known.insert(ids.into_iter().chain(request.output.ids(0, request.output.len())).collect());
    }
    hits
}

/// No session has more requests under way than one, and each waits for the one before: holds every
/// request against the end of the one before it in its session.
pub(super) fn assert_one_at_a_time(arrivals: &[Arrival], answer_ns: impl Fn(u64) -> u64) {
    for requests in by_session(arrivals).values() {
        for pair in requests.windows(2) {
            let ended = pair[0].at + SimTime(answer_ns(pair[0].request.index));
            assert!(pair[1].at >= ended, "{:?} before {ended}", pair[1].at);
        }
    }
}

/// The most requests that are under way at once; one that comes when another ends is after it.
pub(super) fn max_under_way(arrivals: &[Arrival], answer_ns: impl Fn(u64) -> u64) -> usize {
    let mut ends: BTreeSet<(SimTime, u64)> = BTreeSet::new();
    let mut most = 0;
    for Arrival { at, request } in arrivals {
        while ends.first().is_some_and(|&(end, _)| end <= *at) {
            ends.pop_first();
        }
        ends.insert((*at + SimTime(answer_ns(request.index)), request.index));
        most = most.max(ends.len());
    }
    most
}
