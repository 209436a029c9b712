use proptest::prelude::*;

use super::*;
use crate::workload::Arrival;
use crate::workload::testing::{by_session, generated, infinite_cache_hits, run, workload};

/// Lengths that can be added up by hand.
fn exact(more: &str) -> AgentsConfig {
    let yaml = format!(
        "{{sessions_per_s: 1, arrival_process: fixed, num_sessions: 1, system_prompt_tokens: 100, \
         tool_definitions_tokens: 200, task_tokens: 50, output_tokens: 10, tool_result_tokens: 20, \
         tool_latency_s: 1.5, {more}}}"
    );
    let config: AgentsConfig = serde_yaml::from_str(&yaml).unwrap();
    config.validate().unwrap();
    config
}

const SECOND: u64 = 1_000_000_000;

/// Time in seconds, turn, tenant, and tokens of prompt and answer of each request, each answered
/// after so many seconds.
fn requests(config: &AgentsConfig, answer_s: impl Fn(u64) -> u64) -> Vec<(f64, u32, u32, u32, u32)> {
    let arrivals = run(&mut *workload(config, 1).unwrap(), |index| answer_s(index) * SECOND);
    let of = |Arrival { at, request }: &Arrival| {
        (at.as_secs_f64(), request.turn, request.tenant, request.prompt.len(), request.output.len())
    };
    arrivals.iter().map(of).collect()
}

#[test]
fn a_call_holds_the_context_so_far_and_comes_when_the_tool_is_done() {
    let config = exact("turns: 3, max_context_tokens: 1000");
    let expected = [(0.0, 0, 0, 350, 10), (2.5, 1, 0, 380, 10), (5.0, 2, 0, 410, 10)];
    assert_eq!(requests(&config, |_| 1), expected);
    // The next call hits the prompt and the answer before it; another agent hits what all begin with.
    let two = AgentsConfig { num_sessions: Some(2), ..config };
    assert_eq!(infinite_cache_hits(&generated(&two, 1)), 300 + 2 * (360 + 390));
}

#[test]
fn an_agent_ends_when_its_context_is_full() {
    let calls = |room| requests(&exact(&format!("turns: 3, max_context_tokens: {room}")), |_| 1).len();
    assert_eq!((calls(420), calls(419), calls(390), calls(389)), (3, 2, 2, 1));
}

#[test]
fn a_full_context_is_compacted_to_a_summary() {
    let config = exact("turns: 4, max_context_tokens: 400, compaction: {summary_tokens: 15}");
    // Room for 385: at 390 the context of 360 is summed up, and what was to be said follows.
    let expected = [
        (0.0, 0, 0, 350, 10),
        (2.5, 1, 0, 360, 15),
        (3.5, 2, 0, 300 + 15 + 20, 10),
        (6.0, 3, 0, 365, 10),
        (8.5, 4, 0, 375, 15),
        (9.5, 5, 0, 335, 10),
    ];
    assert_eq!(requests(&config, |_| 1), expected);
    // The summary is read where it was written, its context only up to what all begin with.
    let arrivals = generated(&config, 1);
    assert_eq!(arrivals[2].request.prompt.runs()[2], arrivals[1].request.output.runs()[0]);
    assert_eq!(infinite_cache_hits(&arrivals[..3]), 360 + 300);
}

#[test]
fn a_context_that_no_summary_can_make_room_in_ends() {
    let config = exact("turns: 9, max_context_tokens: 375, compaction: {summary_tokens: 15}");
    let large = AgentsConfig { tool_result_tokens: crate::workload::Distribution::Fixed(40.0), ..config };
    // 300 + 15 + 40 + 10 is more than 360.
    assert_eq!(requests(&large, |_| 1), [(0.0, 0, 0, 350, 10), (2.5, 1, 0, 360, 15)]);
}

