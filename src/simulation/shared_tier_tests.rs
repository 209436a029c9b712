//! A store that replicas share; worked out by hand: a step takes 1,000 ns and 10 ns for each of its tokens,
//! a copy 7,000 ns and 1,000 ns for each block of 16 tokens.

use std::cell::Cell;
use std::rc::Rc;

use super::router::RoundRobin;
use super::tests::{Listed, Seen, config};
use super::*;
use crate::cost::{BlockHashing, ConstantCost, CostModel};
use crate::engine::EngineConfig;
use crate::engine::config::KvLoadFailurePolicy;
use crate::engine::connector::{
    Direction, EvictionOrder, HashSpace, SharedBy, TierConfig, TierGroup, TierKind, TierPlace, TierStore,
    TieredConnector,
};
use crate::engine::hash::RequestBlockHasher;
use crate::engine::kv_cache::KvCacheSpec;
use crate::engine::scheduler::Scheduler;
use crate::units::SimTime;

const LINK: Link = Link { latency: SimTime(7_000), read_bytes_per_s: 1e9, write_bytes_per_s: 1e9 };

/// Replicas that share a store, which gives and takes so many bytes per second.
struct Fleet {
    num_replicas: u32,
    total_bytes_per_s: f64,
    /// Each process draws a seed of its own.
    is_drawn: bool,
    shared: SharedBy,
    actions: Vec<Action>,
}

impl Fleet {
    fn of(num_replicas: u32) -> Self {
        Self {
            num_replicas,
            total_bytes_per_s: 1e9,
            is_drawn: false,
            shared: SharedBy::Cluster,
            actions: Vec::new(),
        }
    }

    fn with(mut self, at: u64, kind: ActionKind) -> Self {
        self.actions.push(Action { at: SimTime(at), kind });
        self
    }

    fn run(self, requests: &[(u64, u64, u32, u32)]) -> (Seen, TierEnding) {
        let tier = TierConfig { kind: TierKind::Remote, capacity_blocks: 100, eviction: EvictionOrder::Lru };
        let store = TierStore::new(tier, Some(self.shared));
        let end = StoreLink::new(self.total_bytes_per_s, self.total_bytes_per_s);
        let hasher = RequestBlockHasher::identity(16, 0);
        let num_spaces = Rc::new(Cell::new(1));
        let replica = |index| {
            let config = EngineConfig { kv_connector: Some(KvLoadFailurePolicy::Recompute), ..config() };
            let space = if self.is_drawn { HashSpace::drawn(&num_spaces) } else { HashSpace::agreed(0) };
            let place = TierPlace { store: store.clone(), write_through: false };
            let groups = [TierGroup::new(&KvCacheSpec::full(16), 16)];
            let connector = TieredConnector::new(16, &groups, vec![place]).of_replica(index, space);
            let link = TierLink { link: LINK, store: Some(end.clone()) };
            let transfers = Transfers::new(connector.clone(), vec![link], 1_000, 1);
            let scheduler = Scheduler::new(config, Some(hasher.clone()), Some(Box::new(connector))).unwrap();
            Replica::new(ReplicaConfig {
                scheduler,
                cost: CostModel::Constant(ConstantCost { step_ns: 1_000, per_token_ns: 10 }),
                transfers: Some(transfers),
                puller: None,
                drafts: None,
                hashing: BlockHashing::FREE,
            })
        };
        let replicas = (0..self.num_replicas).map(replica).collect();
        let router = Box::new(RoundRobin::default());
        let mut simulation = Simulation::new(Listed::boxed(requests), replicas, router, self.actions)
            .with_lifecycle(LifecycleConfig::default());
        let mut seen = Seen::of_fleet();
        simulation.run(&mut seen).unwrap();
        seen.requests.sort_by_key(|request| request.index);
        (seen, simulation.ending().tiers.remove(0))
    }
}

fn external(seen: &Seen) -> Vec<u32> {
    seen.requests.iter().map(|request| request.num_external_cached_tokens).collect()
}

#[test]
fn what_one_replica_stored_another_hits_as_soon_as_it_is_there() {
    // Four blocks, computed at 1,640, and there at 12,640.
    let (seen, _) = Fleet::of(2).run(&[(0, 0, 64, 2), (12_639, 0, 64, 2)]);
    assert_eq!(external(&seen), [0, 0]);
    let (seen, tier) = Fleet::of(2).run(&[(0, 0, 64, 2), (12_640, 0, 64, 2)]);
    assert_eq!(external(&seen), [0, 64]);
    assert_eq!(seen.requests[1].first_token, Some(SimTime(12_640 + 7_000 + 4_000 + 1_010)));
    assert_eq!((tier.num_stores, tier.held_blocks, tier.stats.written_blocks), (1, 4, 4));
    assert_eq!((tier.stats.hit_tokens, tier.stats.hit_tokens_of_others), (64, 64));
    let given: Vec<_> = tier.replicas.iter().map(|replica| replica.given_tokens).collect();
    assert_eq!(given, [64, 0]);
    assert_eq!((tier.links.bytes, tier.store_busy), ([4_000, 4_000], [SimTime(4_000), SimTime(4_000)]));
}

