//! Prompts on one replica, answers on another; worked out by hand: a step takes 1,000 ns and 10 ns for
//! each of its tokens, a read 600 ns and 1,000 ns for each block.

use std::cell::RefCell;
use std::rc::Rc;

use super::router::RoundRobin;
use super::tests::{Listed, Seen, config};
use super::*;
use crate::cost::{BlockHashing, ConstantCost, CostModel};
use crate::engine::config::KvLoadFailurePolicy;
use crate::engine::connector::{PullConnector, PullGroup};
use crate::engine::hash::RequestBlockHasher;
use crate::engine::scheduler::Scheduler;
use crate::engine::{EngineConfig, FinishReason};
use crate::units::SimTime;
use crate::workload::{Patience, WaitsFor, Workload};

/// Servers with roles, and what happens to them.
pub(super) struct Servers {
    pub roles: Vec<Role>,
    pub async_scheduling: bool,
    pub failure_policy: KvLoadFailurePolicy,
    pub router_latency: SimTime,
    pub actions: Vec<Action>,
    pub lifecycle: LifecycleConfig,
}

impl Servers {
    pub fn of(roles: &[Role]) -> Self {
        Self {
            roles: roles.to_vec(),
            async_scheduling: false,
            failure_policy: KvLoadFailurePolicy::Recompute,
            router_latency: SimTime::ZERO,
            actions: Vec::new(),
            lifecycle: LifecycleConfig::default(),
        }
    }

    pub fn with(mut self, at: u64, kind: ActionKind) -> Self {
        self.actions.push(Action { at: SimTime(at), kind });
        self
    }

    pub fn run(self, workload: Box<dyn Workload>) -> (Seen, Simulation) {
        let link = PullLink {
            bytes_per_s: 1e9,
            latency: SimTime(100),
            set_up: SimTime(500),
            lease: SimTime(20_000),
        };
        let links = Rc::new(RefCell::new(PullLinks::new(link, self.roles.len())));
        let replica = |port| {
            let config = EngineConfig {
                kv_connector: Some(self.failure_policy),
                async_scheduling: self.async_scheduling,
                ..config()
            };
            let connector = PullConnector::new(vec![PullGroup { block_size: 16, sliding_window: None }]);
            let puller = Puller::new(connector.clone(), Rc::clone(&links), port, 1_000);
            let hasher = RequestBlockHasher::identity(16, 0);
            let scheduler = Scheduler::new(config, Some(hasher), Some(Box::new(connector))).unwrap();
            let cost = CostModel::Constant(ConstantCost { step_ns: 1_000, per_token_ns: 10 });
            Replica::new(ReplicaConfig {
                scheduler,
                cost,
                transfers: None,
                puller: Some(puller),
                drafts: None,
                hashing: BlockHashing::FREE,
            })
        };
        let replicas = (0..self.roles.len()).map(replica).collect();
        let disaggregation = Disaggregation::new(self.roles, Box::new(RoundRobin::default()), links);
        let mut simulation =
            Simulation::new(workload, replicas, Box::new(RoundRobin::default()), self.actions)
                .with_router_latency(self.router_latency)
                .with_lifecycle(self.lifecycle)
                .with_disaggregation(disaggregation);
        let mut seen = Seen::of_fleet();
        simulation.run(&mut seen).unwrap();
        (seen, simulation)
    }
}

fn run(workload: Box<dyn Workload>, roles: &[Role], async_scheduling: bool) -> (Seen, Simulation) {
    Servers { async_scheduling, ..Servers::of(roles) }.run(workload)
}

const PAIR: [Role; 2] = [Role::Prefill, Role::Decode];

