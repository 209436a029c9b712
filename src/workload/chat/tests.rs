use proptest::prelude::*;

use super::*;
use crate::units::SimTime;
use crate::workload::testing::{assert_one_at_a_time, by_session, generated, run, workload};
use crate::workload::{Arrival, ArrivalProcess, Distribution, WaitsFor, Workload};

fn chat(config: &ChatConfig, seed: u64) -> Box<dyn Workload> {
    workload(config, seed).unwrap()
}

fn lognormal(median: f64) -> Distribution {
    Distribution::Lognormal { median: Some(median), mean: None, sigma: 0.8, min: None, max: None }
}

fn tenant(name: &str, weight: f64, system_prompt_tokens: u32) -> TenantConfig {
    TenantConfig {
        name: name.into(),
        weight,
        system_prompt_tokens,
        priority: 0,
        prompt_logprobs: false,
        cache_salt: None,
        lora: None,
        shares_system_prompt_with: None,
        few_shot: None,
        images: None,
        prompt_embeds: false,
    }
}

fn busy() -> ChatConfig {
    ChatConfig {
        sessions_per_s: Some(2.0),
        arrival_process: ArrivalProcess::Poisson,
        duration_s: None,
        num_sessions: Some(60),
        max_concurrency: None,
        tenants: vec![tenant("shop", 3.0, 700), tenant("law", 1.0, 1500)],
        turns: Distribution::Geometric { mean: 5.0, min: None, max: Some(30.0) },
        message_tokens: lognormal(80.0),
        answer_tokens: lognormal(200.0),
        think_time_s: Distribution::Exponential { mean: 6.0, min: Some(0.5), max: None },
        max_context_tokens: 4096,
        abandonment: None,
    }
}

/// One session at time 0 whose lengths can be added up by hand.
fn exact() -> ChatConfig {
    ChatConfig {
        sessions_per_s: Some(1.0),
        arrival_process: ArrivalProcess::Fixed,
        num_sessions: Some(1),
        tenants: vec![tenant("only", 1.0, 100)],
        turns: Distribution::Fixed(3.0),
        message_tokens: Distribution::Fixed(10.0),
        answer_tokens: Distribution::Fixed(20.0),
        think_time_s: Distribution::Fixed(2.5),
        max_context_tokens: 1000,
        ..busy()
    }
}

#[test]
fn a_turn_holds_the_conversation_so_far_and_comes_a_think_time_after_the_answer() {
    let arrivals = run(&mut *chat(&exact(), 1), |_| 1_000_000_000);
    let turns: Vec<_> = arrivals
        .iter()
        .map(|Arrival { at, request }| {
            (
                at.as_ms_f64(),
                request.turn,
                request.prompt.len(),
                request.output.len(),
                request.prompt.runs().len(),
            )
        })
        .collect();
    assert_eq!(turns, [(0.0, 0, 110, 20, 2), (3500.0, 1, 140, 20, 2), (7000.0, 2, 170, 20, 2)]);
}

#[test]
fn a_session_ends_when_the_next_turn_would_exceed_the_context() {
    let turns = |max_context_tokens| generated(&ChatConfig { max_context_tokens, ..exact() }, 1).len();
    assert_eq!((turns(190), turns(189), turns(160), turns(159), turns(130)), (3, 2, 2, 1, 1));
}

#[test]
fn the_next_turn_can_come_before_a_known_arrival() {
    let config = ChatConfig { num_sessions: Some(2), sessions_per_s: Some(0.1), ..exact() };
    let mut chat = chat(&config, 1);
    chat.next().unwrap();
    assert_eq!(chat.peek().unwrap(), Some(SimTime::from_ms(10_000)));
    chat.finished(0, SimTime::from_ms(500));
    assert_eq!(chat.peek().unwrap(), Some(SimTime::from_ms(3_000)));
    // What was not asked, or was answered before, changes nothing.
    chat.finished(0, SimTime::from_ms(600));
    chat.finished(9, SimTime::from_ms(600));
    assert_eq!(chat.next().unwrap().unwrap().request.turn, 1);
    assert_eq!(chat.peek().unwrap(), Some(SimTime::from_ms(10_000)));
}

#[test]
fn duration_bounds_the_starts_of_sessions() {
    let config = ChatConfig { num_sessions: None, duration_s: Some(4.0), ..exact() };
    let arrivals = generated(&config, 1);
    let sessions = by_session(&arrivals);
    assert_eq!(sessions.len(), 4);
    assert!(sessions.values().all(|turns| turns.len() == 3));
}