#[test]
fn loads_of_several_replicas_share_what_the_store_gives() {
    let requests = [(0, 0, 64, 2), (100_000, 0, 64, 2), (100_000, 0, 64, 2)];
    let first_tokens = |total_bytes_per_s| {
        let (seen, tier) = Fleet { total_bytes_per_s, ..Fleet::of(3) }.run(&requests);
        assert_eq!(external(&seen), [0, 64, 64]);
        let times = seen.requests[1..].iter().map(|r| r.first_token.unwrap().0 - 100_000);
        (times.collect::<Vec<_>>(), tier.links.waited[Direction::Read as usize])
    };
    // The second load waits until the store is through with the first.
    assert_eq!(first_tokens(1e9), (vec![11_000 + 1_010, 15_000 + 1_010], SimTime(4_000)));
    // A store twice as fast as a link is through in half of the time.
    assert_eq!(first_tokens(2e9), (vec![11_000 + 1_010, 13_000 + 1_010], SimTime(2_000)));
    // One half as fast is what copies take their time for.
    assert_eq!(first_tokens(5e8), (vec![15_000 + 1_010, 23_000 + 1_010], SimTime(8_000)));
}

#[test]
fn the_store_takes_copies_in_the_order_in_which_they_are_ready() {
    // The first replica plans a step until 1,640, the second one until 1,160; a third asks when the only
    // block of the second is there, and when those of the first are, which had to wait for it.
    let requests = |at| [(0, 0, 64, 2), (0, 1_000, 16, 2), (at, 1_000, 16, 2)];
    let (seen, tier) = Fleet::of(3).run(&requests(9_160));
    assert_eq!(external(&seen), [0, 0, 16]);
    assert_eq!(tier.links.waited[Direction::Write as usize], SimTime(2_160 - 1_640));
    let first = |at| external(&Fleet::of(3).run(&[(0, 0, 64, 2), (0, 1_000, 16, 2), (at, 0, 64, 2)]).0)[2];
    assert_eq!((first(13_159), first(13_160)), (0, 64));
}

#[test]
fn the_store_outlives_a_replica_and_its_unfinished_copies_do_not() {
    let restart = ActionKind::Restart { replica: 0, start_up: SimTime(1_000) };
    let (seen, tier) = Fleet::of(1).with(50_000, restart).run(&[(0, 0, 64, 2), (100_000, 0, 64, 2)]);
    assert_eq!(external(&seen), [0, 64]);
    // It is the same replica, though another process.
    assert_eq!((tier.stats.hit_tokens, tier.stats.hit_tokens_of_others), (64, 0));
    // Not all was there when it failed.
    let (seen, tier) = Fleet::of(1).with(12_000, restart).run(&[(0, 0, 64, 2), (100_000, 0, 64, 2)]);
    assert_eq!((external(&seen), tier.held_blocks), (vec![0, 0], 4));
}

#[test]
fn a_machine_that_fails_takes_its_store_with_it() {
    let lost = ActionKind::FailNode { first: 0, num_replicas: 2 };
    let back = |replica| ActionKind::Restart { replica, start_up: SimTime(0) };
    let of_others = |shared| {
        let fleet = Fleet { shared, ..Fleet::of(2) };
        let fleet = fleet.with(50_000, lost).with(60_000, back(0)).with(60_000, back(1));
        fleet.run(&[(0, 0, 64, 2), (100_000, 0, 64, 2)]).1.stats.hit_tokens
    };
    assert_eq!((of_others(SharedBy::Cluster), of_others(SharedBy::Node)), (64, 0));
}

#[test]
fn processes_that_draw_their_seeds_share_nothing_not_even_with_their_own_past() {
    let requests = [(0, 0, 64, 2), (100_000, 0, 64, 2)];
    let drawn = |num_replicas| Fleet { is_drawn: true, ..Fleet::of(num_replicas) };
    let (seen, tier) = drawn(2).run(&requests);
    assert_eq!((external(&seen), tier.held_blocks), (vec![0, 0], 8));
    let restart = ActionKind::Restart { replica: 0, start_up: SimTime(1_000) };
    let (seen, tier) = drawn(1).with(50_000, restart).run(&requests);
    assert_eq!((external(&seen), tier.held_blocks), (vec![0, 0], 8));
}