#[test]
fn the_answer_begins_when_the_blocks_have_been_read() {
    // The prompt takes until 1,400; three blocks until 1,400 + 600 + 3,000; then the last token is
    // computed again, and each step brings one.
    let (seen, simulation) = run(Listed::boxed(&[(0, 0, 40, 3)]), &PAIR, false);
    let request = seen.requests[0];
    assert_eq!(seen.requests.len(), 1);
    assert_eq!((request.replica, request.first_scheduled), (1, Some(SimTime(0))));
    assert_eq!((request.first_token, request.finished), (Some(SimTime(6_010)), SimTime(8_030)));
    assert_eq!((request.num_output_tokens, request.finish_reason), (3, FinishReason::Length));
    assert_eq!((request.num_local_cached_tokens, request.num_external_cached_tokens), (0, 40));
    let pull = seen.pulls[0];
    assert_eq!((pull.source, pull.request, pull.num_blocks, pull.bytes), (0, 0, 3, 3_000));
    assert_eq!((pull.started_at, pull.finished_at), (SimTime(1_400), SimTime(5_000)));
    // The prompt's blocks are kept until they have been read.
    let held: Vec<_> = seen
        .steps
        .iter()
        .filter(|step| step.replica == 0)
        .map(|step| (step.finished_at.0, step.num_free_blocks))
        .collect();
    assert_eq!(held, [(1_400, 16), (1_400, 16), (5_000, 19)]);
    for replica in simulation.replicas() {
        assert_eq!(replica.used_blocks(), 0);
    }
}

#[test]
fn what_the_second_replica_has_is_not_read_again() {
    let (seen, _) = run(Listed::boxed(&[(0, 0, 40, 3), (50_000, 0, 40, 3)]), &PAIR, false);
    // Two of three blocks are full and known on both. The prompt takes 1,080, the read 1,600.
    let again = seen.requests[1];
    assert_eq!((again.num_local_cached_tokens, again.num_external_cached_tokens), (32, 8));
    assert_eq!(seen.pulls[1].num_blocks, 1);
    assert_eq!(again.first_token, Some(SimTime(50_000 + 1_080 + 1_600 + 1_010)));
}

#[test]
fn reads_from_one_replica_follow_each_other() {
    let roles = [Role::Prefill, Role::Decode, Role::Decode];
    // Two prompts in one step of 1,600, and one replica for each to go on.
    let (seen, _) = run(Listed::boxed(&[(0, 0, 30, 2), (0, 1_000, 30, 2)]), &roles, false);
    let reads: Vec<_> = seen.pulls.iter().map(|pull| (pull.started_at.0, pull.finished_at.0)).collect();
    assert_eq!(reads, [(1_600, 4_200), (4_200, 6_800)]);
    let first_tokens: Vec<_> = seen.requests.iter().map(|r| (r.replica, r.first_token.unwrap().0)).collect();
    assert_eq!(first_tokens, [(1, 5_210), (2, 7_810)]);
}

#[test]
fn a_client_that_gives_up_frees_the_blocks_of_both() {
    let waits = |ns| Some(Patience { lasts: SimTime(ns), waits_for: WaitsFor::FirstToken });
    // While the prompt is computed, while it is read, and never.
    let requests =
        [(0, 0, 40, 3, waits(700)), (20_000, 1_000, 40, 3, waits(2_000)), (40_000, 2_000, 40, 3, None)];
    for async_scheduling in [false, true] {
        let (seen, simulation) = run(Listed::impatient(&requests), &PAIR, async_scheduling);
        let ends: Vec<_> = seen.requests.iter().map(|r| (r.index, r.replica, r.finish_reason)).collect();
        let expected =
            [(0, 0, FinishReason::Abort), (1, 1, FinishReason::Abort), (2, 1, FinishReason::Length)];
        assert_eq!(ends, expected);
        for replica in simulation.replicas() {
            assert_eq!(replica.used_blocks(), 0);
        }
    }
}

#[test]
fn under_pressure_every_request_ends_and_nothing_is_kept() {
    let requests: Vec<_> = (0..60_u64)
        .map(|i| (i * 1_900, (i % 7) * 1_000, 20 + (i as u32 * 37) % 90, 2 + (i as u32 * 11) % 40))
        .collect();
    let roles = [Role::Prefill, Role::Decode, Role::Prefill, Role::Decode];
    for async_scheduling in [false, true] {
        let (seen, simulation) = run(Listed::boxed(&requests), &roles, async_scheduling);
        assert_eq!(seen.requests.len(), 60);
        for request in &seen.requests {
            let (_, _, prompt, output) = requests[request.index as usize];
            assert_eq!((request.num_prompt_tokens, request.num_output_tokens), (prompt, output));
            assert!(request.replica % 2 == 1 && request.first_scheduled < request.first_token);
        }
        for replica in simulation.replicas() {
            assert_eq!(replica.used_blocks(), 0);
        }
    }
}
