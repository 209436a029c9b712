//! Policies that look at prefixes and sessions, and the hashes that they look for.

use super::*;
use crate::engine::hash::{
    BlockDigest, BlockHash, DEFAULT_NONE_HASH_SEED, HashCursor, PrefixCachingHashAlgo, RequestBlockHasher,
    init_none_hash, resolve_none_hash_seed,
};
use crate::engine::kv_cache::KvCacheSpec;
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::scheduler::{EngineCoreOutputs, ModelRunnerOutput, Scheduler, SchedulerOutput};
use crate::engine::{EngineConfig, NewRequest};
use crate::prompt::TokenRuns;

fn views(num_replicas: usize) -> Vec<ReplicaView> {
    vec![ReplicaView { is_ready: true, num_blocks: 100, ..ReplicaView::default() }; num_replicas]
}

fn request(first_token: u64, len: u32) -> RequestSpec {
    RequestSpec::plain(TokenRuns::from_run(first_token, len), TokenRuns::from_run(1 << 40, 1))
}

fn of_session(session: u64) -> RequestSpec {
    RequestSpec { session: Some(session), ..request(0, 16) }
}

/// Chooses, and sends there.
fn send(router: &mut dyn Router, request: &RequestSpec, views: &[ReplicaView]) -> usize {
    let replica = router.choose(SimTime::ZERO, request, views);
    router.sent(request, replica);
    replica
}

fn router(config: RouterConfig, num_replicas: usize) -> Box<dyn Router> {
    config.build(1, num_replicas, None)
}

#[test]
fn a_prompt_goes_where_its_beginning_was_sent() {
    let config = RouterConfig { policy: RouterPolicy::PrefixAware, ..RouterConfig::default() };
    let mut prefix_aware = router(config, 3);
    let mut views = views(3);
    assert_eq!(send(&mut *prefix_aware, &request(0, 64), &views), 0);
    assert_eq!(send(&mut *prefix_aware, &request(500, 64), &views), 1);
    // 64 of 96 tokens were sent to 0, which is more than 0.3 of it; 16 of 64 are not.
    assert_eq!(send(&mut *prefix_aware, &request(0, 96), &views), 0);
    let mut little = TokenRuns::from_run(500, 16);
    little.push_run(9_000, 48);
    let little = RequestSpec { prompt: little, ..request(0, 1) };
    views[0].num_in_flight = 1;
    views[1].num_in_flight = 1;
    assert_eq!(send(&mut *prefix_aware, &little, &views), 2);
    // With 66 requests more than the least loaded, and 1.5 times as many, load decides.
    views[0].num_in_flight = 66;
    assert_eq!(send(&mut *prefix_aware, &request(0, 96), &views), 2);
    // It remembers that too: 96 tokens are at both, so the lesser load of the two gets it.
    views[0].num_in_flight = 2;
    views[2].num_in_flight = 3;
    assert_eq!(send(&mut *prefix_aware, &request(0, 96), &views), 0);
    let stats = prefix_aware.index_stats().unwrap();
    assert_eq!((stats.lookups, stats.queried_blocks), (6, 4 + 4 + 6 + 4 + 6 + 6));
    assert_eq!((stats.matched_blocks, stats.no_match_because), (4 + 6, None));
}

#[test]
fn what_was_sent_long_ago_is_forgotten() {
    let config =
        RouterConfig { policy: RouterPolicy::PrefixAware, capacity_blocks: 4, ..RouterConfig::default() };
    let mut prefix_aware = router(config, 1);
    for (first_token, matched) in [(0, 0), (0, 2), (100, 2), (200, 2), (0, 2)] {
        send(&mut *prefix_aware, &request(first_token, 32), &views(1));
        assert_eq!(prefix_aware.index_stats().unwrap().matched_blocks, matched);
    }
}

#[test]
fn scores_are_weighted_and_summed() {
    let weights = ScoreWeights { prefix: 1.0, kv_usage: 1.0, queue: 1.0, running: 0.0 };
    let config = RouterConfig { policy: RouterPolicy::Weighted, weights, ..RouterConfig::default() };
    let mut weighted = router(config.clone(), 2);
    let mut views = views(2);
    // Half of the prompt is at 0: 0.5 + (1 - usage) + 1 against 0 + (1 - 0.4) + 1.
    views[1].used_blocks = 40;
    assert_eq!(send(&mut *weighted, &request(0, 32), &views), 0);
    for (used_blocks, chosen) in [(89, 0), (91, 1)] {
        views[0].used_blocks = used_blocks;
        let mut prompt = TokenRuns::from_run(0, 32);
        prompt.push_run(10_000 + u64::from(used_blocks), 32);
        let request = RequestSpec { prompt, ..request(0, 1) };
        assert_eq!(send(&mut *weighted, &request, &views), chosen, "{used_blocks}");
    }
    // The longer queue has score 0 and the shorter one 1, however long they are.
    (views[0].used_blocks, views[1].used_blocks) = (0, 99);
    (views[0].num_waiting, views[1].num_waiting) = (7, 6);
    assert_eq!(send(&mut *weighted, &request(77_000, 16), &views), 1);
    // Equals are drawn.
    let mut even = router(RouterConfig { weights: ScoreWeights { prefix: 0.0, ..weights }, ..config }, 2);
    let views = self::views(2);
    let first = (0..1_000).filter(|_| send(&mut *even, &request(0, 16), &views) == 0).count();
    // 500 and six standard deviations.
    assert!((405..=595).contains(&first), "{first}");
    assert!(even.index_stats().is_none());
}

