//! Whole plans on servers whose limits can be worked out by hand.

use std::fs;
use std::path::Path;

use crate::scenario::{Scenario, Source};
use crate::simulation::router::RouterPolicy;

use super::fleet::FleetSize;
use super::terminal_text;
use super::{Binding, Outcome, Overrides, PlanResult, Planner, Progress, RunOptions};

pub(super) struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _runs: usize, _candidates: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn run(&mut self) {}
    fn candidate(&mut self) {}
}

pub(super) fn run_in(folder: &Path, plan: &str, threads: usize) -> PlanResult {
    let path = folder.join("plan.yaml");
    fs::write(&path, plan).unwrap();
    let planner = Planner::load(&path, &Overrides::default()).unwrap();
    let options = RunOptions { folder: folder.join("out"), restart: false, threads };
    planner.run(&options, &mut Silent).unwrap()
}

pub(super) fn run(plan: &str) -> PlanResult {
    run_in(tempfile::tempdir().unwrap().path(), plan, 2)
}

/// One request at a time, each of 4 steps of 50 ms: one prefill and three decodes. At fixed gaps nobody
/// waits up to 5 requests a second; at a rate beyond request n waits n times `0.2 s - 1 / rate`.
pub(super) const ONE_AT_A_TIME: &str = "
name: hand
scenario:
  name: hand
  model: Llama-3.1-8B
  gpu: H100
  engine: {max_model_len: 4096, max_num_seqs: 1, async_scheduling: false, enable_prefix_caching: false}
  cost: {constant: {step_ns: 50000000}}
  workload:
    random: {requests_per_s: 20, arrival_process: fixed, duration_s: 40, input_len: 100, output_len: 4}
targets: [{metric: ttft, percentile: 90, at_most_ms: 100}]
prices_per_hour: {gpu: {H100-SXM: 2}}
precision: 0.02
headroom: 0.2
lost_replicas: 1
";

/// Times the scenario's 20 requests a second. Requests come for 40 s and the last 80 % of them count, so
/// that 90 % wait no longer than request `0.92 * 40 s * rate` does: the 50 ms that are left of 100 ms.
const LIMIT: f64 = (1.0 + 0.05 / (0.92 * 40.0)) / 0.2 / 20.0;

/// Steps of 10 ms and one request at a time: a prompt takes one step of a replica that prefills, an answer eleven
/// of one that decodes, the first of which computes the prompt's last token.
const ROLES: &str = "
name: roles
scenario:
  name: roles
  model: Llama-3.1-8B
  gpu: H100
  engine: {max_model_len: 4096, max_num_seqs: 1, async_scheduling: false, enable_prefix_caching: false}
  cost: {constant: {step_ns: 10000000}}
  cluster:
    pools:
      - {name: p, replicas: 2, role: prefill, gpu: H200}
      - {name: d, replicas: 2, role: decode}
    kv_link: {gb_per_s: 1000}
  workload:
    random: {requests_per_s: 20, arrival_process: fixed, duration_s: 40, input_len: 100, output_len: 11}
targets: [{metric: e2e, percentile: 90, at_most_ms: 600}]
prices_per_hour: {gpu: {H100-SXM: 2, H200: 3}}
precision: 0.05
headroom: 0.2
lost_replicas: 1
";