#[test]
fn branches_share_the_context_and_the_agent_waits_for_all() {
    let subagents = "subagents: {share: 1, branches: 3, task_tokens: 5, turns: 2}";
    let config = exact(&format!("turns: 2, max_context_tokens: 1000, {subagents}"));
    // The requests with index 1 to 3 are the branches' first, 4 to 6 their second, in the order in
    // which the first were answered: after 3, 2 and 1 seconds.
    let answer_s = |index| [1, 3, 2, 1, 1, 1, 4, 1][index as usize];
    let expected = [
        (0.0, 0, 0, 350, 10),
        (1.0, 1, 1, 365, 10),
        (1.0, 1, 1, 365, 10),
        (1.0, 1, 1, 365, 10),
        (3.5, 2, 1, 395, 10),
        (4.5, 2, 1, 395, 10),
        (5.5, 2, 1, 395, 10),
        // The last branch ends at 9.5; three answers of 10 tokens follow the context of 360.
        (9.5, 1, 0, 390, 10),
    ];
    assert_eq!(requests(&config, answer_s), expected);

    let arrivals = run(&mut *workload(&config, 1).unwrap(), |index| answer_s(index) * SECOND);
    // Branches hit the context of 360 that they share, then their own 375; the agent its 360.
    assert_eq!(infinite_cache_hits(&arrivals), 3 * 360 + 3 * 375 + 360);
    // The answers stand in the order of the branches, whichever ended first: the third branch's is
    // index 4, the second's 5, the first's 6.
    let quoted: Vec<_> = arrivals[7].request.prompt.slice(360, 390).collect();
    let answers: Vec<_> = [6, 5, 4].iter().map(|&i| arrivals[i].request.output.runs()[0]).collect();
    assert_eq!(quoted, answers);
}

#[test]
fn branches_can_start_from_the_tools_alone() {
    let subagents = "subagents: {share: 1, branches: 2, share_context: false, task_tokens: 5, turns: 1}";
    let config = exact(&format!("turns: 2, max_context_tokens: 1000, {subagents}"));
    let expected = [(0.0, 0, 0, 350, 10), (1.0, 1, 1, 305, 10), (1.0, 1, 1, 305, 10), (2.0, 1, 0, 380, 10)];
    assert_eq!(requests(&config, |_| 1), expected);
}

#[test]
fn a_branch_without_room_ends_with_what_it_has() {
    // A second call of a branch needs 365 + 10 + 20 + 10 tokens.
    let subagents = "subagents: {share: 1, branches: 1, task_tokens: 5, turns: 2}";
    let config = exact(&format!("turns: 2, max_context_tokens: 404, {subagents}"));
    let expected = [(0.0, 0, 0, 350, 10), (1.0, 1, 1, 365, 10), (2.0, 1, 0, 370, 10)];
    assert_eq!(requests(&config, |_| 1), expected);
    // And one whose first does not fit does not start: the agent calls a tool.
    let config = exact(&format!("turns: 2, max_context_tokens: 390, {}", subagents.replace("s: 5", "s: 50")));
    assert_eq!(requests(&config, |_| 1), [(0.0, 0, 0, 350, 10), (2.5, 1, 0, 380, 10)]);
}

#[test]
fn max_concurrency_counts_agents_and_not_their_branches() {
    let subagents = "subagents: {share: 1, branches: 4, task_tokens: 5, turns: 1}";
    let config = AgentsConfig {
        sessions_per_s: None,
        arrival_process: crate::workload::ArrivalProcess::Batch { at_s: 0.0 },
        num_sessions: Some(3),
        max_concurrency: Some(1),
        ..exact(&format!("turns: 2, max_context_tokens: 1000, {subagents}"))
    };
    let arrivals = run(&mut *workload(&config, 1).unwrap(), |_| SECOND);
    let sessions: Vec<u64> = arrivals.iter().map(|a| a.request.session.unwrap()).collect();
    assert_eq!(sessions, [[0; 6], [1; 6], [2; 6]].concat());
    assert_eq!(arrivals[6].at.as_secs_f64(), 3.0);
}

#[test]
fn calls_and_branches_come_as_often_as_their_laws_say() {
    const SESSIONS: u32 = 4_000;
    let subagents = "subagents: {share: 0.25, branches: {uniform: {min: 1, max: 3}}, task_tokens: 5, \
                     turns: {geometric: {mean: 3}}}";
    let config = AgentsConfig {
        num_sessions: Some(SESSIONS.into()),
        ..exact(&format!("turns: {{geometric: {{mean: 8}}}}, max_context_tokens: 100000, {subagents}"))
    };
    let arrivals = generated(&config, 1);
    let calls = |tenant| arrivals.iter().filter(|a| a.request.tenant == tenant).count() as f64;
    let sessions = f64::from(SESSIONS);
    // A geometric of mean 8 has the variance 8 * 7.
    assert!((calls(0) / sessions - 8.0).abs() < 5.0 * (56.0 / sessions).sqrt(), "{}", calls(0) / sessions);
    // Of the 7 answers that are not the last, a quarter starts 2 branches of 3 calls on average. The
    // calls of one answer have the mean 1.5 and, with the variances 2/3 of branches and 6 of calls,
    // the second moment 0.25 * (2 * 6 + (4 + 2/3) * 9) = 13.5, so the variance 11.25. A random sum of
    // 7 such: 7 * 11.25 + 56 * 1.5^2.
    let error = ((7.0 * 11.25 + 56.0 * 2.25) / sessions).sqrt();
    assert!((calls(1) / sessions - 7.0 * 1.5).abs() < 5.0 * error, "{}", calls(1) / sessions);
}