#[test]
fn cost_counts_blocks_to_compute_and_blocks_in_use() {
    let config = RouterConfig { policy: RouterPolicy::KvCost, ..RouterConfig::default() };
    let mut costs = router(config.clone(), 2);
    let views = views(2);
    let mut next = 0;
    let mut send_new = |router: &mut dyn Router, request: RequestSpec| {
        let request = RequestSpec { index: next, ..request };
        next += 1;
        send(router, &request, &views)
    };
    // Idle, 4 + 4 either way; then 0 has 4 to compute and 4 in use.
    assert_eq!(send_new(&mut *costs, request(0, 64)), 0);
    assert_eq!(send_new(&mut *costs, request(500, 64)), 1);
    // With all of its beginning at 0: 4 + 1 to compute and 5 in use, against 9 and 9.
    assert_eq!(send_new(&mut *costs, request(0, 80)), 0);
    // The first tokens of 0 are there. 2 others: 2 + (5 + 2) against (4 + 2) + (4 + 2).
    costs.started(0, 0);
    costs.started(2, 0);
    assert_eq!(send_new(&mut *costs, request(900, 32)), 0);
    // 2 + 2 to compute and 7 + 2 in use, against 4 + 2 and 4 + 2.
    assert_eq!(send_new(&mut *costs, request(1_800, 32)), 1);
    // All of 0 ended: 2 + 2 against (6 + 2) + (6 + 2).
    [0, 2, 3].into_iter().for_each(|index| costs.ended(index, 0));
    assert_eq!(send_new(&mut *costs, request(2_700, 32)), 0);
    // Three shares of chance at temperature 1 / ln 2: the range costs one factor of 2.
    let temperature = 1.0 / std::f64::consts::LN_2;
    let mut drawn = router(RouterConfig { temperature, ..config }, 2);
    drawn.choose(SimTime::ZERO, &request(0, 16), &views);
    drawn.sent(&request(0, 16), 0);
    let other = request(900, 16);
    let first = (0..3_000).filter(|_| drawn.choose(SimTime::ZERO, &other, &views) == 0).count();
    // 1,000 and six standard deviations.
    assert!((845..=1_155).contains(&first), "{first}");
}

#[test]
fn a_session_stays_where_it_is() {
    let config = RouterConfig { policy: RouterPolicy::SessionAffinity, ..RouterConfig::default() };
    let mut affinity = router(config.clone(), 4);
    let mut views = views(4);
    let place = |router: &mut dyn Router, views: &[ReplicaView]| -> Vec<usize> {
        (0..4_000).map(|session| send(router, &of_session(session), views)).collect()
    };
    let before = place(&mut *affinity, &views);
    assert_eq!(before, place(&mut *affinity, &views));
    for replica in 0..4 {
        let count = before.iter().filter(|&&place| place == replica).count();
        assert!((835..=1_165).contains(&count), "{replica} has {count}");
    }
    // Without a replica only its own sessions go elsewhere.
    views[2].is_ready = false;
    let after = place(&mut *affinity, &views);
    assert!(before.iter().zip(&after).all(|(before, after)| *before == 2 || before == after));
    assert!(after.iter().all(|&place| place != 2));
    // With bounds a full replica is passed over: 1.25 * (9 + 1) / 3 = 4.17, so at most 5 each.
    let mut bounded = router(RouterConfig { load_factor: Some(1.25), ..config }, 4);
    views[0].num_in_flight = 5;
    views[1].num_in_flight = 4;
    assert!((0..100).all(|session| send(&mut *bounded, &of_session(session), &views) != 0));
    // Without a session the least loaded.
    assert_eq!(send(&mut *affinity, &request(0, 16), &views), 3);
}

