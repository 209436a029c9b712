//! The one pass against a naive LRU cache, exact counts on a small trace, and samples against it.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::prompt::TokenRuns;
use crate::scenario::{Scenario, Source, Template};
use crate::study::sweep;
use crate::trace_tools::{AnswerTimes, Generator, TurnTimes};
use crate::units::SimTime;
use crate::workload::trace::{TraceRequest, TraceTokens};

const ANSWERS: AnswerTimes = AnswerTimes { ttft: SimTime::from_ms(200), tpot: SimTime::from_ms(20) };

/// A cache as a list of prefixes, the most recently used first: a hit is a lookup of the list, a full
/// block of the prompt that is not its last token. Shares nothing with the code it judges.
struct NaiveLru {
    block_size: usize,
    capacity: usize,
    cache: Vec<Vec<u64>>,
}

impl NaiveLru {
    fn hits_tokens(block_size: usize, capacity: usize, requests: &[(Vec<u64>, Vec<u64>)]) -> u64 {
        let mut lru = Self { block_size, capacity, cache: Vec::new() };
        requests.iter().map(|(prompt, answer)| lru.serve(prompt, answer)).sum()
    }

    fn serve(&mut self, prompt: &[u64], answer: &[u64]) -> u64 {
        let prefixes = |tokens: &[u64]| -> Vec<Vec<u64>> {
            (1..=tokens.len() / self.block_size).map(|n| tokens[..n * self.block_size].to_vec()).collect()
        };
        let lookup = prefixes(&prompt[..prompt.len() - 1]);
        let hits = lookup.iter().take_while(|prefix| self.cache.contains(prefix)).count();
        let computed = [prompt, &answer[..answer.len() - 1]].concat();
        let touched = prefixes(&computed);
        self.cache.retain(|prefix| !touched.contains(prefix));
        // The tail is freed first, so the head is the most recent.
        for prefix in touched.into_iter().rev() {
            self.cache.insert(0, prefix);
        }
        self.cache.truncate(self.capacity);
        (hits * self.block_size) as u64
    }
}

fn request(prompt: &[u64], answer: &[u64]) -> TraceRequest {
    let known = |tokens: &[u64]| TraceTokens::Known(tokens.iter().copied().collect::<TokenRuns>());
    TraceRequest::new(1, Some(SimTime::ZERO), known(prompt), known(answer))
}

fn pass_over(block_sizes: &[u32], sampling: Option<Sampling>, requests: &[TraceRequest]) -> Pass {
    let lanes: Vec<(u32, Vec<u64>)> = block_sizes.iter().map(|&size| (size, vec![1, 5])).collect();
    let mut pass = Pass::new(&lanes, sampling);
    requests.iter().for_each(|request| pass.add(request).unwrap());
    pass
}

proptest! {
    #[test]
    fn the_one_pass_is_a_naive_lru_at_every_size(
        requests in prop::collection::vec(
            (prop::collection::vec(0_u64..2, 1..14), prop::collection::vec(0_u64..2, 1..5)), 1..30),
    ) {
        let rows: Vec<TraceRequest> = requests.iter().map(|(prompt, answer)| request(prompt, answer)).collect();
        let pass = pass_over(&[1, 2, 3], None, &rows);
        let capacities: Vec<u64> = (0..40).collect();
        for (index, block_size) in [1, 2, 3].into_iter().enumerate() {
            let naive = capacities
                .iter()
                .map(|&capacity| NaiveLru::hits_tokens(block_size, capacity as usize, &requests) as f64);
            let found: Vec<f64> =
                pass.hits_tokens(index, &capacities).into_iter().map(f64::round).collect();
            prop_assert_eq!(found, naive.collect::<Vec<_>>());
        }
    }

    #[test]
    fn groups_sum_to_the_whole(
        requests in prop::collection::vec(
            (prop::collection::vec(0_u64..2, 1..14), prop::collection::vec(0_u64..2, 1..5), 0_u32..3, 0_u64..500),
            1..30),
    ) {
        let rows: Vec<TraceRequest> = requests
            .iter()
            .map(|(prompt, answer, turn, at_s)| TraceRequest {
                turn: *turn,
                tenant: turn % 2,
                at: Some(SimTime::from_ms(1000 * at_s)),
                ..request(prompt, answer)
            })
            .collect();
        let pass = pass_over(&[2], None, &rows);
        let tenants = ["a", "b"].map(str::to_owned);
        let breakdown = pass.lanes()[0].breakdown(vec!["1".into(), "5".into()], &tenants);
        let whole: Vec<f64> = pass.hits_tokens(0, &[1, 5, 1_000]).into_iter().map(f64::round).collect();
        for grouping in Grouping::ALL {
            let groups = breakdown.groups(grouping);
            let queries: u64 = groups.iter().map(|group| group.queries_tokens).sum();
            prop_assert_eq!(queries, rows.iter().map(|row| u64::from(row.prompt.len())).sum::<u64>());
            let hits = |size: usize| groups.iter().map(|group| group.hits_tokens[size]).sum::<u64>() as f64;
            prop_assert_eq!((0..3).map(hits).collect::<Vec<_>>(), whole.clone());
        }
    }
}