#[test]
fn mistakes_are_named_with_their_path() {
    let config = AgentsConfig { max_context_tokens: 359, ..exact("turns: 1, max_context_tokens: 360") };
    assert_eq!(
        config.validate().unwrap_err().to_string(),
        "`max_context_tokens`: found 359, expected at least 360, for what prompts begin with, a task and an \
         answer"
    );
    let fixed = crate::workload::Distribution::Fixed;
    let config = AgentsConfig {
        compaction: Some(CompactionConfig { summary_tokens: fixed(360.0) }),
        ..exact("turns: 1, max_context_tokens: 360")
    };
    assert_eq!(
        config.validate().unwrap_err().to_string(),
        "`compaction.summary_tokens`: found up to 360, expected a `max` below `max_context_tokens`, 360"
    );
    let config = AgentsConfig {
        subagents: Some(SubagentsConfig {
            share: 0.5,
            branches: fixed(1001.0),
            share_context: true,
            task_tokens: fixed(1.0),
            turns: fixed(1.0),
        }),
        ..exact("turns: 1, max_context_tokens: 360")
    };
    assert_eq!(
        config.validate().unwrap_err().to_string(),
        "`subagents.branches`: found up to 1001, expected a `max` of at most 1000"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_said_depends_on_the_seed_alone(seed: u64, slowness in 1u64..1_000) {
        let config = AgentsConfig {
            num_sessions: Some(20),
            task_tokens: serde_yaml::from_str("{lognormal: {median: 60, sigma: 1}}").unwrap(),
            turns: serde_yaml::from_str("{geometric: {mean: 8}}").unwrap(),
            ..exact(
                "turns: 1, max_context_tokens: 700, compaction: {summary_tokens: {uniform: {min: 5, max: 40}}}, \
                 subagents: {share: 0.3, branches: {uniform: {min: 1, max: 4}}, task_tokens: 9, turns: {geometric: {mean: 3}}}",
            )
        };
        let said = |answer_ns: &dyn Fn(u64) -> u64| {
            let mut said: Vec<_> = run(&mut *workload(&config, seed).unwrap(), answer_ns)
                .into_iter()
                .map(|Arrival { request, .. }| (request.session, request.turn, request.tenant,
                    request.prompt.runs().iter().map(|run| (run.start, run.len)).collect::<Vec<_>>(),
                    request.output.get(0), request.output.len()))
                .collect();
            said.sort();
            said
        };
        let quick = said(&|_| 1);
        prop_assert_eq!(&quick, &said(&|_| 1));
        prop_assert_eq!(&quick, &said(&|index| (index * 7919 % 13) * slowness * 10_000_000));
        // Nothing is longer than it may be, and no two answers are the same text.
        let mut answers: Vec<(u64, u32)> = quick.iter().map(|said| (said.4, said.5)).collect();
        answers.sort_unstable();
        prop_assert!(answers.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1) <= pair[1].0));
        for (.., runs, _, output) in &quick {
            let prompt: u32 = runs.iter().map(|run| run.1).sum();
            prop_assert!(prompt + output <= 700);
        }
    }

    #[test]
    fn sessions_share_only_what_all_begin_with(seed: u64) {
        let config = AgentsConfig { num_sessions: Some(10), ..exact("turns: 4, max_context_tokens: 1000") };
        let arrivals = generated(&config, seed);
        let firsts: Vec<u64> =
            by_session(&arrivals).values().map(|calls| calls[3].request.prompt.get(300)).collect();
        prop_assert!(firsts.windows(2).all(|pair| pair[0] + u64::from(u32::MAX) == pair[1]));
    }
}