/// The digests in the KV events of an engine that computes one prompt.
fn published_digests(
    algo: PrefixCachingHashAlgo,
    seed: Option<&str>,
    block_size: u32,
    prompt: &TokenRuns,
) -> Vec<BlockDigest> {
    let config = EngineConfig {
        block_size,
        kv_cache_groups: vec![KvCacheSpec::full(block_size)],
        prefix_caching_hash_algo: algo,
        enable_kv_cache_events: true,
        async_scheduling: false,
        num_gpu_blocks: 100,
        max_model_len: 1_024,
        ..EngineConfig::default()
    };
    let none_hash = init_none_hash(algo, &resolve_none_hash_seed(algo, seed, &[9; 32]));
    let hasher = RequestBlockHasher::digests(algo, none_hash, block_size, 0);
    let mut scheduler = Scheduler::new(config, Some(hasher), None).unwrap();
    let prompt_token_ids = prompt.clone();
    let request = NewRequest { id: 0, prompt_token_ids, max_tokens: 1, ..NewRequest::default() };
    scheduler.add_request(request).unwrap();
    let (mut step, mut sampled, mut outputs) =
        (SchedulerOutput::default(), ModelRunnerOutput::default(), EngineCoreOutputs::default());
    scheduler.schedule(&mut step);
    sampled.push_token(5);
    sampled.end_request();
    scheduler.update_from_output(&step, &sampled, None, &mut outputs);
    let stored = outputs.events.iter().filter_map(|event| match event {
        KvCacheEvent::BlockStored(stored) => Some(&stored.block_hashes),
        _ => None,
    });
    let hasher = scheduler.hasher().unwrap();
    stored.flatten().map(|&hash| hasher.digest(hash).unwrap()).collect()
}

/// The digests that a router computes of the same prompt.
fn computed_digests(hash: &RouterHash, prompt: &TokenRuns) -> Vec<BlockDigest> {
    let seed = resolve_none_hash_seed(hash.algo, hash.python_hash_seed.as_deref(), &[7; 32]);
    let none_hash = init_none_hash(hash.algo, &seed);
    let mut hasher = RequestBlockHasher::digests(hash.algo, none_hash, hash.block_size, 0);
    let mut hashes: Vec<BlockHash> = Vec::new();
    hasher.extend(prompt, None, &mut HashCursor::default(), &mut hashes);
    hashes.into_iter().map(|hash| hasher.digest(hash).unwrap()).collect()
}

#[test]
fn settings_agree_exactly_when_real_digests_are_equal() {
    let prompt = TokenRuns::from_run(3, 70);
    let seeds = [None, Some("0"), Some("42"), Some(DEFAULT_NONE_HASH_SEED)];
    let settings = || {
        let algos = PrefixCachingHashAlgo::ALL.into_iter();
        let with_seed = algos.flat_map(move |algo| seeds.map(|seed| (algo, seed)));
        with_seed.flat_map(|(algo, seed)| [16, 32].map(|block_size| (algo, seed, block_size)))
    };
    let mut num_equal = 0;
    for (algo, seed, block_size) in settings() {
        let published = published_digests(algo, seed, block_size, &prompt);
        assert_eq!(published.len(), 70 / block_size as usize);
        let engine = EngineConfig {
            block_size,
            kv_cache_groups: vec![KvCacheSpec::full(block_size)],
            prefix_caching_hash_algo: algo,
            ..EngineConfig::default()
        };
        for (algo, own_seed, block_size) in settings() {
            let python_hash_seed = own_seed.map(str::to_owned);
            let hash = RouterHash { algo, block_size, python_hash_seed };
            let computed = computed_digests(&hash, &prompt);
            let mismatch = hash.mismatch(&engine, seed);
            let any_equal = computed.iter().any(|digest| published.contains(digest));
            assert_eq!(any_equal, mismatch.is_none(), "{hash:?} and {engine:?} with {seed:?}: {mismatch:?}");
            assert_eq!(computed == published, any_equal);
            num_equal += u32::from(any_equal);
        }
    }
    // Both block sizes with: four seeds and, for SHA-256, the public one under two names; for XXH3 each
    // process draws a seed where none is given.
    assert_eq!(num_equal, 2 * (2 * (2 + 4) + 2 * 3));
}

#[test]
fn a_mismatch_says_what_to_set() {
    let hash = RouterHash { algo: PrefixCachingHashAlgo::Sha256, block_size: 16, python_hash_seed: None };
    let engine = EngineConfig::default();
    assert_eq!(hash.mismatch(&engine, None), None);
    let starts = |hash: &RouterHash, engine: &EngineConfig, seed, text: &str| {
        let mismatch = hash.mismatch(engine, seed).unwrap();
        assert!(mismatch.starts_with(text), "{mismatch}");
    };
    let other = RouterHash { block_size: 64, ..hash.clone() };
    starts(&other, &engine, None, "the router hashes blocks of 64 tokens, the engines of 16; set");
    let other = RouterHash { algo: PrefixCachingHashAlgo::Sha256Cbor, ..hash.clone() };
    starts(&other, &engine, None, "the router hashes with sha256_cbor, the engines with sha256; set");
    starts(&hash, &engine, Some("42"), "the router's hashes begin with the seed `vllm-none-hash`");
    let off = EngineConfig { enable_prefix_caching: false, ..engine.clone() };
    starts(&hash, &off, None, "prefix caching is off");
    let xxhash = PrefixCachingHashAlgo::Xxhash;
    let drawn = EngineConfig { prefix_caching_hash_algo: xxhash, ..engine };
    starts(&RouterHash { algo: xxhash, ..hash }, &drawn, None, "with xxhash each process draws a seed");
}

