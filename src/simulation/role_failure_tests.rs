//! Replicas with roles that fail, restart, drain and are scaled. As in the tests without failures, a step takes
//! 1,000 ns and 10 ns for each of its tokens, a read 600 ns and 1,000 ns for each block; a lease lasts 20,000 ns.
//! Undisturbed, a prompt of 40 tokens takes until 1,400, its read until 5,000, the first token until 6,010.

use proptest::prelude::*;

use super::disaggregation_tests::Servers;
use super::lifecycle::tests::autoscaler;
use super::tests::{Listed, Seen};
use super::*;
use crate::engine::FinishReason;
use crate::engine::config::KvLoadFailurePolicy;
use crate::units::SimTime;
use crate::workload::{Patience, WaitsFor};

const P: Role = Role::Prefill;
const D: Role = Role::Decode;
const ONE: [(u64, u64, u32, u32); 1] = [(0, 0, 40, 3)];

const fn fail(replica: usize) -> ActionKind {
    ActionKind::Fail { replica }
}

/// The only request, which no replica holds any blocks of at the end.
fn only(servers: Servers) -> (RequestRecord, Seen, PullFailures) {
    let (seen, simulation) = servers.run(Listed::boxed(&ONE));
    assert_eq!(seen.requests.len(), 1);
    assert!(simulation.replicas().all(|replica| replica.used_blocks() == 0));
    let failures = simulation.ending().pull_failures.unwrap();
    (seen.requests[0], seen, failures)
}

fn times(request: &RequestRecord) -> (u32, Option<u64>, u64) {
    (request.replica, request.first_token.map(SimTime::as_ns), request.finished.as_ns())
}

#[test]
fn a_read_from_a_replica_that_fails_is_computed_again_or_fails_the_request() {
    let servers = |failure_policy| Servers { failure_policy, ..Servers::of(&[P, D]) }.with(3_000, fail(0));
    let (request, _, failures) = only(servers(KvLoadFailurePolicy::Recompute));
    assert_eq!(times(&request), (1, Some(4_400), 6_420));
    assert_eq!((request.num_external_cached_tokens, failures.failed_reads), (0, 1));
    let (request, _, failures) = only(servers(KvLoadFailurePolicy::Fail));
    assert_eq!((request.finish_reason, times(&request)), (FinishReason::Error, (1, None, 3_000)));
    assert_eq!(failures.failed_reads, 1);
}

#[test]
fn so_is_one_that_has_not_begun() {
    // The prompt is there at 2,400, the request at the second replica at 3,400.
    let servers = Servers { router_latency: SimTime(1_000), ..Servers::of(&[P, D]) };
    let (request, _, failures) = only(servers.with(3_000, fail(0)));
    assert_eq!((times(&request).1, failures.failed_reads), (Some(3_400 + 1_400), 1));
}

#[test]
fn requests_on_the_way_to_a_replica_that_fails_go_to_another() {
    let servers = |roles: &[Role]| Servers { router_latency: SimTime(1_000), ..Servers::of(roles) };
    // The second of two that decode takes it over, and its blocks are still there.
    let (request, seen, failures) = only(servers(&[P, D, D]).with(3_000, fail(1)));
    assert_eq!(times(&request), (2, Some(4_400 + 3_600 + 1_010), 11_030));
    assert_eq!((request.num_external_cached_tokens, seen.pulls.len()), (40, 1));
    assert_eq!(failures, PullFailures::default());
    // The second of two that prefill begins at 2,000 with it.
    let (request, _, _) = only(servers(&[P, P, D]).with(500, fail(0)));
    assert_eq!(
        (request.first_scheduled, times(&request).1),
        (Some(SimTime(2_000)), Some(3_400 + 1_000 + 3_600 + 1_010))
    );
}

#[test]
fn a_request_on_a_replica_that_fails_begins_again_with_its_prompt() {
    // While it decodes: its prompt is computed again, but for two blocks, on the first replica.
    let (request, seen, failures) = only(Servers::of(&[P, D, D]).with(6_500, fail(1)));
    assert_eq!(times(&request), (2, Some(6_500 + 1_080 + 3_600 + 1_010), 14_210));
    assert_eq!((seen.losses[0].num_output_tokens, failures), (1, PullFailures::default()));
    // While it reads: the first replica still keeps the blocks, until the request comes again.
    let (request, _, failures) = only(Servers::of(&[P, D, D]).with(3_000, fail(1)));
    assert_eq!(times(&request).1, Some(3_000 + 1_080 + 3_600 + 1_010));
    assert_eq!(failures, PullFailures::default());
    // While its prompt is computed.
    let (request, _, _) = only(Servers::of(&[P, P, D]).with(1_000, fail(0)));
    assert_eq!(times(&request), (2, Some(7_010), 9_030));
}

#[test]
fn blocks_that_nobody_will_read_are_kept_for_a_lease() {
    let lifecycle = LifecycleConfig { on_failure: OnFailure::Report, ..LifecycleConfig::default() };
    let servers = Servers { lifecycle, ..Servers::of(&[P, D]) }.with(3_000, fail(1));
    let (request, seen, failures) = only(servers);
    assert_eq!((request.finish_reason, request.finished), (FinishReason::Error, SimTime(3_000)));
    assert_eq!(failures, PullFailures { expired_leases: 1, ..PullFailures::default() });
    let last = seen.steps.iter().rfind(|step| step.replica == 0).unwrap();
    assert_eq!((last.finished_at, last.num_free_blocks), (SimTime(23_000), 19));
}