#[test]
fn tenants_get_their_share_and_their_system_prompt() {
    let config = ChatConfig {
        num_sessions: Some(10_000),
        turns: Distribution::Fixed(1.0),
        max_context_tokens: 100_000,
        ..busy()
    };
    let arrivals = generated(&config, 1);
    let shop: Vec<_> = arrivals.iter().filter(|arrival| arrival.request.tenant == 0).collect();
    // 5 standard errors of a share of 0.75 in 10,000 are 0.0217.
    assert!((shop.len() as f64 / 10_000.0 - 0.75).abs() < 0.0217);
    let system_prompt = shop[0].request.prompt.runs()[0];
    assert_eq!(system_prompt.len, 700);
    assert!(shop.iter().all(|arrival| arrival.request.prompt.runs()[0] == system_prompt));
}

#[test]
fn mistakes_are_named_with_their_path() {
    let message = |config: ChatConfig| config.validate().unwrap_err().to_string();
    assert_eq!(
        message(ChatConfig { num_sessions: None, ..exact() }),
        "`duration_s`: found nothing, expected `duration_s` or `num_sessions`, so that the run ends"
    );
    assert_eq!(
        message(ChatConfig { turns: Distribution::Fixed(1.5), ..exact() }),
        "`turns.fixed`: found 1.5, expected a whole number from 1 to 2147483647"
    );
    assert_eq!(
        message(ChatConfig { max_context_tokens: 129, ..exact() }),
        "`tenants[0].system_prompt_tokens`: found 100, expected room for a message and an answer, \
         30 tokens or more, within `max_context_tokens`, 129"
    );
    assert_eq!(
        message(ChatConfig { tenants: vec![tenant("a", 1.0, 0), tenant("a", 1.0, 0)], ..exact() }),
        "`tenants[1].name`: found `a` again, expected a name of its own"
    );
    for config in [
        ChatConfig { sessions_per_s: Some(f64::NAN), ..exact() },
        ChatConfig { sessions_per_s: Some(0.0), ..exact() },
        ChatConfig { duration_s: Some(-1.0), ..exact() },
        ChatConfig { max_context_tokens: 0, ..exact() },
        ChatConfig { tenants: vec![], ..exact() },
        ChatConfig { tenants: vec![tenant("a", 0.0, 0)], ..exact() },
        ChatConfig { think_time_s: Distribution::Fixed(-1.0), ..exact() },
    ] {
        assert!(workload(&config, 1).is_err(), "{config:?}");
    }
}

