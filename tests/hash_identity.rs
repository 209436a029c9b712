//! The exact identity and vLLM's digests agree on which blocks are equal.

use std::collections::HashMap;

use kvsim::engine::hash::{
    BlockHash, HashCursor, PrefixCachingHashAlgo, RequestBlockHasher, init_none_hash, resolve_none_hash_seed,
};
use kvsim::prompt::{LoraRequest, MmItem, PromptEmbeds, PromptExtras, TokenRuns};
use proptest::prelude::*;

/// Tokens and extras of few kinds, so that requests share prefixes and differ late.
#[derive(Clone, Debug)]
struct Request {
    runs: Vec<(u64, u32)>,
    extras: Option<PromptExtras>,
    /// How many tokens come with each call of `extend`, over and over.
    chunks: Vec<u32>,
}

fn extras() -> impl Strategy<Value = PromptExtras> {
    let lora = prop::option::weighted(
        0.4,
        (0u8..2, 0u8..2).prop_map(|(name, path)| LoraRequest {
            name: format!("adapter-{name}"),
            id: 1,
            path: format!("/{path}"),
        }),
    );
    let item = (0u32..6, 1u32..9, 0u8..2);
    let mm = prop::collection::vec(item, 0..4).prop_map(|items| {
        let mut position = 0;
        items
            .into_iter()
            .map(|(gap, length_tokens, identifier)| {
                let offset_tokens = position + gap;
                position = offset_tokens + length_tokens;
                MmItem { identifier: identifier.to_string(), offset_tokens, length_tokens }
            })
            .collect()
    });
    let salt = prop::option::weighted(0.3, prop::sample::select(vec![String::new(), "tenant".to_owned()]));
    let embeds = prop::option::weighted(
        0.1,
        (0u32..30, 1u32..3, 0i64..2).prop_map(|(num_tokens, dim, start)| PromptEmbeds::Counting {
            num_tokens,
            dim,
            start,
        }),
    );
    (lora, mm, salt, embeds).prop_map(|(lora, mm, cache_salt, prompt_embeds)| PromptExtras {
        lora,
        mm,
        cache_salt,
        prompt_embeds,
    })
}

fn request() -> impl Strategy<Value = Request> {
    let run = (prop::sample::select(vec![0u64, 1, 4, 100, u64::MAX - 3]), 1u32..12);
    (
        prop::collection::vec(run, 0..6),
        prop::option::weighted(0.5, extras()),
        prop::collection::vec(1u32..9, 1..4),
    )
        .prop_map(|(runs, extras, chunks)| Request { runs, extras, chunks })
}

/// Each request but the first begins as an earlier one and goes on in its own way.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    let branch = (any::<prop::sample::Index>(), 0usize..6, prop::bool::weighted(0.7), request());
    (request(), prop::collection::vec(branch, 1..8)).prop_map(|(first, branches)| {
        let mut requests = vec![first];
        for (of, keep, same_extras, mut request) in branches {
            let parent: &Request = of.get(&requests);
            let keep = keep.min(parent.runs.len());
            request.runs.splice(..0, parent.runs[..keep].iter().copied());
            if same_extras {
                request.extras = parent.extras.clone();
            }
            requests.push(request);
        }
        requests
    })
}

/// All block hashes of the requests, whose tokens arrive in turns.
fn hashes(hasher: &mut RequestBlockHasher, requests: &[Request], one_by_one: bool) -> Vec<Vec<BlockHash>> {
    let full: Vec<TokenRuns> = requests
        .iter()
        .map(|request| {
            let mut tokens = TokenRuns::new();
            request.runs.iter().for_each(|&(start, len)| tokens.push_run(start, len));
            tokens
        })
        .collect();
    let mut states = vec![(TokenRuns::new(), HashCursor::default(), Vec::new()); requests.len()];
    for turn in 0.. {
        let mut grew = false;
        for ((request, full), (tokens, cursor, hashes)) in requests.iter().zip(&full).zip(&mut states) {
            let chunk = if one_by_one { 1 } else { request.chunks[turn % request.chunks.len()] };
            let (from, to) = (tokens.len(), full.len().min(tokens.len() + chunk));
            full.ids(from, to).for_each(|id| tokens.push(id));
            hasher.extend(tokens, request.extras.as_ref(), cursor, hashes);
            grew |= from < to;
        }
        if !grew {
            break;
        }
    }
    states.into_iter().map(|(_, _, hashes)| hashes).collect()
}

fn digests_hasher(block_size: u32, lookahead: u32) -> RequestBlockHasher {
    let algo = PrefixCachingHashAlgo::Sha256;
    let none_hash = init_none_hash(algo, &resolve_none_hash_seed(algo, None, &[0; 32]));
    RequestBlockHasher::digests(algo, none_hash, block_size, lookahead)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn identities_are_equal_exactly_where_digests_are(
        requests in requests(),
        block_size in 1u32..7,
        lookahead in 0u32..3,
    ) {
        let mut identity = RequestBlockHasher::identity(block_size, lookahead);
        let identities = hashes(&mut identity, &requests, false);
        let mut hasher = digests_hasher(block_size, lookahead);
        let digests = hashes(&mut hasher, &requests, false);
        let mut to_digest = HashMap::new();
        let mut to_identity = HashMap::new();
        for (request, (identities, digests)) in identities.iter().zip(&digests).enumerate() {
            prop_assert_eq!(identities.len(), digests.len());
            for (block, (&identity, &digest)) in identities.iter().zip(digests).enumerate() {
                prop_assert_eq!(*to_digest.entry(identity).or_insert(digest), digest, "{} {}", request, block);
                prop_assert_eq!(*to_identity.entry(digest).or_insert(identity), identity, "{} {}", request, block);
            }
        }
        // How the tokens arrive makes no difference.
        prop_assert_eq!(hashes(&mut identity, &requests, true), identities);
        prop_assert_eq!(hashes(&mut hasher, &requests, true), digests);
    }

    /// The rule of `resolve_none_hash_seed` and `init_none_hash`, written down once more.
    #[test]
    fn none_hash_is_the_hash_of_its_seed(seed in ".{0,80}", random in any::<[u8; 32]>()) {
        use sha2::{Digest, Sha256};
        for algo in PrefixCachingHashAlgo::ALL {
            prop_assert_eq!(&*resolve_none_hash_seed(algo, Some(&seed), &random), &seed);
            let unset = resolve_none_hash_seed(algo, None, &random);
            if algo.is_cryptographic() {
                prop_assert_eq!(&*unset, "vllm-none-hash");
            } else {
                let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
                prop_assert_eq!(&*unset, &hex);
            }
        }
        // RFC 8949: a text string of major type 3.
        let mut cbor = match seed.len() {
            len @ 0..24 => vec![0x60 + len as u8],
            len @ 24..256 => vec![0x78, len as u8],
            len => vec![0x79, (len >> 8) as u8, len as u8],
        };
        cbor.extend_from_slice(seed.as_bytes());
        let expected = <[u8; 32]>::from(Sha256::digest(&cbor));
        prop_assert_eq!(init_none_hash(PrefixCachingHashAlgo::Sha256Cbor, &seed), expected.into());
    }
}
