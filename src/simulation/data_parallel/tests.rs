//! A step takes 1,000 ns and 10 ns for each of its tokens.

use proptest::prelude::*;

use super::*;
use crate::engine::EngineConfig;
use crate::simulation::router::{Random, RoundRobin};
use crate::simulation::tests::{Listed, Seen, config, replica, run};
use crate::simulation::{
    Action, ActionKind, LifecycleConfig, OnFailure, RequestRecord, Simulation, StepRecord,
};

const LOCKSTEP: LockstepConfig =
    LockstepConfig { dp_sync_interval: 16, max_cudagraph_capture_size: 512, pipeline_parallel_size: 1 };

fn ranks(data_parallel_size: u32, lockstep: Option<LockstepConfig>) -> DataParallelConfig {
    DataParallelConfig { data_parallel_size, api_server_count: 1, lockstep }
}

fn simulation(
    requests: &[(u64, u64, u32, u32)],
    config: &EngineConfig,
    replicas: &[DataParallelConfig],
    endpoints: Endpoints,
    actions: Vec<Action>,
) -> Simulation {
    let num_engines = replicas.iter().map(|replica| replica.data_parallel_size).sum::<u32>();
    let engines = (0..num_engines).map(|_| replica(config.clone(), None, None)).collect();
    Simulation::new(Listed::boxed(requests), engines, Box::new(RoundRobin::default()), actions)
        .with_data_parallel(replicas, endpoints, 7)
}

fn run_ranks(requests: &[(u64, u64, u32, u32)], config: &EngineConfig, ranks: DataParallelConfig) -> Seen {
    let mut seen = Seen::of_fleet();
    simulation(requests, config, &[ranks], Endpoints::Replicas, Vec::new()).run(&mut seen).unwrap();
    seen
}

fn of(seen: &Seen, index: u64) -> RequestRecord {
    *seen.requests.iter().find(|request| request.index == index).unwrap()
}

/// Under pressure: they preempt each other, and prefills of others spend the budget.
fn requests() -> Vec<(u64, u64, u32, u32)> {
    (0..60_u64)
        .map(|i| (i * 1_700, (i % 5) * 1_000, 20 + (i as u32 * 37) % 70, 10 + (i as u32 * 11) % 50))
        .collect()
}

#[test]
fn ranks_of_a_dense_model_do_what_they_would_do_alone() {
    for async_scheduling in [false, true] {
        let config = EngineConfig { async_scheduling, ..config() };
        let seen = run_ranks(&requests(), &config, ranks(3, None));
        assert_eq!(seen.requests.len(), requests().len());
        for rank in 0..3 {
            let indices: Vec<u64> =
                (0..requests().len() as u64).filter(|&index| of(&seen, index).replica == rank).collect();
            assert!(indices.len() > 10, "{indices:?}");
            let own: Vec<_> = indices.iter().map(|&index| requests()[index as usize]).collect();
            let alone = run(Listed::boxed(&own), replica(config.clone(), None, None), Vec::new());
            let expected = alone.requests.iter().map(|request| RequestRecord {
                index: indices[request.index as usize],
                replica: rank,
                ..*request
            });
            let of_rank = seen.requests.iter().filter(|request| request.replica == rank);
            assert!(of_rank.copied().eq(expected), "rank {rank}");
            let steps = alone.steps.iter().map(|step| StepRecord { replica: rank, ..*step });
            assert!(seen.steps.iter().filter(|step| step.replica == rank).copied().eq(steps));
        }
    }
}

#[test]
fn a_burst_goes_to_the_ranks_in_turn_and_a_router_can_name_them() {
    let burst: Vec<_> = (0..8).map(|i| (10, i * 1_000, 40, 3)).collect();
    let replica_of = |seen: &Seen| (0..8).map(|index| of(seen, index).replica).collect::<Vec<_>>();
    let seen = run_ranks(&burst, &config(), ranks(4, None));
    assert_eq!(replica_of(&seen), [0, 1, 2, 3, 0, 1, 2, 3]);
    let two = [ranks(2, None), ranks(2, None)];
    let run = |endpoints| {
        let mut seen = Seen::of_fleet();
        simulation(&burst, &config(), &two, endpoints, Vec::new()).run(&mut seen).unwrap();
        replica_of(&seen)
    };
    // Replicas take turns, and in each its ranks.
    assert_eq!(run(Endpoints::Replicas), [0, 2, 1, 3, 0, 2, 1, 3]);
    assert_eq!(run(Endpoints::Ranks), [0, 1, 2, 3, 0, 1, 2, 3]);
}