/// A scenario of the repository with other fields.
fn scenario(path: &str, overrides: &[&str]) -> (Template, Scenario) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&path).unwrap();
    let overrides = overrides.iter().map(|&it| it.to_owned()).collect();
    let template = Template::read(Source { path, text, overrides, ..Source::default() }).unwrap();
    let scenario = template.scenario(&[]).unwrap();
    (template, scenario)
}

fn requests_of(scenario: &Scenario) -> Vec<TraceRequest> {
    let mut rows = Vec::new();
    let mut generator = Generator::new(scenario.workload().unwrap(), ANSWERS, TurnTimes::Recorded);
    generator
        .run(|row, _| {
            rows.push(row.clone());
            Ok(())
        })
        .unwrap();
    rows
}

/// Hits of our sample of 692,207 prompt tokens at eight sizes in blocks of 512 tokens, counted with a
/// list of prefixes in a few lines of Python.
#[test]
fn our_sample_has_these_hits_at_eight_sizes() {
    let (_, scenario) = scenario("scenarios/mooncake.yaml", &[]);
    let pass = pass_over(&[512], None, &requests_of(&scenario));
    let hits: Vec<f64> = pass.hits_tokens(0, &EIGHT_SIZES).into_iter().map(f64::round).collect();
    assert_eq!(hits, EIGHT_HITS);
}

const EIGHT_SIZES: [u64; 8] = [1, 2, 5, 20, 50, 100, 200, 1_000];
const EIGHT_HITS: [f64; 8] =
    [57_344.0, 103_424.0, 210_432.0, 308_224.0, 396_288.0, 492_544.0, 505_344.0, 505_344.0];

fn chat() -> Vec<TraceRequest> {
    let (_, scenario) = scenario("scenarios/chat.yaml", &["workload.chat.duration_s=300"]);
    requests_of(&scenario)
}

#[test]
fn samples_are_within_their_bound() {
    let rows = chat();
    let exact = pass_over(&[16], None, &rows);
    let queries_tokens = exact.lanes()[0].queries_tokens() as f64;
    let sizes: Vec<u64> = (1..=20).map(|step| step * exact.lanes()[0].enough_blocks() / 20).collect();
    let expected = exact.hits_tokens(0, &sizes);
    for sampling in [
        Sampling { rate: 0.1, max_blocks: None },
        Sampling { rate: 1.0, max_blocks: Some(4_000) },
        Sampling { rate: 1.0, max_blocks: None },
    ] {
        let sampled = pass_over(&[16], Some(sampling), &rows);
        let lane = &sampled.lanes()[0];
        assert_eq!(lane.queries_tokens() as f64, queries_tokens);
        for ((hits, expected), size) in lane.hits(&sizes).iter().zip(&expected).zip(&sizes) {
            let error = (hits.hit_rate - expected / queries_tokens).abs();
            // 95 % of the intervals have the rate in them; twice as wide, these all do.
            let bound = 2.0 * hits.half_width.unwrap() + 1e-3;
            assert!(error <= bound, "{sampling:?} at {size}: {error} is more than {bound}");
            assert!(error < 0.03, "{sampling:?} at {size}: {error}");
        }
    }
}

