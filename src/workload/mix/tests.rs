use super::*;
use crate::workload::TraceFile;
use crate::workload::testing::{by_session, infinite_cache_hits, run};
use crate::workload::trace::TraceInput;

fn config(yaml: &str) -> MixConfig {
    serde_yaml::from_str(yaml).unwrap()
}

fn build(config: &MixConfig, trace: &'static str) -> Mix {
    let mut fields = Vec::new();
    let mix = Mix::new::<Box<dyn std::error::Error>>(config, 7, &mut |field, _| {
        fields.push(field.to_owned());
        let input = TraceInput::new(trace.as_bytes())?;
        Ok(TraceFile { path: "t.jsonl".into(), input, tokenizer: None })
    });
    assert!(fields.iter().all(|field| field.starts_with(".parts[")), "{fields:?}");
    mix.unwrap()
}

fn requests(config: &MixConfig) -> Vec<Arrival> {
    run(&mut build(config, ""), |_| 1)
}

/// The requests of one tenant.
fn of(arrivals: &[Arrival], tenant: u32) -> Vec<&Arrival> {
    arrivals.iter().filter(|arrival| arrival.request.tenant == tenant).collect()
}

const RANDOM: &str =
    "random: {requests_per_s: 5, num_requests: 40, prefix_len: 100, input_len: 50, output_len: 5}";
const CHAT: &str = "chat: {sessions_per_s: 2, num_sessions: 10, tenants: [{name: shop, system_prompt_tokens: 30}, \
                    {name: law, system_prompt_tokens: 60, priority: 3, lora: b}], turns: 3, message_tokens: 7, \
                    answer_tokens: 9, think_time_s: 1, max_context_tokens: 500}";

#[test]
fn parts_are_kept_apart() {
    let config = config(&format!(
        "parts: [{{name: a, workload: {{{RANDOM}}}}}, {{name: b, workload: {{{RANDOM}}}}}, \
         {{name: c, workload: {{{CHAT}}}}}]"
    ));
    let mix = build(&config, "");
    assert_eq!(mix.tenants(), ["a", "b", "c/shop", "c/law"]);
    let arrivals = requests(&config);
    assert_eq!(arrivals.len(), 40 + 40 + 30);
    // Two equal parts share no token, and draw different times.
    assert_eq!(infinite_cache_hits(&arrivals[..0]), 0);
    let only = |tenants: &[u32]| -> Vec<Arrival> {
        arrivals.iter().filter(|a| tenants.contains(&a.request.tenant)).cloned().collect()
    };
    assert_eq!(infinite_cache_hits(&only(&[0, 1])), 2 * 39 * 100);
    let times = |tenant| of(&arrivals, tenant).iter().map(|a| a.at).collect::<Vec<_>>();
    assert_ne!(times(0), times(1));
    // Sessions of different parts have different numbers.
    for requests in by_session(&arrivals).values() {
        assert!(requests.iter().all(|a| a.request.tenant == requests[0].request.tenant));
    }
    assert_eq!(by_session(&arrivals).len(), 40 + 40 + 10);
}

#[test]
fn a_part_does_not_depend_on_the_others() {
    let alone = config(&format!("parts: [{{name: b, workload: {{{RANDOM}}}}}]"));
    let among =
        config(&format!("parts: [{{name: c, workload: {{{CHAT}}}}}, {{name: b, workload: {{{RANDOM}}}}}]"));
    let said = |arrivals: &[Arrival], tenant| -> Vec<_> {
        of(arrivals, tenant).iter().map(|a| (a.at, a.request.prompt.len(), a.request.output.len())).collect()
    };
    assert_eq!(said(&requests(&alone), 0), said(&requests(&among), 2));
}

#[test]
fn answers_reach_the_part_that_waits_for_them() {
    let config =
        config(&format!("parts: [{{name: b, workload: {{{RANDOM}}}}}, {{name: c, workload: {{{CHAT}}}}}]"));
    let arrivals = run(&mut build(&config, ""), |_| 500_000_000);
    let sessions = by_session(&arrivals);
    let chats: Vec<_> = sessions.values().filter(|turns| turns[0].request.tenant > 0).collect();
    assert_eq!(chats.len(), 10);
    for turns in chats {
        let first = turns[0].request.prompt.len();
        let lengths: Vec<u32> = turns.iter().map(|a| a.request.prompt.len() - first).collect();
        assert_eq!(lengths, [0, 16, 32]);
        assert!(turns.windows(2).all(|pair| (pair[1].at - pair[0].at).as_secs_f64() == 1.5));
        let mut before = turns[0].request.prompt.clone();
        before.extend(&turns[0].request.output);
        let mut start = turns[1].request.prompt.clone();
        start.truncate(before.len());
        assert_eq!(start, before);
    }
}