/// 40 tokens at one rank, none at the other.
#[test]
fn ranks_in_lockstep_are_padded_to_the_largest_and_sleep_when_nobody_has_requests() {
    let mut simulation = simulation(
        &[(500, 0, 40, 3)],
        &config(),
        &[ranks(2, Some(LOCKSTEP))],
        Endpoints::Replicas,
        Vec::new(),
    );
    let mut seen = Seen::of_fleet();
    simulation.run(&mut seen).unwrap();
    let request = of(&seen, 0);
    // As it would be alone.
    assert_eq!(request.first_token, Some(SimTime(1_900)));
    assert_eq!(request.finished, SimTime(1_900 + 2 * 1_010));
    let stats = simulation.ending().lockstep.unwrap();
    // Three steps, and dummy batches of both up to the 16th; the other rank has 16 of them.
    assert_eq!((stats.waves, stats.passes, stats.idle_passes), (1, 16, 13));
    assert_eq!((stats.batches, stats.dummy_batches), (32, 13 + 16));
    assert_eq!(stats.tokens, 40 + 2);
    assert_eq!(stats.padding_tokens, 40 + 2 + 2 * 13);
    assert_eq!((stats.gpu_ns, stats.waiting_ns), (1_400 + 2 * 1_010, 0));
}

#[test]
fn a_step_takes_as_long_as_that_of_the_slowest_rank() {
    // 40 tokens at rank 0, 60 at rank 1; with graphs both compute 60.
    let requests = [(0, 0, 40, 2), (0, 1_000, 60, 2)];
    let padded = run_ranks(&requests, &config(), ranks(2, Some(LOCKSTEP)));
    // Without, rank 0 computes 40 and waits.
    let eager = LockstepConfig { max_cudagraph_capture_size: 0, ..LOCKSTEP };
    let eager = run_ranks(&requests, &config(), ranks(2, Some(eager)));
    for (seen, waits) in [(&padded, 0), (&eager, 200)] {
        for index in [0, 1] {
            assert_eq!(of(seen, index).first_token, Some(SimTime(1_600)), "{index}");
            assert_eq!(of(seen, index).finished, SimTime(1_600 + 1_010), "{index}");
        }
        let first = seen.steps.iter().find(|step| step.replica == 0).unwrap();
        assert_eq!((first.gpu_ns, first.time.comms_ns, first.time.other_ns), (1_600, waits, 1_600 - waits));
    }
    let alone = run_ranks(&requests, &config(), ranks(2, None));
    assert_eq!(of(&alone, 0).first_token, Some(SimTime(1_400)));
}

/// A request that reaches a sleeping replica begins at once; one that comes in the middle of a pass waits
/// although its own rank has nothing to do.
#[test]
fn a_request_joins_the_pass_after_those_that_its_rank_takes_part_in() {
    let first_token = |at| {
        let requests = [(0, 0, 60, 10), (at, 1_000, 40, 2), (1_000_000, 2_000, 40, 1)];
        let seen = run_ranks(&requests, &config(), ranks(2, Some(LOCKSTEP)));
        assert_eq!(of(&seen, 0).first_token, Some(SimTime(1_600)));
        assert_eq!(of(&seen, 1).replica, 1);
        let last = of(&seen, 2);
        assert_eq!(last.first_scheduled, Some(SimTime(1_000_000)));
        assert_eq!(last.first_token, Some(SimTime(1_001_400)));
        of(&seen, 1).first_token
    };
    // Both wait for each other after the first pass, so rank 1 sees what came meanwhile.
    assert_eq!(first_token(100), Some(SimTime(1_600 + 1_400)));
    // Later rank 1 has given its part in the third pass, a dummy batch, when the second begins.
    assert_eq!(first_token(1_700), Some(SimTime(1_600 + 2 * 1_010 + 1_400)));
}