#[test]
fn yaml_names_every_field_and_refuses_others() {
    let yaml = "
sessions_per_s: 2
num_sessions: 60
tenants:
  - {name: shop, weight: 3, system_prompt_tokens: 700}
  - {name: law, system_prompt_tokens: 1500}
turns: {geometric: {mean: 5, max: 30}}
message_tokens: {lognormal: {median: 80, sigma: 0.8}}
answer_tokens: {lognormal: {median: 200, sigma: 0.8}}
think_time_s: {exponential: {mean: 6, min: 0.5}}
max_context_tokens: 4096
";
    assert_eq!(serde_yaml::from_str::<ChatConfig>(yaml).unwrap(), busy());
    let mistyped = yaml.replace("num_sessions", "number_of_sessions");
    assert!(serde_yaml::from_str::<ChatConfig>(&mistyped).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_prompt_starts_with_the_prompt_and_answer_before_it(seed: u64) {
        let config = busy();
        let arrivals = run(&mut *chat(&config, seed), |_| 1_000_000);
        for turns in by_session(&arrivals).values() {
            for (number, Arrival { request, .. }) in turns.iter().enumerate() {
                prop_assert_eq!(request.turn as usize, number);
                prop_assert!(request.prompt.len() + request.output.len() <= config.max_context_tokens);
            }
            for pair in turns.windows(2) {
                let mut before = pair[0].request.prompt.clone();
                before.extend(&pair[0].request.output);
                let mut start = pair[1].request.prompt.clone();
                start.truncate(before.len());
                prop_assert_eq!(&start, &before);
                prop_assert!(pair[1].request.prompt.len() > before.len());
                prop_assert!(pair[1].at >= pair[0].at + SimTime(1_000_000 + 500_000_000));
            }
        }
    }

    #[test]
    fn what_is_said_depends_on_the_seed_alone(seed: u64, slowness in 1u64..1_000) {
        let said = |answer_ns: &dyn Fn(u64) -> u64| {
            let mut arrivals = run(&mut *chat(&busy(), seed), answer_ns);
            arrivals.sort_by_key(|arrival| (arrival.request.session, arrival.request.turn));
            arrivals
        };
        let (quick, slow) = (said(&|_| 1), said(&|index| (index * 7919 % 13) * slowness * 100_000_000));
        prop_assert_eq!(&quick, &said(&|_| 1));
        prop_assert_eq!(quick.len(), slow.len());
        for (quick, slow) in quick.iter().zip(&slow) {
            prop_assert_eq!(&quick.request.prompt, &slow.request.prompt);
            prop_assert_eq!(&quick.request.output, &slow.request.output);
            prop_assert_eq!(quick.request.tenant, slow.request.tenant);
        }
    }

    #[test]
    fn sessions_share_their_tenants_system_prompt_and_no_other_token(seed: u64) {
        let mut own: Vec<(u64, u64)> = Vec::new();
        let arrivals = generated(&busy(), seed);
        for turns in by_session(&arrivals).values() {
            let last = &turns[turns.len() - 1].request;
            let (system_prompt, rest) = last.prompt.runs().split_first().unwrap();
            prop_assert_eq!(system_prompt.len, [700, 1500][last.tenant as usize]);
            prop_assert_eq!(rest.len(), 1);
            own.push((rest[0].start, rest[0].start + u64::from(rest[0].len + last.output.len())));
        }
        own.sort_unstable();
        prop_assert!(own.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
}

/// What a session does whose every request is aborted when its patience ends.
fn abort_all(config: ChatConfig) -> Vec<Arrival> {
    let mut chat = chat(&config, 1);
    let mut arrivals = Vec::new();
    while let Some(arrival) = chat.next().unwrap() {
        let at = arrival.at + arrival.request.patience.unwrap().lasts;
        chat.aborted(arrival.request.index, at);
        arrivals.push(arrival);
    }
    arrivals
}

#[test]
fn a_user_without_patience_sends_the_message_again_and_then_leaves() {
    let abandonment = |max_retries| {
        let patience_s = Distribution::Fixed(4.0);
        Some(AbandonmentConfig { patience_s, waits_for: WaitsFor::FirstToken, max_retries })
    };
    let config = ChatConfig { num_sessions: Some(2), ..exact() };
    let sent = |max_retries| {
        abort_all(ChatConfig { abandonment: abandonment(max_retries), ..config.clone() })
            .iter()
            .map(|Arrival { at, request }| (at.as_ms_f64(), request.session.unwrap(), request.turn))
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(0), [(0.0, 0, 0), (1000.0, 1, 0)]);
    assert_eq!(sent(1), [(0.0, 0, 0), (1000.0, 1, 0), (4000.0, 0, 0), (5000.0, 1, 0)]);
    // The same message, so its prompt and its answer are the same.
    let again = abort_all(ChatConfig { abandonment: abandonment(1), ..config });
    assert_eq!(again[0].request.prompt, again[2].request.prompt);
    assert_eq!(again[0].request.output, again[2].request.output);
}

#[test]
fn patience_changes_nothing_of_what_is_said() {
    let abandonment =
        AbandonmentConfig { patience_s: lognormal(5.0), waits_for: WaitsFor::LastToken, max_retries: 0 };
    let patient = generated(&busy(), 3);
    let config = ChatConfig { abandonment: Some(abandonment), ..busy() };
    let mut impatient = generated(&config, 3);
    let drawn: std::collections::BTreeSet<_> =
        impatient.iter_mut().map(|arrival| arrival.request.patience.take().unwrap().lasts).collect();
    assert_eq!(drawn.len(), impatient.len());
    assert_eq!(impatient, patient);
}

#[test]
fn images_stand_before_the_text_of_their_message() {
    let mut config = exact();
    config.tenants[0].images = Some(ImagesConfig {
        share_of_messages: 1.0,
        images_per_message: Distribution::Fixed(2.0),
        tokens: Distribution::Fixed(30.0),
        pool: None,
    });
    let arrivals = generated(&config, 1);
    // System prompt 100, two images, message 10; answer 20; two images, message 10; ...
    let offsets = |request: &RequestSpec| {
        request.extras.mm.iter().map(|item| (item.offset_tokens, item.length_tokens)).collect::<Vec<_>>()
    };
    assert_eq!(arrivals.len(), 3);
    assert_eq!(offsets(&arrivals[0].request), [(100, 30), (130, 30)]);
    assert_eq!(offsets(&arrivals[1].request), [(100, 30), (130, 30), (190, 30), (220, 30)]);
    assert_eq!(arrivals[1].request.prompt.len(), 260);
    // Placeholders are the same tokens in all images; the text is that of the session.
    let prompt = &arrivals[0].request.prompt;
    assert_eq!(prompt.get(100), prompt.get(130));
    let plain = generated(&exact(), 1);
    assert!(prompt.ids(160, 170).eq(plain[0].request.prompt.ids(100, 110)));
}

#[test]
fn embeddings_are_a_prompt_of_zeros_whose_rows_tell_texts_apart() {
    let mut config = exact();
    config.tenants[0].prompt_embeds = true;
    let arrivals = generated(&config, 1);
    let plain = generated(&exact(), 1);
    for (Arrival { request, .. }, text) in arrivals.iter().zip(&plain) {
        assert!(request.prompt.ids(0, request.prompt.len()).all(|id| id == 0));
        assert_eq!(request.prompt.len(), text.request.prompt.len());
        assert_eq!(request.extras.prompt_embeds, Some(PromptEmbeds::OfTokens(text.request.prompt.clone())));
    }
}

#[test]
fn sessions_share_few_shot_examples_by_their_popularity() {
    let mut config = ChatConfig { num_sessions: Some(20_000), turns: Distribution::Fixed(1.0), ..exact() };
    config.tenants[0].few_shot = Some(FewShotConfig {
        num_prefixes: 3,
        prefix_tokens: Distribution::Uniform { min: 200.0, max: 300.0 },
        zipf_exponent: 1.0,
        share: 0.5,
    });
    let arrivals = generated(&config, 1);
    let mut lengths: std::collections::BTreeMap<u64, (u32, f64)> = std::collections::BTreeMap::new();
    for Arrival { request, .. } in &arrivals {
        if let [system_prompt, examples, message] = request.prompt.runs() {
            assert_eq!((system_prompt.len, message.len), (100, 10));
            let (length, count) = lengths.entry(examples.start).or_insert((examples.len, 0.0));
            assert_eq!(*length, examples.len);
            *count += 1.0;
        } else {
            assert_eq!(request.prompt.len(), 110);
        }
    }
    // Half of the sessions, in proportion to 1, 1/2 and 1/3.
    assert_eq!(lengths.len(), 3);
    for ((_, count), weight) in lengths.values().zip([6.0, 3.0, 2.0]) {
        let share: f64 = 0.5 * weight / 11.0;
        let error = (20_000.0 * share * (1.0 - share)).sqrt();
        assert!((count - 20_000.0 * share).abs() < 5.0 * error, "{lengths:?}");
    }
    // With and without, the same is said.
    config.tenants[0].few_shot = None;
    for (with, without) in arrivals.iter().zip(generated(&config, 1)) {
        assert_eq!(with.request.output, without.request.output);
        assert_eq!(with.request.prompt.runs().last(), without.request.prompt.runs().last());
    }
}

#[test]
fn a_closed_population_keeps_its_number_of_sessions() {
    let config = ChatConfig {
        sessions_per_s: None,
        arrival_process: ArrivalProcess::Batch { at_s: 0.0 },
        num_sessions: Some(30),
        max_concurrency: Some(4),
        ..busy()
    };
    let answer_ns = |index| (1 + index % 5) * 100_000_000;
    let arrivals = run(&mut *chat(&config, 1), answer_ns);
    assert_one_at_a_time(&arrivals, answer_ns);
    let sessions = by_session(&arrivals);
    assert_eq!(sessions.len(), 30);
    // From the first request to the end of the last answer.
    let mut edges: Vec<(SimTime, i32)> = Vec::new();
    for turns in sessions.values() {
        let last = turns[turns.len() - 1];
        edges.push((turns[0].at, 1));
        edges.push((last.at + SimTime(answer_ns(last.request.index)), -1));
    }
    edges.sort_unstable();
    let mut open = 0;
    let most = edges
        .iter()
        .map(|(_, change)| {
            open += change;
            open
        })
        .max();
    assert_eq!(most, Some(4));
}

#[test]
fn progress_follows_the_limit_that_ends_it() {
    let config = ChatConfig { num_sessions: Some(4), turns: Distribution::Fixed(1.0), ..exact() };
    // Sessions start at 0, 1, 2 and 3 s.
    let progress = |config: &ChatConfig| {
        let mut chat = chat(config, 1);
        let mut progress = vec![chat.progress().unwrap()];
        while chat.next().unwrap().is_some() {
            progress.push(chat.progress().unwrap());
        }
        progress
    };
    assert_eq!(progress(&config), [0.0, 0.25, 0.5, 0.75, 1.0]);
    let by_time = ChatConfig { duration_s: Some(2.5), ..config };
    assert_eq!(progress(&by_time), [0.0, 0.25, 0.5, 0.8]);
}
