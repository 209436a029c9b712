//! A trace small enough to count by hand.

use super::*;
use crate::workload::trace::{ReadOptions, TraceInput, open};

/// Two conversations of two turns with 32 tokens of a system prompt in common, and one request that
/// does not look into the cache.
const TRACE: &str = r#"{"kvsim_trace": 1, "tenants": ["shop", "bank"], "notes": ["made up"]}
{"at_s": 0, "prompt": [[0, 32], [1000, 16]], "output": [[1016, 17]], "session": 7, "tenant": "shop"}
{"at_s": 1, "prompt": [[0, 32], [2000, 8]], "output_tokens": 9, "session": 8, "tenant": "bank"}
{"at_s": 3, "think_time_s": 2, "prompt": [[0, 32], [1000, 48]], "output_tokens": 1, "session": 7, "turn": 1, "tenant": "shop"}
{"at_s": 3, "prompt": [[0, 32], [2000, 24]], "output_tokens": 1, "session": 8, "turn": 1, "tenant": "bank"}
{"at_s": 9, "prompt": [[0, 32]], "output_tokens": 1, "tenant": "shop", "skip_reading_prefix_cache": true}
"#;

fn info(trace: &'static str, block_sizes: &[u32]) -> TraceInfo {
    let (format, mut reader) =
        open(TraceInput::new(trace.as_bytes()).unwrap(), &ReadOptions::default()).unwrap();
    trace_info(format, reader.as_mut(), block_sizes).unwrap()
}

#[test]
fn lookups_are_counted_as_vllm_counts_them() {
    let info = info(TRACE, &[16, 32]);
    // Blocks of 16, from the front: a b c d(the answer) | a b e | a b c d f | a b e' | a b.
    // 1: nothing is there; of the answer the first 16 tokens are computed, which fill block d.
    // 2: 40 tokens and 8 of the answer: finds a, b; e has 8 tokens of the answer.
    // 3: 80 tokens: finds a, b, c, d; f is new. 4: 56 tokens: finds a, b; e' has other tokens than e.
    // 5: looks for nothing.
    let reuse = &info.infinite_cache[0];
    assert_eq!((reuse.queries_tokens, reuse.hits_tokens), (48 + 40 + 80 + 56, 16 * (2 + 4 + 2)));
    assert_eq!((reuse.touched_blocks, reuse.unique_blocks), (4 + 3 + 5 + 3 + 2, 7));
    // The stack, from the top: abcd | abe cd | abcdf e | abe' cdfe. Distances, in blocks:
    // 2: a 0, b 1. 3: a 0, b 1, c 3, d 4. 4: a 0, b 1.
    let distances = reuse.reuse_distance_tokens.unwrap();
    assert_eq!((distances.count, distances.min, distances.max), (8, 0, 4 * 16));
    assert_eq!((distances.p10, distances.p50, distances.p90), (0, 16, 4 * 16));
    assert_eq!(distances.mean, 16.0 * (1 + 1 + 3 + 4 + 1) as f64 / 8.0);
    // 2: twice 1 s. 3: a and b 2 s, c and d 3 s. 4: twice 0 s.
    let times = reuse.reuse_time_s.unwrap();
    assert_eq!((times.count, times.min, times.max, times.mean), (8, 0.0, 3.0, 12.0 / 8.0));
    // Blocks of 32: the prompt of 1 has one and a half, with its answer two.
    let reuse = &info.infinite_cache[1];
    assert_eq!((reuse.hits_tokens, reuse.unique_blocks), (32 * (1 + 2 + 1), 2));
}

#[test]
fn requests_lengths_sessions_and_tenants_are_counted() {
    let info = info(TRACE, &[16]);
    assert_eq!((info.format, info.requests, info.requests_without_time), ("kvsim", 5, 0));
    assert_eq!((info.prompt_tokens_total, info.output_tokens_total), (256, 29));
    assert_eq!((info.requests_with_unknown_prompt, info.requests_with_unknown_output), (0, 4));
    assert_eq!(info.notes, ["made up"]);
    assert_eq!(info.with, Features { think_time: 1, skip_reading_prefix_cache: 1, ..Features::default() });
    let sessions = &info.sessions;
    assert_eq!((sessions.count, sessions.estimated, sessions.unknown), (3, 1, 0));
    assert_eq!(sessions.turns.unwrap().max, 2);
    assert_eq!(sessions.think_time_s.unwrap().mean, 2.0);
    let between = sessions.time_between_turns_s.unwrap();
    assert_eq!((between.count, between.mean), (2, 2.5));
    let tenant = |name: &str, requests, prompt, output, queries, hits| TenantInfo {
        name: name.into(),
        requests,
        prompt_tokens_total: prompt,
        output_tokens_total: output,
        queries_tokens: queries,
        hits_tokens: hits,
    };
    assert_eq!(info.tenants, [tenant("shop", 3, 160, 19, 128, 64), tenant("bank", 2, 96, 10, 96, 64)]);
}

#[test]
fn the_last_token_of_a_prompt_is_never_found() {
    let trace = "{\"kvsim_trace\": 1}\n\
                 {\"at_s\": 0, \"prompt\": [[0, 64]], \"output_tokens\": 1}\n\
                 {\"at_s\": 1, \"prompt\": [[0, 64]], \"output_tokens\": 1}\n\
                 {\"at_s\": 1, \"prompt\": [[0, 65]], \"output_tokens\": 1}\n";
    assert_eq!(info(trace, &[16]).infinite_cache[0].hits_tokens, 48 + 64);
}

#[test]
fn adapters_and_salts_keep_prompts_apart() {
    let trace = "{\"kvsim_trace\": 1}\n\
                 {\"at_s\": 0, \"prompt\": [[0, 65]], \"output_tokens\": 1}\n\
                 {\"at_s\": 1, \"prompt\": [[0, 65]], \"output_tokens\": 1, \"cache_salt\": \"s\"}\n\
                 {\"at_s\": 1, \"prompt\": [[0, 65]], \"output_tokens\": 1, \"cache_salt\": \"s\"}\n";
    assert_eq!(info(trace, &[16]).infinite_cache[0].hits_tokens, 64);
}

#[test]
fn lengths_alone_tell_nothing_of_reuse() {
    let info = info("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,90,3\n", &[16]);
    assert_eq!((info.requests_with_unknown_prompt, info.infinite_cache.len()), (1, 0));
    assert_eq!(info.sessions.unknown, 1);
    assert!(info_table(&info).contains("Hit rate: unknown"));
}

#[test]
fn an_empty_trace_has_no_figures() {
    let info = info("{\"kvsim_trace\": 1}\n", &[16]);
    assert_eq!((info.requests, &info.arrivals, info.prompt_tokens), (0, &None, None));
    assert!(info_table(&info).contains("requests  0"));
}