#[test]
fn steps_of_ranks_in_lockstep_begin_and_end_together() {
    for async_scheduling in [false, true] {
        let config = EngineConfig { async_scheduling, ..config() };
        let seen = run_ranks(&requests(), &config, ranks(3, Some(LOCKSTEP)));
        assert_eq!(seen.requests.len(), requests().len());
        let mut spans: Vec<_> = seen
            .steps
            .iter()
            .filter(|step| step.num_scheduled_requests > 0)
            .map(|step| (step.started_at, step.started_at + SimTime(step.gpu_ns)))
            .collect();
        spans.sort_unstable();
        spans.dedup();
        // One after the other, whoever they are of.
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "async {async_scheduling}");
    }
}

/// What is decided for a request does not depend on the others' time.
#[test]
fn one_rank_in_lockstep_is_a_replica_alone() {
    let seen = run_ranks(&requests(), &config(), ranks(1, Some(LOCKSTEP)));
    let alone = run(Listed::boxed(&requests()), replica(config(), None, None), Vec::new());
    assert_eq!(seen.requests, alone.requests);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_request_is_lost(
        sizes in prop::collection::vec((1_u32..5, 1_u32..4, any::<bool>()), 1..4),
        by_rank in any::<bool>(),
        async_scheduling in any::<bool>(),
        pipeline_parallel_size in 1_u32..3,
        dp_sync_interval in 1_u32..20,
        arrivals in prop::collection::vec((0_u64..20_000, 0_u64..4, 1_u32..120, 1_u32..20), 1..40),
        fails_at in prop::option::of(0_u64..200_000),
        seed in any::<u64>(),
    ) {
        let config = EngineConfig { async_scheduling, pipeline_parallel_size, ..config() };
        let replicas: Vec<DataParallelConfig> = sizes
            .iter()
            .map(|&(data_parallel_size, api_server_count, is_lockstep)| DataParallelConfig {
                data_parallel_size,
                api_server_count,
                lockstep: is_lockstep.then_some(LockstepConfig {
                    dp_sync_interval,
                    pipeline_parallel_size,
                    max_cudagraph_capture_size: 32,
                }),
            })
            .collect();
        let mut at = 0;
        let requests: Vec<_> = arrivals
            .iter()
            .map(|&(gap, group, prompt, output)| {
                at += gap;
                (at, group * 1_000, prompt, output)
            })
            .collect();
        let restart = |at| Action {
            at: SimTime(at),
            kind: ActionKind::Restart { replica: 0, start_up: SimTime(5_000) },
        };
        let run = || {
            let engines = replicas.iter().map(|replica| replica.data_parallel_size).sum::<u32>();
            let engines = (0..engines).map(|_| replica(config.clone(), None, None)).collect();
            let endpoints = if by_rank { Endpoints::Ranks } else { Endpoints::Replicas };
            let actions = fails_at.map(restart).into_iter().collect();
            let mut seen = Seen::of_fleet();
            Simulation::new(Listed::boxed(&requests), engines, Box::new(Random::new(seed)), actions)
                .with_data_parallel(&replicas, endpoints, seed)
                .with_lifecycle(LifecycleConfig { on_failure: OnFailure::Retry, ..LifecycleConfig::default() })
                .run(&mut seen)
                .unwrap();
            seen
        };
        let seen = run();
        let mut indices: Vec<u64> = seen.requests.iter().map(|request| request.index).collect();
        indices.sort_unstable();
        prop_assert!(indices.into_iter().eq(0..requests.len() as u64));
        prop_assert!(seen.requests.iter().all(RequestRecord::is_whole));
        for request in &seen.requests {
            prop_assert_eq!(request.num_output_tokens, requests[request.index as usize].3);
        }
        prop_assert_eq!(&run().requests, &seen.requests);
    }
}
