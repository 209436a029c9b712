//! The stack against a list that is searched block by block.

use proptest::prelude::*;

use super::*;
use crate::prompt::{PromptExtras, TokenRuns};

const BLOCK_SIZE: usize = 2;

/// A block is all tokens up to its end.
type Block = Vec<u64>;

fn chain_of(tokens: &[u64]) -> Vec<Block> {
    (1..=tokens.len() / BLOCK_SIZE).map(|blocks| tokens[..blocks * BLOCK_SIZE].to_vec()).collect()
}

/// Distances of the blocks of a request, `None` for new ones; then its blocks are on top.
fn touch_list(list: &mut Vec<Block>, chain: &[Block]) -> Vec<Option<u32>> {
    let distances =
        chain.iter().map(|block| list.iter().position(|other| other == block).map(|at| at as u32)).collect();
    list.retain(|block| !chain.contains(block));
    list.splice(0..0, chain.iter().cloned());
    distances
}

/// The hits of an LRU cache of whole requests.
fn lru_hits(requests: &[Vec<u64>], capacity: usize) -> u64 {
    let mut cache: Vec<Block> = Vec::new();
    let mut hits = 0;
    for tokens in requests {
        hits += touch_list(&mut cache, &chain_of(tokens)).iter().flatten().count() as u64;
        cache.truncate(capacity);
    }
    hits
}

/// Short sequences of few tokens, so that prefixes are shared at all lengths.
fn requests() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let fresh = prop::collection::vec(0_u64..3, 0..14);
    prop::collection::vec(fresh, 0..40)
}

proptest! {
    #[test]
    fn distances_are_those_of_a_list(requests in requests()) {
        let mut chains = BlockChains::new(BLOCK_SIZE as u32);
        let mut stack = PrefixStack::default();
        let mut counts = DistanceCounts::default();
        let mut list = Vec::new();
        let mut last_touch: Vec<(Block, u32)> = Vec::new();
        for (request, tokens) in requests.iter().enumerate() {
            let tokens_runs: TokenRuns = tokens.iter().copied().collect();
            let chain = chains.of(&tokens_runs, &PromptExtras::default()).unwrap();
            let mut found = Vec::new();
            let mut found_requests = Vec::new();
            stack.touch(chain, |part| {
                assert_eq!(part.first, found.len());
                if let Some(reuse) = part.reuse {
                    counts.add(reuse.distance_blocks, part.len as u32);
                }
                found.extend((0..part.len as u32).map(|i| part.reuse.map(|reuse| reuse.distance_blocks + i)));
                found_requests.extend((0..part.len).map(|_| part.reuse.map(|reuse| reuse.request)));
            });
            let blocks = chain_of(tokens);
            prop_assert_eq!(found, touch_list(&mut list, &blocks));
            let last = |block: &Block| last_touch.iter().rev().find(|(b, _)| b == block).map(|&(_, r)| r);
            prop_assert_eq!(found_requests, blocks.iter().map(last).collect::<Vec<_>>());
            last_touch.extend(blocks.into_iter().map(|block| (block, request as u32)));
            prop_assert_eq!(stack.num_blocks(), list.len() as u64);
        }
        let capacities: Vec<u64> = (0..30).collect();
        let expected: Vec<u64> = capacities.iter().map(|&it| lru_hits(&requests, it as usize)).collect();
        prop_assert_eq!(counts.num_below(&capacities), expected);
        prop_assert_eq!(counts.counts().map(|(_, count)| count).sum::<u64>(), counts.total());
    }
}

#[test]
fn a_conversation_beside_another() {
    let mut chains = BlockChains::new(4);
    let mut stack = PrefixStack::default();
    let mut parts = |start: u64, len: u32| {
        let chain = chains.of(&TokenRuns::from_run(start, len), &PromptExtras::default()).unwrap();
        let mut parts = Vec::new();
        stack.touch(chain, |part| parts.push(part));
        parts
    };
    let new = |first, len| Part { first, len, reuse: None };
    let old = |first, len, request, distance_blocks| Part {
        first,
        len,
        reuse: Some(Reuse { request, distance_blocks }),
    };
    assert_eq!(parts(0, 12), [new(0, 3)]);
    assert_eq!(parts(1000, 8), [new(0, 2)]);
    // Above the first block lie the two of the other conversation.
    assert_eq!(parts(0, 20), [old(0, 3, 0, 2), new(3, 2)]);
    // Two blocks only: now the last three of the five are alone.
    assert_eq!(parts(0, 8), [old(0, 2, 2, 0)]);
    assert_eq!(parts(1000, 8), [old(0, 2, 1, 5)]);
    assert_eq!(parts(0, 20), [old(0, 2, 3, 2), old(2, 3, 2, 4)]);
}