#[test]
fn pools_with_roles_have_as_few_replicas_as_each_takes() {
    let result = run(ROLES);
    let capacity = result.candidates[0].capacity().unwrap();
    let counts = capacity.fleet.counts;
    // Of 20 requests a second a replica that prefills takes 100, one that decodes 9; of 24 as well.
    assert_eq!(
        (counts.at_least, counts.with_headroom),
        (FleetSize::of_roles(1, 3), FleetSize::of_roles(1, 3))
    );
    assert_eq!((counts.with_losses, counts.size()), (FleetSize::of_roles(2, 4), FleetSize::of_roles(2, 4)));
    assert_eq!((capacity.fleet.gpus, capacity.fleet.cost_per_hour), (6, 2.0 * 3.0 + 4.0 * 2.0));
    assert_eq!(capacity.binding, Binding::MaxNumSeqs);
    assert!(
        capacity.binding_because.starts_with("of the replicas that decode"),
        "{}",
        capacity.binding_because
    );
    assert_eq!(capacity.command.lines().count(), 2, "{}", capacity.command);
    let text = terminal_text(&result);
    assert!(text.contains("recommended  2P+4D x candidate 0: 14.00 per hour"), "{text}");
    // The line is a cluster of a scenario.
    let line = text.lines().find(|line| line.starts_with("cluster:")).unwrap();
    let text = format!(
        "name: x\nmodel: Llama-3.1-8B\ngpu: H100\nworkload: {{random: {{requests_per_s: 1, num_requests: 1}}}}\n{line}"
    );
    let fleet = Scenario::load(Source { text, ..Source::default() }).unwrap();
    assert_eq!(fleet.pools.iter().map(|pool| pool.num_replicas).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(fleet.pools[0].gpu.name, "H200");
}

#[test]
fn too_few_requests_are_no_missed_target() {
    // At 5 requests a second some 130 count in eight runs, all in time; a p99 takes 299.
    let few =
        ONE_AT_A_TIME.replace("duration_s: 40", "duration_s: 4").replace("percentile: 90", "percentile: 99");
    let result = run(&few);
    let text = terminal_text(&result);
    assert!(text.contains("was not shown to meet any load") && text.contains("cannot be told"), "{text}");
    assert!(!text.contains("meets no load"), "{text}");
}

#[test]
fn the_highest_load_is_the_one_worked_out_by_hand() {
    let result = run(ONE_AT_A_TIME);
    let capacity = result.candidates[0].capacity().unwrap();
    let (load, too_much) = (capacity.highest.load, capacity.too_much.as_ref().unwrap().load);
    // A whole number of requests makes the limit a little uncertain.
    assert!(
        load < LIMIT * 1.0005 && LIMIT * 0.9995 < too_much && too_much / load <= 1.02,
        "{load} {too_much}"
    );
    assert_eq!(capacity.binding, Binding::MaxNumSeqs, "{}", capacity.binding_because);
    // As fleets exactly: 20 and 24 requests a second at 5.007 for each replica, and one that may be lost.
    let fleet = &capacity.fleet;
    let counts = fleet.counts;
    assert_eq!(
        (counts.at_least.replicas, counts.with_headroom.replicas, counts.with_losses.replicas),
        (4, 5, 5)
    );
    assert_eq!(fleet.cost_per_hour, 2.0 * f64::from(fleet.replicas));
    // 20 requests a second of 100 and 4 tokens.
    let tokens_per_hour = 20.0 * 4.0 * 3600.0;
    let expected = fleet.cost_per_hour / tokens_per_hour * 1e6;
    assert!((fleet.cost_per_million_output_tokens / expected - 1.0).abs() < 0.02, "{fleet:?}");
    assert!((fleet.cost_per_million_input_tokens * 25.0 / expected - 1.0).abs() < 0.02, "{fleet:?}");
    // Behind a round robin each replica sees fixed gaps again.
    assert!(capacity.verified[0].is_enough);
    assert_eq!(capacity.at_load.measured.ttft_p90_ms, 50.0);
    assert_eq!(capacity.router().map(|it| it.policy), Some(RouterPolicy::RoundRobin));
}

#[test]
fn what_no_load_can_meet_is_told() {
    let result = run(&ONE_AT_A_TIME.replace("at_most_ms: 100", "at_most_ms: 40"));
    let Outcome::MeetsNoLoad(lowest) = &result.candidates[0].outcome else { panic!("{result:?}") };
    assert_eq!(lowest.measured.values_ms, [Some(50.0)]);
    assert!(result.recommendation.is_none());
}

#[test]
fn a_queue_that_grows_is_overload_even_where_no_target_is_of_waiting() {
    let plan = ONE_AT_A_TIME.replace(
        "metric: ttft, percentile: 90, at_most_ms: 100",
        "metric: tpot, percentile: 90, at_most_ms: 60",
    );
    let result = run(&plan);
    let capacity = result.candidates[0].capacity().unwrap();
    assert!(capacity.too_much.as_ref().unwrap().measured.overloaded);
    // The rule takes a queue that grows by a tenth of what comes.
    assert!((0.25..0.25 * 1.25).contains(&capacity.highest.load), "{}", capacity.highest.load);
}

#[test]
fn goodput_takes_all_limits_at_once() {
    let plan = ONE_AT_A_TIME.replace(
        "targets: [{metric: ttft, percentile: 90, at_most_ms: 100}]",
        "goodput: [{share: 0.9, ttft_ms: 100, tpot_ms: 60, e2e_ms: 250}]",
    );
    let result = run(&plan);
    assert!(result.candidates[0].capacity().unwrap().highest.load < LIMIT * 1.0005);
    let too_strict = plan.replace("e2e_ms: 250", "e2e_ms: 150");
    assert!(matches!(run(&too_strict).candidates[0].outcome, Outcome::MeetsNoLoad(_)));
}

#[test]
fn threads_and_kills_cannot_be_seen() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let plan = ONE_AT_A_TIME
        .replace("fixed", "poisson")
        .replace("duration_s: 40", "duration_s: 60")
        .replace("at_most_ms: 100", "at_most_ms: 400")
        + "grid: {engine.max_num_seqs: [1, 2]}\n";
    let one = run_in(folders[0].path(), &plan, 1);
    run_in(folders[1].path(), &plan, 3);
    let files = |folder: &Path| {
        ["plan.json", "candidates.csv", "plan.svg", "report.html"]
            .map(|name| fs::read(folder.join("out").join(name)).unwrap())
    };
    assert!(files(folders[0].path()) == files(folders[1].path()));
    // Killed in the middle: some lines of the journal, the last of them torn.
    let journal = folders[1].path().join("out/journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, &text[..text.len() / 2]).unwrap();
    let kept = text[..text.len() / 2].matches('\n').count();
    assert!(kept > 3);
    run_in(folders[1].path(), &plan, 2);
    assert!(files(folders[0].path()) == files(folders[1].path()));
    let again = fs::read_to_string(&journal).unwrap();
    assert!(again.starts_with(text.lines().take(kept).collect::<Vec<_>>().join("\n").as_str()));
    assert!(
        one.candidates[1].capacity().unwrap().highest.load
            > one.candidates[0].capacity().unwrap().highest.load
    );
}

#[test]
fn mistakes_are_named_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.yaml");
    let error = |plan: &str| {
        fs::write(&path, plan).unwrap();
        Planner::load(&path, &Overrides::default()).err().unwrap().to_string()
    };
    let price = error(&ONE_AT_A_TIME.replace("{gpu: {H100-SXM: 2}}", "{gpu: {L40S: 1}}"));
    assert!(price.contains("plan.yaml:12:") && price.contains("H100-SXM has no price"), "{price}");
    let nothing =
        error(&ONE_AT_A_TIME.replace("targets: [{metric: ttft, percentile: 90, at_most_ms: 100}]", ""));
    assert!(nothing.contains("the plan promises nothing"), "{nothing}");
    let tenant = error(&ONE_AT_A_TIME.replace("at_most_ms: 100", "at_most_ms: 100, tenant: shop"));
    assert!(tenant.contains("there is no tenant `shop`"), "{tenant}");
    let batch = error(&ONE_AT_A_TIME.replace(
        "requests_per_s: 20, arrival_process: fixed, duration_s: 40",
        "arrival_process: {batch: {at_s: 0}}, num_requests: 9",
    ));
    assert!(batch.contains("`arrival_process` is a batch"), "{batch}");
    let share = error(&ONE_AT_A_TIME.replace("percentile: 90", "percentile: 100"));
    assert!(share.contains("plan.yaml:11:") && share.contains("below 100"), "{share}");
}
