//! Clients that go away: what the engine still does for them, and what it can then do for others.

use super::tests::{Listed, Seen, config, replica, run};
use super::*;
use crate::engine::{EngineConfig, FinishReason};
use crate::units::SimTime;
use crate::workload::{Patience, WaitsFor};

fn waits(ns: u64, waits_for: WaitsFor) -> Option<Patience> {
    Some(Patience { lasts: SimTime(ns), waits_for })
}

fn of(seen: &Seen, index: u64) -> RequestRecord {
    *seen.requests.iter().find(|request| request.index == index).unwrap()
}

#[test]
fn what_a_step_in_flight_brings_for_an_aborted_request_is_dropped() {
    // The first token is there at 1,900, the second would be at 2,910.
    let requests = [(500, 0, 40, 3, waits(2_000, WaitsFor::LastToken))];
    let seen = run(Listed::impatient(&requests), replica(config(), None, None), Vec::new());
    let request = of(&seen, 0);
    assert_eq!((request.finish_reason, request.finished), (FinishReason::Abort, SimTime(2_500)));
    assert_eq!((request.first_token, request.num_output_tokens), (Some(SimTime(1_900)), 1));
    // The step that was running runs to its end; one without tokens, which takes no time, tells the
    // worker.
    let steps: Vec<_> =
        seen.steps.iter().map(|step| (step.finished_at.0, step.num_scheduled_requests)).collect();
    assert_eq!(steps, [(1_900, 1), (2_910, 1), (2_910, 0)]);
    assert_eq!(seen.steps[1].num_free_blocks, 19);
}

#[test]
fn what_comes_at_the_end_of_the_patience_comes_in_time() {
    let outcome = |ns, waits_for| {
        let requests = [(500, 0, 40, 3, waits(ns, waits_for))];
        let seen = run(Listed::impatient(&requests), replica(config(), None, None), Vec::new());
        let request = of(&seen, 0);
        (request.finish_reason, request.finished.0, request.num_output_tokens)
    };
    // First token at 1,900, last at 3,920.
    assert_eq!(outcome(1_400, WaitsFor::FirstToken), (FinishReason::Length, 3_920, 3));
    assert_eq!(outcome(1_399, WaitsFor::FirstToken), (FinishReason::Abort, 1_899, 0));
    assert_eq!(outcome(3_420, WaitsFor::LastToken), (FinishReason::Length, 3_920, 3));
    assert_eq!(outcome(3_419, WaitsFor::LastToken), (FinishReason::Abort, 3_919, 2));
    assert_eq!(outcome(0, WaitsFor::FirstToken), (FinishReason::Abort, 500, 0));
}

#[test]
fn with_a_step_ahead_both_steps_in_flight_are_dropped() {
    let config = EngineConfig { async_scheduling: true, ..config() };
    let requests =
        [(0, 0, 64, 50, waits(5_000, WaitsFor::LastToken)), (0, 1_000, 40, 8, None), (9_000, 0, 64, 2, None)];
    let seen = run(Listed::impatient(&requests), replica(config, None, None), Vec::new());
    // Steps end at 1,640 (64 tokens), 3,050 (40 and 1), 4,070, ...
    let aborted = of(&seen, 0);
    assert_eq!((aborted.finish_reason, aborted.finished.0), (FinishReason::Abort, 5_000));
    assert_eq!(aborted.num_output_tokens, 3);
    assert_eq!((of(&seen, 1).finish_reason, of(&seen, 1).num_output_tokens), (FinishReason::Length, 8));
    // What was computed for it stays in the cache.
    assert_eq!(of(&seen, 2).num_local_cached_tokens, 48);
}

#[test]
fn who_leaves_the_queue_makes_room_and_was_never_admitted() {
    let config = EngineConfig { max_num_seqs: 1, ..config() };
    let requests =
        [(0, 0, 64, 20, None), (10, 0, 64, 2, waits(5_000, WaitsFor::FirstToken)), (20, 1_000, 32, 2, None)];
    let seen = run(Listed::impatient(&requests), replica(config, None, None), Vec::new());
    let left = of(&seen, 1);
    assert_eq!((left.first_scheduled, left.was_admitted, left.num_local_cached_tokens), (None, false, 0));
    assert_eq!(left.finished, SimTime(5_010));
    assert_eq!(of(&seen, 2).first_scheduled, Some(of(&seen, 0).finished));
    let queries: u64 = seen.steps.iter().map(|step| step.prefix_cache.queries).sum();
    assert_eq!(queries, 64 + 32);
}

#[test]
fn an_abort_while_prefilling_keeps_what_its_lookup_found() {
    // Of 160 tokens 64 are hit; the others take two steps, of 64 and 32 tokens.
    let requests = [(0, 0, 64, 1, None), (5_000, 0, 160, 9, waits(2_000, WaitsFor::FirstToken))];
    let seen = run(Listed::impatient(&requests), replica(config(), None, None), Vec::new());
    let aborted = of(&seen, 1);
    assert_eq!((aborted.finish_reason, aborted.first_token), (FinishReason::Abort, None));
    assert_eq!((aborted.was_admitted, aborted.num_local_cached_tokens), (true, 64));
    let hits: u64 = seen.steps.iter().map(|step| step.prefix_cache.hits).sum();
    assert_eq!(hits, 64);
}

#[test]
fn an_abort_frees_a_server_that_is_stuck() {
    // The first needs 16 of 9 blocks and stands before the other.
    let requests = [(0, 0, 250, 5, waits(7_000, WaitsFor::FirstToken)), (0, 0, 40, 1, None)];
    let config = EngineConfig { num_gpu_blocks: 10, ..config() };
    let seen = run(Listed::impatient(&requests), replica(config, None, None), Vec::new());
    assert_eq!(of(&seen, 0).finish_reason, FinishReason::Abort);
    assert_eq!(of(&seen, 1).first_scheduled, Some(SimTime(7_000)));
}
