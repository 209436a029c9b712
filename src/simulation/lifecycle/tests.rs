//! Worked out by hand: a step takes 1,000 ns and 10 ns for each of its tokens.

use super::*;
use crate::engine::FinishReason;
use crate::simulation::router::{LeastRequests, RoundRobin, Router};
use crate::simulation::tests::{Listed, Seen, config, replica};
use crate::simulation::{
    Action, ActionKind, NO_REPLICA, RequestRecord, ServerLoss, Simulation, SimulationError,
};
use crate::workload::{Patience, WaitsFor, Workload};

fn simulation(
    workload: Box<dyn Workload>,
    num_replicas: usize,
    router: Box<dyn Router>,
    actions: &[(u64, ActionKind)],
    lifecycle: LifecycleConfig,
) -> Simulation {
    let replicas = (0..num_replicas).map(|_| replica(config(), None, None)).collect();
    let actions = actions.iter().map(|&(at, kind)| Action { at: SimTime(at), kind }).collect();
    Simulation::new(workload, replicas, router, actions).with_lifecycle(lifecycle)
}

fn run(
    workload: Box<dyn Workload>,
    num_replicas: usize,
    actions: &[(u64, ActionKind)],
    on_failure: OnFailure,
) -> Seen {
    let lifecycle = LifecycleConfig { on_failure, ..LifecycleConfig::default() };
    let mut seen = Seen::of_fleet();
    let router = Box::new(RoundRobin::default());
    simulation(workload, num_replicas, router, actions, lifecycle).run(&mut seen).unwrap();
    seen
}

fn of(seen: &Seen, index: u64) -> RequestRecord {
    *seen.requests.iter().find(|request| request.index == index).unwrap()
}

#[test]
fn requests_of_a_replica_that_fails_begin_again_on_another() {
    let requests = [(0, 0, 40, 5), (0, 1_000, 40, 5)];
    let fail = [(3_000, ActionKind::Fail { replica: 0 })];
    let seen = run(Listed::boxed(&requests), 2, &fail, OnFailure::Retry);
    // Both have tokens at 1,400 and 2,410. The second replica takes the lost request in at 3,420, with a
    // step of 41 tokens; both decode in 1,020, one alone in 1,010.
    let (lost, other) = (of(&seen, 0), of(&seen, 1));
    assert_eq!((lost.replica, lost.first_scheduled), (1, Some(SimTime(3_420))));
    assert_eq!((lost.arrival, lost.first_token), (SimTime(0), Some(SimTime(4_830))));
    assert_eq!((lost.finished, lost.num_output_tokens), (SimTime(8_880), 5));
    assert_eq!((other.first_token, other.finished), (Some(SimTime(1_400)), SimTime(5_850)));
    let loss = ServerLoss { replica: 0, at: SimTime(3_000), num_requests: 1, num_output_tokens: 2 };
    assert_eq!(seen.losses, [loss]);
    assert_eq!(seen.states, [(3_000, 0, ReplicaState::Off)]);
    // It says so that nobody runs on it any more, and that is its last step.
    let last = seen.steps.iter().rfind(|step| step.replica == 0).unwrap();
    assert_eq!((last.finished_at, last.num_running, last.num_free_blocks), (SimTime(3_000), 0, 19));
}

#[test]
fn or_their_clients_get_an_error() {
    let requests = [(0, 0, 40, 5), (0, 1_000, 40, 5)];
    let fail = [(3_000, ActionKind::Fail { replica: 0 })];
    let seen = run(Listed::boxed(&requests), 2, &fail, OnFailure::Report);
    let lost = of(&seen, 0);
    assert_eq!((lost.finish_reason, lost.finished), (FinishReason::Error, SimTime(3_000)));
    assert_eq!((lost.first_token, lost.num_output_tokens), (Some(SimTime(1_400)), 2));
    assert!(lost.was_admitted);
    assert_eq!(of(&seen, 1).finished, SimTime(1_400 + 4 * 1_010));
}

#[test]
fn a_replica_that_starts_again_is_empty_and_requests_wait_for_it() {
    let waits = Some(Patience { lasts: SimTime(300), waits_for: WaitsFor::FirstToken });
    let requests =
        [(0, 0, 40, 2, None), (6_000, 0, 40, 2, None), (6_500, 0, 40, 2, waits), (20_000, 0, 40, 2, None)];
    let restart = [(5_000, ActionKind::Restart { replica: 0, start_up: SimTime(2_000) })];
    let seen = run(Listed::impatient(&requests), 1, &restart, OnFailure::Retry);
    let waited = of(&seen, 1);
    assert_eq!((waited.arrival, waited.first_scheduled), (SimTime(6_000), Some(SimTime(7_000))));
    assert_eq!((waited.num_local_cached_tokens, waited.first_token), (0, Some(SimTime(8_400))));
    let gone = of(&seen, 2);
    assert_eq!((gone.replica, gone.finish_reason), (NO_REPLICA, FinishReason::Abort));
    assert_eq!((gone.finished, gone.first_scheduled), (SimTime(6_800), None));
    assert_eq!(of(&seen, 3).num_local_cached_tokens, 32);
    let ready_at = ReplicaState::Starting(SimTime(7_000));
    let states = [(5_000, 0, ReplicaState::Off), (5_000, 0, ready_at), (7_000, 0, ReplicaState::Ready)];
    assert_eq!(seen.states, states);
}