#[test]
fn who_has_computed_waits_for_somebody_who_decodes() {
    let servers = |start_up| {
        let restart = ActionKind::Restart { replica: 1, start_up: SimTime(start_up) };
        Servers::of(&[P, D]).with(1_000, ActionKind::Drain { replica: 1 }).with(10_000, restart)
    };
    let (request, _, failures) = only(servers(2_000));
    assert_eq!(times(&request).1, Some(12_000 + 3_600 + 1_010));
    assert_eq!(failures, PullFailures::default());
    // By then the blocks are somebody else's.
    let (request, _, failures) = only(servers(15_000));
    assert_eq!(times(&request).1, Some(25_000 + 3_600 + 1_010));
    assert_eq!(failures, PullFailures { expired_leases: 1, reads_after_expiry: 1, failed_reads: 0 });
}

#[test]
fn a_replica_that_drains_goes_when_its_blocks_have_been_read() {
    let (request, seen, _) = only(Servers::of(&[P, D]).with(2_000, ActionKind::Drain { replica: 0 }));
    assert_eq!(request.finished, SimTime(8_030));
    assert_eq!(seen.states, [(2_000, 0, ReplicaState::Draining), (5_000, 0, ReplicaState::Off)]);
}

#[test]
fn each_pool_is_scaled_by_its_own_metric() {
    let pool = |replicas: std::ops::Range<usize>| PoolScaler {
        autoscaler: Autoscaler::new(autoscaler(), 1),
        replicas,
    };
    let lifecycle = LifecycleConfig {
        is_there: vec![true, false, true, false],
        autoscalers: vec![pool(0..2), pool(2..4)],
        ..LifecycleConfig::default()
    };
    let requests: Vec<_> = (0..5).map(|i| (0, i * 1_000, 16, 20)).collect();
    let (seen, _) = Servers { lifecycle, ..Servers::of(&[P, P, D, D]) }.run(Listed::boxed(&requests));
    assert_eq!(seen.requests.len(), 5);
    // At 10,000 nobody computes prompts any more, and five decode.
    let first = [(10_000, 3, ReplicaState::Starting(SimTime(15_000))), (15_000, 3, ReplicaState::Ready)];
    assert_eq!(seen.states[..2], first);
    assert!(seen.states.iter().all(|&(_, replica, _)| replica >= 2));
}

/// One thing that happens to one of four replicas.
fn event() -> impl Strategy<Value = (u64, ActionKind)> {
    let kind = (0..3_u8, 0..4_usize, 0..20_000_u64).prop_map(|(kind, replica, start_up)| match kind {
        0 => ActionKind::Fail { replica },
        1 => ActionKind::Drain { replica },
        _ => ActionKind::Restart { replica, start_up: SimTime(start_up) },
    });
    (0..120_000_u64, kind)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Whatever fails when: each request ends once, whole answers are whole, and nothing is kept.
    #[test]
    fn none_is_lost_and_none_ends_twice(
        requests in prop::collection::vec(
            (0..3_000_u64, 0..5_u64, 1..90_u32, 1..30_u32, prop::option::weighted(0.2, 500..30_000_u64)),
            1..40,
        ),
        events in prop::collection::vec(event(), 0..8),
        router_latency in prop::sample::select(vec![0, 700]),
        retries in any::<bool>(),
        recomputes in any::<bool>(),
        async_scheduling in any::<bool>(),
    ) {
        let mut at = 0;
        let requests: Vec<_> = requests
            .into_iter()
            .map(|(gap, group, prompt, output, patience)| {
                at += gap;
                let patience = patience.map(|ns| {
                    let waits_for = if ns % 2 == 0 { WaitsFor::FirstToken } else { WaitsFor::LastToken };
                    Patience { lasts: SimTime(ns), waits_for }
                });
                (at, group * 1_000, prompt, output, patience)
            })
            .collect();
        let mut servers = Servers {
            async_scheduling,
            failure_policy: if recomputes { KvLoadFailurePolicy::Recompute } else { KvLoadFailurePolicy::Fail },
            router_latency: SimTime(router_latency),
            lifecycle: LifecycleConfig {
                on_failure: if retries { OnFailure::Retry } else { OnFailure::Report },
                ..LifecycleConfig::default()
            },
            ..Servers::of(&[P, D, P, D])
        };
        for (at, kind) in events {
            servers = servers.with(at, kind);
        }
        // In the end all are there.
        for replica in 0..4 {
            servers = servers.with(500_000, ActionKind::Restart { replica, start_up: SimTime(1_000) });
        }
        let (seen, simulation) = servers.run(Listed::impatient(&requests));
        let mut indices: Vec<_> = seen.requests.iter().map(|request| request.index).collect();
        indices.sort_unstable();
        prop_assert_eq!(indices, (0..requests.len() as u64).collect::<Vec<_>>());
        for request in seen.requests.iter().filter(|request| request.is_whole()) {
            let (arrival, _, prompt, output, _) = requests[request.index as usize];
            prop_assert_eq!(request.arrival, SimTime(arrival));
            prop_assert_eq!((request.num_prompt_tokens, request.num_output_tokens), (prompt, output));
            prop_assert!(request.replica % 2 == 1 && request.first_scheduled < request.first_token);
        }
        for replica in simulation.replicas() {
            prop_assert_eq!(replica.used_blocks(), 0);
        }
    }
}