#[test]
fn groups_of_a_sample_are_those_of_all_blocks_within_their_bound() {
    let rows = chat();
    let pass = |sampling: Option<Sampling>| {
        let mut pass = Pass::new(&[(16, vec![4_000, 16_000])], sampling);
        rows.iter().for_each(|row| pass.add(row).unwrap());
        pass
    };
    let exact = pass(None);
    let sizes = ["4000", "16000"].map(str::to_owned).to_vec();
    let expected = exact.lanes()[0].breakdown(sizes.clone(), &[]);
    for sampling in
        [Sampling { rate: 0.1, max_blocks: None }, Sampling { rate: 1.0, max_blocks: Some(4_000) }]
    {
        let sampled = pass(Some(sampling));
        let lane = &sampled.lanes()[0];
        let found = lane.breakdown(sizes.clone(), &[]);
        for grouping in Grouping::ALL {
            assert_eq!(found.groups(grouping).len(), expected.groups(grouping).len());
            let (mut intervals, mut outside) = (0, 0);
            for (found, expected) in found.groups(grouping).iter().zip(expected.groups(grouping)) {
                assert_eq!((&found.key, found.requests), (&expected.key, expected.requests));
                assert_eq!(found.queries_tokens, expected.queries_tokens);
                for size in 0..3 {
                    let rate = |group: &Group| group.hits_tokens[size] as f64 / group.queries_tokens as f64;
                    intervals += 1;
                    let bound = found.hit_rate_half_widths[size] + 1e-3;
                    outside += u32::from((rate(found) - rate(expected)).abs() > bound);
                }
            }
            // One in twenty is expected outside; groups have the same blocks and are outside together.
            assert!(5 * outside <= intervals, "{sampling:?} {grouping:?}: {outside} of {intervals}");
        }
        // All turns together are the whole sample.
        let hits: u64 = found.turn.iter().map(|group| group.hits_tokens[2]).sum();
        let whole = lane.infinite().hit_rate * lane.queries_tokens() as f64;
        assert!((hits as f64 / whole - 1.0).abs() < 1e-3, "{hits} for {whole}");
    }
}

#[test]
fn a_sample_stays_as_small_as_it_is_told() {
    let rows = chat();
    let sampling = Sampling { rate: 1.0, max_blocks: Some(800) };
    let sampled = pass_over(&[16], Some(sampling), &rows);
    let (sampled_blocks, _) = sampled.lanes()[0].sample().expect("it is a sample");
    assert!((200..=800).contains(&sampled_blocks), "{sampled_blocks}");
    let exact = pass_over(&[16], None, &rows);
    let (unique, estimate) =
        (exact.lanes()[0].unique_blocks() as f64, sampled.lanes()[0].unique_blocks() as f64);
    assert!((estimate / unique - 1.0).abs() < 0.15, "{estimate} for {unique}");
}

struct Silent;

impl Progress for Silent {
    fn request(&mut self, _share: Option<f64>) {}
}

impl sweep::Progress for Silent {
    fn begin(&mut self, _done: usize, _all: usize) -> std::io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _row: &sweep::Row) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let overrides = ["workload.chat.duration_s=2", "workload.chat.turns={fixed: 2}"];
    let (template, scenario) = scenario("scenarios/chat.yaml", &overrides);
    let with = |threads| {
        let folder = tempfile::tempdir().unwrap();
        let request = CurveRequest {
            block_sizes: [16, 64].map(|size| std::num::NonZeroU32::new(size).unwrap()).into(),
            sizes: Vec::new(),
            simulate: Some(Simulate::Sizes(vec![CacheSize::Tokens(40_000), CacheSize::Gib(20.0)])),
            sampling: None,
            answers: ANSWERS,
            host_gib: 64.0,
            threads,
            simulations: folder.path().join("simulations"),
        };
        request.run(&template, &scenario, &mut Silent).unwrap()
    };
    let one = with(1);
    assert_eq!(one.json(), with(3).json());
    assert!(one.block_sizes.iter().all(|it| it.simulated.iter().all(|point| point.run.is_some())));
}

/// Half of the hits are at distance 0, the rest at 99: the first block is the knee.
#[test]
fn the_knee_is_the_furthest_above_the_chord() {
    let rows: Vec<TraceRequest> = (0..200)
        .flat_map(|index| {
            let cyclic = 10 * (index % 100);
            let (hot, cold) = ([1_000_000, 1_000_001, 1_000_002], [cyclic, cyclic + 1, cyclic + 2]);
            [request(&hot, &[5]), request(&hot, &[5]), request(&cold, &[5])]
        })
        .collect();
    let pass = pass_over(&[2], None, &rows);
    let shape = CacheShape { block_size_tokens: 2, num_groups: 1, block_bytes: 1 << 20 };
    let curve = BlockSizeCurve::new(shape, &pass.lanes()[0], &[2, 4], &[], &[]);
    // The hot block is under one other at most; the cold ones come back after 99 others and the hot one.
    assert_eq!(curve.infinite.cache_tokens, 2 * 101);
    assert_eq!(curve.infinite.hits_tokens, 2 * (399 + 100));
    assert_eq!(curve.knee.unwrap().cache_tokens, 2 * 2);
    assert_eq!(curve.points.iter().map(|it| it.hits_tokens).collect::<Vec<_>>(), [2 * 200, 2 * 399]);
}