#[test]
fn a_replica_that_drains_ends_what_it_has() {
    let requests = [(0, 0, 40, 5), (0, 1_000, 40, 2), (1_500, 2_000, 40, 2), (1_600, 3_000, 40, 2)];
    let drain = [(1_000, ActionKind::Drain { replica: 0 })];
    let seen = run(Listed::boxed(&requests), 2, &drain, OnFailure::Retry);
    assert_eq!(seen.requests.iter().filter(|request| request.replica == 0).count(), 1);
    assert_eq!(of(&seen, 0).finished, SimTime(5_440));
    let states = [(1_000, 0, ReplicaState::Draining), (5_440, 0, ReplicaState::Off)];
    assert_eq!(seen.states, states);
}

#[test]
fn requests_that_wait_for_nobody_are_an_error() {
    let fail = [(100, ActionKind::Fail { replica: 0 })];
    let workload = Listed::boxed(&[(0, 0, 40, 5), (200, 0, 40, 5)]);
    let lifecycle = LifecycleConfig::default();
    let router = Box::new(RoundRobin::default());
    let error = simulation(workload, 1, router, &fail, lifecycle).run(&mut Seen::of_fleet()).unwrap_err();
    assert!(matches!(error, SimulationError::NobodyReady { num_waiting: 2, .. }), "{error}");
}

/// Up to two replicas, each for two requests, looked at every 10,000 ns.
pub(in crate::simulation) fn autoscaler() -> AutoscalerConfig {
    let at_once =
        ScalingRules { stabilization_window_s: Some(0.0), period_s: Some(1e-5), ..ScalingRules::default() };
    AutoscalerConfig {
        min_replicas: 1,
        max_replicas: 2,
        metric: ScalingMetric::RequestsInFlight,
        target: 2.0,
        interval_s: 1e-5,
        tolerance: 0.1,
        start_up_s: 5e-6,
        scale_up: at_once,
        scale_down: at_once,
    }
}

fn scaled(requests: &[(u64, u64, u32, u32)], actions: &[(u64, ActionKind)]) -> Seen {
    let lifecycle = LifecycleConfig {
        is_there: vec![true, false],
        autoscalers: vec![PoolScaler { autoscaler: Autoscaler::new(autoscaler(), 1), replicas: 0..2 }],
        ..LifecycleConfig::default()
    };
    let mut seen = Seen::of_fleet();
    let router = Box::new(LeastRequests::default());
    simulation(Listed::boxed(requests), 2, router, actions, lifecycle).run(&mut seen).unwrap();
    seen
}

#[test]
fn the_autoscaler_starts_replicas_and_drains_them() {
    // Five requests on the only replica, until 21,740 and 22,750; a sixth at 16,000.
    let mut requests: Vec<_> = (0..5).map(|i| (0, i * 1_000, 16, 20)).collect();
    requests.push((16_000, 9_000, 16, 2));
    let seen = scaled(&requests, &[]);
    // At 10,000 five are in flight where there should be two: 2.5 replicas, of which there are two.
    let states = [
        (10_000, 1, ReplicaState::Starting(SimTime(15_000))),
        (15_000, 1, ReplicaState::Ready),
        (30_000, 1, ReplicaState::Draining),
        (30_000, 1, ReplicaState::Off),
    ];
    assert_eq!(seen.states, states);
    assert_eq!((of(&seen, 5).replica, of(&seen, 5).finished), (1, SimTime(18_170)));
    assert_eq!((of(&seen, 3).finished, of(&seen, 4).finished), (SimTime(21_740), SimTime(22_750)));
}

#[test]
fn the_autoscaler_replaces_what_fails() {
    let seen = scaled(&[(0, 0, 16, 3)], &[(1_000, ActionKind::Fail { replica: 0 })]);
    // The first replica that is off takes its place: itself, 5,000 later.
    assert_eq!((of(&seen, 0).replica, of(&seen, 0).first_scheduled), (0, Some(SimTime(6_000))));
    assert_eq!(of(&seen, 0).finished, SimTime(6_000 + 1_160 + 2 * 1_010));
}