#[test]
fn events_come_late_or_never() {
    let index = |delay: u64, loss: f64, mismatches: [Option<String>; 2]| {
        let settings = EventSettings {
            delay: SimTime(delay),
            loss,
            seed: 1,
            mismatches: mismatches.to_vec(),
            replica_of: (0..mismatches.len()).collect(),
        };
        PrefixIndex::of_events(RequestBlockHasher::identity(16, 0), usize::MAX, settings)
    };
    let request = request(0, 40);
    // The first block of the first prompt that is hashed is number 0, the second number 1.
    let stored = |number| CacheChange::Stored { hash: BlockHash(number), group_id: 0 };
    let removed = |number| CacheChange::Removed { hash: BlockHash(number), group_id: 0 };
    let mut late = index(10, 0.0, [None, None]);
    assert_eq!(late.look_up(SimTime(0), &request), (2, [0, 0].as_slice()));
    late.on_events(SimTime(5), 1, &[stored(0), stored(1)]);
    late.on_events(SimTime(8), 1, &[removed(1), CacheChange::Stored { hash: BlockHash(1), group_id: 3 }]);
    late.on_events(SimTime(9), 1, &[CacheChange::Cleared]);
    for (now, blocks) in [(14, 0), (15, 2), (17, 2), (18, 1), (19, 0)] {
        assert_eq!(late.look_up(SimTime(now), &request).1, [0, blocks], "at {now}");
    }
    let mut lossy = index(0, 0.25, [None, None]);
    lossy.look_up(SimTime(0), &request);
    for _ in 0..4_000 {
        lossy.on_events(SimTime(0), 0, &[stored(0)]);
    }
    // 1,000 and six standard deviations.
    let lost = lossy.stats().lost_events;
    assert!((836..=1_164).contains(&lost), "{lost}");
    let mut deaf = index(0, 1.0, [None, None]);
    deaf.look_up(SimTime(0), &request);
    deaf.sent(0);
    deaf.on_events(SimTime(0), 0, &[stored(0)]);
    assert_eq!(deaf.stats().no_match_because.as_deref(), Some("all KV events were lost"));
    let mut foreign = index(0, 0.0, [Some("no seed".to_owned()), Some("no seed".to_owned())]);
    foreign.on_events(SimTime(0), 0, &[stored(0)]);
    assert_eq!(foreign.look_up(SimTime(0), &request).1, [0, 0]);
    foreign.sent(0);
    let stats = foreign.stats();
    assert_eq!((stats.events, stats.foreign_events, stats.matched_blocks), (1, 1, 0));
    assert_eq!(stats.no_match_because.as_deref(), Some("no seed"));
}

/// A replica holds as much of a prompt as the one of its ranks that holds most.
#[test]
fn events_of_ranks_add_up_to_what_a_replica_holds() {
    let settings = EventSettings {
        delay: SimTime::ZERO,
        loss: 0.0,
        seed: 1,
        mismatches: vec![None; 5],
        replica_of: vec![0, 0, 1, 1, 1],
    };
    let mut index = PrefixIndex::of_events(RequestBlockHasher::identity(16, 0), usize::MAX, settings);
    let request = request(0, 80);
    let stored = |number| CacheChange::Stored { hash: BlockHash(number), group_id: 0 };
    let removed = |number| CacheChange::Removed { hash: BlockHash(number), group_id: 0 };
    assert_eq!(index.look_up(SimTime(0), &request), (5, [0, 0].as_slice()));
    index.on_events(SimTime(1), 0, &[stored(0)]);
    index.on_events(SimTime(1), 1, &[stored(0), stored(1), stored(2)]);
    index.on_events(SimTime(1), 4, &[stored(0), stored(1)]);
    assert_eq!(index.look_up(SimTime(2), &request).1, [3, 2]);
    // Another rank still has the first block.
    index.on_events(SimTime(3), 1, &[removed(0)]);
    index.on_events(SimTime(3), 4, &[CacheChange::Cleared]);
    assert_eq!(index.look_up(SimTime(4), &request).1, [1, 0]);
}