#[test]
fn a_rate_is_shared_and_a_duration_is_given_to_all() {
    let random = "random: {input_len: 1, output_len: 1}";
    let config = config(&format!(
        "{{rate_per_s: 20, duration_s: 1000, parts: [{{name: a, share: 3, workload: {{{random}}}}}, \
         {{name: b, share: 1, workload: {{{random}}}}}]}}"
    ));
    let arrivals = requests(&config);
    // Poisson counts of mean 15,000 and 5,000: 5 standard deviations.
    for (tenant, mean) in [(0, 15_000.0_f64), (1, 5_000.0)] {
        let count = of(&arrivals, tenant).len() as f64;
        assert!((count - mean).abs() < 5.0 * mean.sqrt(), "{tenant}: {count}");
    }
    assert!(arrivals.iter().all(|a| a.at.as_secs_f64() < 1000.0));
}

#[test]
fn adapters_are_shared_by_name_and_a_part_can_have_one_priority() {
    let other = CHAT.replace("lora: b", "lora: z").replace("{name: shop, ", "{name: shop, lora: b, ");
    let config = config(&format!(
        "parts: [{{name: c, workload: {{{CHAT}}}}}, {{name: d, priority: -1, workload: {{{other}}}}}]"
    ));
    let arrivals = requests(&config);
    let loras: std::collections::BTreeSet<(u32, String, u64)> = arrivals
        .iter()
        .filter_map(|a| a.request.extras.lora.as_ref().map(|lora| (a.request.tenant, lora)))
        .map(|(tenant, lora)| (tenant, lora.name.clone(), lora.id))
        .collect();
    let ids: Vec<_> = loras.iter().map(|(tenant, name, _)| (*tenant, name.as_str())).collect();
    assert_eq!(ids, [(1, "b"), (2, "b"), (3, "z")]);
    let id = |index: usize| loras.iter().nth(index).unwrap().2;
    assert!(id(0) == id(1) && id(0) != id(2), "{loras:?}");
    let priorities = |tenant| of(&arrivals, tenant)[0].request.priority;
    assert_eq!([0, 1, 2, 3].map(priorities), [0, 3, -1, -1]);
}

const TRACE: &str = "\
{\"timestamp\": 100, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 1]}
{\"timestamp\": 900, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [0, 1]}
{\"timestamp\": 2000, \"input_length\": 1, \"output_length\": 5, \"hash_ids\": [0]}
";

#[test]
fn a_trace_is_a_part_that_keeps_its_own_hits() {
    let config = config(&format!(
        "{{duration_s: 1, parts: [{{name: b, workload: {{{RANDOM}}}}}, \
         {{name: t, workload: {{trace: {{path: t.jsonl}}}}}}]}}"
    ));
    let arrivals = run(&mut build(&config, TRACE), |_| 1);
    let traced: Vec<Arrival> = of(&arrivals, 1).into_iter().cloned().collect();
    assert_eq!(traced.iter().map(|a| a.at.as_ms_f64()).collect::<Vec<_>>(), [100.0, 900.0]);
    assert_eq!(infinite_cache_hits(&traced), 600);
    let random: Vec<Arrival> = of(&arrivals, 0).into_iter().cloned().collect();
    assert_eq!(infinite_cache_hits(&arrivals), 600 + infinite_cache_hits(&random));
}

#[test]
fn an_error_in_a_trace_names_its_file() {
    let config = config("parts: [{name: t, workload: {trace: {path: t.jsonl, format: mooncake}}}]");
    let error = build(&config, "{}").peek().unwrap_err().to_string();
    assert!(error.starts_with("t.jsonl: line 1"), "{error}");
    // Ids too large for the part's range.
    let large =
        "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [281474976710656]}";
    let error = build(&config, large).next().unwrap_err().to_string();
    assert!(error.starts_with("part `t` of the mix uses more token ids"), "{error}");
}

#[test]
fn mistakes_are_named_with_their_path() {
    let message = |yaml: &str| config(yaml).validate().unwrap_err().to_string();
    assert_eq!(message("parts: []"), "`parts`: found 0 parts, expected 1 to 32");
    assert_eq!(
        message(&format!("parts: [{{name: a, share: 1, workload: {{{RANDOM}}}}}]")),
        "`parts[0].share`: found 1, expected `rate_per_s` of the mix to have a share of"
    );
    assert_eq!(
        message(&format!("{{rate_per_s: 1, parts: [{{name: a, share: 1, workload: {{{RANDOM}}}}}]}}")),
        "`parts[0].share`: found both a share and other times, expected a rate or times of the part's own, \
         or a share"
    );
    assert_eq!(
        message("parts: [{name: a, workload: {random: {num_requests: 3}}}]"),
        "`parts[0].workload.random.requests_per_s`: found nothing, expected a number above 0"
    );
    assert_eq!(
        message("parts: [{name: a, workload: {mix: {parts: []}}}]"),
        "`parts[0].workload`: found a mix, expected its parts as parts of the outer mix"
    );
    let twice = format!("{{name: a, workload: {{{RANDOM}}}}}");
    assert_eq!(
        message(&format!("parts: [{twice}, {twice}]")),
        "`parts[1].name`: found `a` again, expected a name of its own"
    );
}
