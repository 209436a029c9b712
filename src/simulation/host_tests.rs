//! What the host's work does to the clock, and stages that a step passes one after the other.

use super::tests::{Listed, Seen, config, replica, replica_with_hashing, run};
use crate::cost::{BlockHashing, HashingLaw};
use crate::engine::EngineConfig;
use crate::units::SimTime;

/// 1,000 ns for a block of 16, and 500 more for a block that outputs fill.
fn hashing() -> BlockHashing {
    let law = HashingLaw { block_ns: 840.0, token_ns: 10.0, append_ns: 500.0, ..HashingLaw::neutral() };
    BlockHashing::new(&law, 16)
}

fn hashed(requests: &[(u64, u64, u32, u32)], config: EngineConfig) -> Seen {
    run(Listed::boxed(requests), replica_with_hashing(config, None, None, hashing()), Vec::new())
}

/// Two blocks each: the second request waits for the hashes of the first.
#[test]
fn prompts_are_hashed_one_after_the_other_before_their_requests_can_be_scheduled() {
    let seen = hashed(&[(0, 0, 40, 1), (0, 1_000, 40, 1), (90_000, 2_000, 40, 1)], config());
    let first_scheduled = |index: usize| seen.requests[index].first_scheduled.unwrap().as_ns();
    assert_eq!(first_scheduled(0), 2_000);
    // Hashed at 4,000; the step of the first has ended at 2,000 + 1,400.
    assert_eq!(first_scheduled(1), 4_000);
    assert_eq!(first_scheduled(2), 92_000);
    assert_eq!(seen.requests[1].arrival, SimTime(0));
}

/// Hashing runs beside the step: a request that comes while a step runs is there when it ends.
#[test]
fn hashing_a_prompt_delays_no_step_that_runs() {
    let seen = hashed(&[(0, 0, 15, 3), (1_200, 1_000, 17, 1)], config());
    // No full block, so nothing to hash: 1,150, then 1,010 for a token. The second is hashed at 2,200.
    assert_eq!(seen.steps[1].scheduled_at, SimTime(1_150 + 1_500));
    assert_eq!(seen.steps[1].num_scheduled_requests, 2);
}

/// The first output fills a block of 16: the next step is planned 1,500 ns later.
#[test]
fn blocks_that_outputs_fill_are_hashed_between_steps() {
    let seen = hashed(&[(0, 0, 15, 3)], config());
    assert_eq!(seen.requests[0].first_token, Some(SimTime(1_150)));
    assert_eq!(seen.requests[0].finished, SimTime(1_150 + 1_500 + 2 * 1_010));
    // Asynchronous scheduling hides it behind the step that runs.
    let seen = hashed(&[(0, 0, 15, 3)], EngineConfig { async_scheduling: true, ..config() });
    assert_eq!(seen.steps[1].started_at, SimTime(1_150));
}

#[test]
fn without_prefix_caching_nothing_is_hashed() {
    let seen = run(Listed::boxed(&[(0, 0, 40, 1)]), replica(config(), None, None), Vec::new());
    assert_eq!(seen.requests[0].first_scheduled, Some(SimTime(0)));
}

/// Steps of different requests are in the two stages at the same time; those of one request are not.
#[test]
fn a_pipeline_overlaps_steps_of_different_requests() {
    let requests = [(0, 0, 40, 3), (0, 1_000, 40, 3)];
    for async_scheduling in [false, true] {
        // A prompt to a step.
        let config = EngineConfig {
            pipeline_parallel_size: 2,
            max_num_batched_tokens: 40,
            async_scheduling,
            ..config()
        };
        let seen = run(Listed::boxed(&requests), replica(config, None, None), Vec::new());
        let steps: Vec<_> = seen.steps.iter().filter(|step| step.num_scheduled_requests > 0).collect();
        // 1,400 ns over two stages: the second enters the first stage as the first leaves it.
        assert_eq!((steps[0].started_at, steps[0].finished_at), (SimTime(0), SimTime(1_400)));
        assert_eq!((steps[1].started_at, steps[1].finished_at), (SimTime(700), SimTime(2_100)));
        // The first request's next token needs the one before.
        assert_eq!(steps[2].num_scheduled_requests, 1);
        assert_eq!((steps[2].started_at, steps[2].finished_at), (SimTime(1_400), SimTime(2_605)));
        let tokens: Vec<_> = seen.requests.iter().map(|request| request.num_output_tokens).collect();
        assert_eq!(tokens, [3, 3]);
    }
}
