//! Several replicas behind a router.

use std::cell::RefCell;
use std::rc::Rc;

use super::router::{LeastKvUsage, LeastRequests, Random, ReplicaView, RoundRobin, Router};
use super::tests::{Listed, Seen, config, replica, run};
use super::*;
use crate::engine::EngineConfig;
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::RequestSpec;

/// Under pressure: they preempt each other, and prefills of others spend the budget.
fn requests() -> Vec<(u64, u64, u32, u32)> {
    (0..60_u64)
        .map(|i| (i * 1_700, (i % 5) * 1_000, 20 + (i as u32 * 37) % 70, 10 + (i as u32 * 11) % 50))
        .collect()
}

fn run_fleet(count: usize, async_scheduling: bool, router: Box<dyn Router>) -> Seen {
    let config = EngineConfig { async_scheduling, ..config() };
    let replicas = (0..count).map(|_| replica(config.clone(), None, None)).collect();
    let mut seen = Seen::of_fleet();
    Simulation::new(Listed::boxed(&requests()), replicas, router, Vec::new()).run(&mut seen).unwrap();
    seen
}

#[test]
fn each_replica_does_what_it_would_do_alone_with_its_requests() {
    const COUNT: usize = 3;
    for async_scheduling in [false, true] {
        let fleet = run_fleet(COUNT, async_scheduling, Box::new(RoundRobin::default()));
        assert_eq!(fleet.requests.len(), requests().len());
        for at in 0..COUNT {
            let own: Vec<_> = requests().into_iter().skip(at).step_by(COUNT).collect();
            let config = EngineConfig { async_scheduling, ..config() };
            let alone = run(Listed::boxed(&own), replica(config, None, None), Vec::new());
            let replica = at as u32;
            let requests = alone.requests.iter().map(|request| RequestRecord {
                index: request.index * COUNT as u64 + at as u64,
                replica,
                ..*request
            });
            let of_fleet = fleet.requests.iter().filter(|request| request.replica == replica);
            assert!(of_fleet.copied().eq(requests), "replica {at}");
            let steps = alone.steps.iter().map(|step| StepRecord { replica, ..*step });
            assert!(fleet.steps.iter().filter(|step| step.replica == replica).copied().eq(steps));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_times_never_go_back() {
    let [one, other, another] = [7, 7, 8].map(|seed| run_fleet(4, true, Box::new(Random::new(seed))));
    assert_eq!((&one.requests, &one.steps), (&other.requests, &other.steps));
    assert_ne!(one.requests, another.requests);
    assert!(one.steps.is_sorted_by_key(|step| step.finished_at));
}

#[test]
fn counts_of_requests_are_even_behind_least_requests() {
    let seen = run_fleet(3, false, Box::new(LeastRequests::default()));
    let mut in_flight = [0_i64; 3];
    let mut changes: Vec<(SimTime, i64, usize)> = Vec::new();
    for request in &seen.requests {
        changes.push((request.arrival, 1, request.replica as usize));
        changes.push((request.finished, -1, request.replica as usize));
    }
    // Ends come before arrivals of the same time.
    changes.sort_unstable();
    for (_, change, replica) in changes {
        let least = *in_flight.iter().min().unwrap();
        assert!(change < 0 || in_flight[replica] == least, "to {replica} of {in_flight:?}");
        in_flight[replica] += change;
    }
}

/// What it saw of the one replica: requests that run, requests that wait, blocks in use.
struct Spy(Rc<RefCell<Vec<(u32, u32, u32)>>>);

impl Router for Spy {
    fn choose(&mut self, _now: SimTime, _request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        let view = replicas[0];
        self.0.borrow_mut().push((view.num_running, view.num_waiting, view.used_blocks));
        0
    }
}

#[test]
fn a_request_that_comes_in_a_step_is_not_in_the_metrics_before_the_next_step_ends() {
    // The first step, of 40 tokens, ends at 1,400. The second request comes at 100, is taken in then, and is
    // scheduled; so is the third at the end of that step.
    let requests = [(0, 0, 40, 9), (100, 1_000, 20, 9), (1_450, 2_000, 20, 9), (2_700, 3_000, 20, 9)];
    for async_scheduling in [false, true] {
        let seen = Rc::default();
        let config = EngineConfig { async_scheduling, ..config() };
        let replicas = vec![replica(config, None, None)];
        let router = Box::new(Spy(Rc::clone(&seen)));
        Simulation::new(Listed::boxed(&requests), replicas, router, Vec::new())
            .run(&mut Seen::of_fleet())
            .unwrap();
        assert_eq!(*seen.borrow(), [(0, 0, 0), (0, 0, 0), (1, 0, 3), (2, 0, 5)]);
    }
}

fn choices(router: &mut dyn Router, views: &[ReplicaView], count: usize) -> Vec<usize> {
    let request = RequestSpec::plain(TokenRuns::from_run(0, 1), TokenRuns::from_run(1, 1));
    (0..count).map(|_| router.choose(SimTime::ZERO, &request, views)).collect()
}

#[test]
fn only_replicas_that_are_ready_are_chosen_and_equals_take_turns() {
    let mut views = [ReplicaView { is_ready: true, num_blocks: 100, ..ReplicaView::default() }; 4];
    views[1].is_ready = false;
    let turns = [0, 2, 3, 0, 2];
    assert_eq!(choices(&mut RoundRobin::default(), &views, 5), turns);
    assert_eq!(choices(&mut LeastRequests::default(), &views, 5), turns);
    assert_eq!(choices(&mut LeastKvUsage::default(), &views, 5), turns);
    let random = choices(&mut Random::new(1), &views, 3_000);
    for (replica, is_fair) in [(0, true), (1, false), (2, true), (3, true)] {
        let count = random.iter().filter(|&&chosen| chosen == replica).count();
        // 1,000 and six standard deviations; or never.
        assert_eq!((845..=1_155).contains(&count), is_fair, "{replica} was chosen {count} times");
        assert!(is_fair || count == 0);
    }
    views[0].num_in_flight = 2;
    views[2].num_in_flight = 1;
    views[3].num_in_flight = 1;
    assert_eq!(choices(&mut LeastRequests::default(), &views, 3), [2, 3, 2]);
    // A smaller share, of a larger cache.
    (views[0].used_blocks, views[2].used_blocks, views[3].used_blocks) = (40, 30, 50);
    views[3].num_blocks = 200;
    assert_eq!(choices(&mut LeastKvUsage::default(), &views, 2), [3, 3]);
}
