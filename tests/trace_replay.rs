//! The replay of traces: when turns are sent, what fills in for tokens that are not recorded, and what
//! the report is told.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

use kvsim::units::SimTime;
use kvsim::workload::trace::{Trace, TraceConfig, TraceInput};
use kvsim::workload::{Arrival, Workload, WorkloadError};

fn config(yaml: &str) -> TraceConfig {
    let config: TraceConfig = serde_yaml::from_str(&format!("{{path: trace, {yaml}}}")).unwrap();
    config.validate().unwrap();
    config
}

fn trace(yaml: &str, content: &str) -> Result<Trace, WorkloadError> {
    let input = TraceInput::new(Cursor::new(content.as_bytes().to_vec())).unwrap();
    Trace::new(input, &config(yaml), None, 1)
}

/// Sends everything; each answer ends `answer_s` seconds after its request.
fn run(trace: &mut Trace, answer_s: f64) -> Result<Vec<Arrival>, WorkloadError> {
    let mut arrivals = Vec::new();
    let mut ends: BTreeMap<(SimTime, u64), ()> = BTreeMap::new();
    loop {
        let next = trace.peek()?;
        let end = ends.first_key_value().map(|(&(at, index), ())| (at, index));
        match (next, end) {
            (Some(at), end) if end.is_none_or(|(end, _)| at <= end) => {
                let arrival = trace.next()?.unwrap();
                assert_eq!(arrival.at, at);
                assert_eq!(arrival.request.index, arrivals.len() as u64);
                ends.insert((at + SimTime::from_secs_f64(answer_s), arrival.request.index), ());
                arrivals.push(arrival);
            }
            (_, Some((at, index))) => {
                ends.remove(&(at, index));
                trace.finished(index, at);
            }
            _ => return Ok(arrivals),
        }
    }
}

/// Time in seconds, session and turn of each request.
fn sent(yaml: &str, content: &str, answer_s: f64) -> Vec<(f64, Option<u64>, u32)> {
    let arrivals = run(&mut trace(yaml, content).unwrap(), answer_s).unwrap();
    arrivals
        .iter()
        .map(|arrival| (arrival.at.as_secs_f64(), arrival.request.session, arrival.request.turn))
        .collect()
}

fn kvsim(rows: &[&str]) -> String {
    let mut content = "{\"kvsim_trace\": 1}\n".to_owned();
    for row in rows {
        content.push_str(&format!("{{{row}, \"prompt\": [1], \"output\": [2]}}\n"));
    }
    content
}

#[test]
fn turns_are_sent_at_their_times_or_after_the_answer() {
    let content = kvsim(&[
        r#""at_s": 0, "session": 1"#,
        r#""at_s": 1, "session": 2"#,
        r#""at_s": 3, "session": 1, "turn": 1, "think_time_s": 2"#,
        r#""at_s": 20, "session": 2, "turn": 1, "think_time_s": 2"#,
    ]);
    let times = |yaml: &str| sent(yaml, &content, 5.0);
    let open = vec![(0.0, Some(1), 0), (1.0, Some(2), 0), (3.0, Some(1), 1), (20.0, Some(2), 1)];
    assert_eq!(times("closed_loop: false"), open);
    // An answer ends 5 s after its request, and the user thinks for 2 s; but not before the recorded time.
    let closed = vec![(0.0, Some(1), 0), (1.0, Some(2), 0), (7.0, Some(1), 1), (20.0, Some(2), 1)];
    assert_eq!(times("closed_loop: true"), closed);
    let longer = vec![(0.0, Some(1), 0), (1.0, Some(2), 0), (9.0, Some(1), 1), (20.0, Some(2), 1)];
    assert_eq!(times("closed_loop: true, think_time_s: {fixed: 4}"), longer);
    // Twice as fast: all recorded times are halved, those between turns too.
    let fast = vec![(0.0, Some(1), 0), (0.5, Some(2), 0), (6.0, Some(1), 1), (10.0, Some(2), 1)];
    assert_eq!(times("closed_loop: true, rate_scale: 2"), fast);
}

#[test]
fn turns_without_a_time_wait_for_the_answer() {
    let content = kvsim(&[
        r#""at_s": 0, "session": 1"#,
        r#""session": 1, "turn": 1, "think_time_s": 2"#,
        r#""session": 1, "turn": 2, "think_time_s": 3"#,
        r#""at_s": 1, "session": 2"#,
        r#""session": 2, "turn": 1"#,
        r#""at_s": 9"#,
    ]);
    let expected = vec![
        (0.0, Some(1), 0),
        (1.0, Some(2), 0),
        (6.0, Some(2), 1),
        (7.0, Some(1), 1),
        (9.0, None, 0),
        (15.0, Some(1), 2),
    ];
    assert_eq!(sent("closed_loop: false", &content, 5.0), expected);
}

#[test]
fn a_turn_that_comes_too_late_in_the_file_says_so() {
    let content = kvsim(&[
        r#""at_s": 0, "session": 1"#,
        r#""at_s": 1"#,
        r#""at_s": 50"#,
        r#""session": 1, "turn": 1, "think_time_s": 2"#,
    ]);
    let error = run(&mut trace("closed_loop: false", &content).unwrap(), 5.0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 5, field `at_s`: found nothing, expected a time: the turn was due at 7.000 s, but the rows before it \
         are at 50.000 s already; or put the rows of a session one after the other"
    );
}

#[test]
fn a_trace_without_times_needs_arrivals() {
    let content = kvsim(&["\"session\": 1"]);
    let error = run(&mut trace("closed_loop: false", &content).unwrap(), 5.0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2: found a request without a time, expected one; or `arrivals` in the scenario's trace, such as \
         `{concurrency: 8}` or `{rate: {per_s: 2}}`"
    );
}

#[test]
fn sessions_begin_at_a_rate_of_our_own() {
    let content = kvsim(&[
        r#""session": 1"#,
        r#""session": 1, "turn": 1, "think_time_s": 1"#,
        r#""session": 2"#,
        r#""at_s": 100"#,
    ]);
    let times = sent("arrivals: {rate: {per_s: 0.5, process: fixed}}", &content, 2.5);
    assert_eq!(times, [(0.0, Some(1), 0), (2.0, Some(2), 0), (3.5, Some(1), 1), (4.0, None, 0)]);
    // Recorded times between the turns of a session are kept.
    let timed = kvsim(&[r#""at_s": 70, "session": 1"#, r#""at_s": 71, "session": 1, "turn": 1"#]);
    let times = sent("arrivals: {rate: {per_s: 0.5, process: fixed}}", &timed, 2.5);
    assert_eq!(times, [(0.0, Some(1), 0), (1.0, Some(1), 1)]);
    let times = sent("closed_loop: true, arrivals: {rate: {per_s: 0.5, process: fixed}}", &timed, 2.5);
    assert_eq!(times, [(0.0, Some(1), 0), (2.5, Some(1), 1)]);
}

#[test]
fn so_many_sessions_are_there_at_a_time() {
    let content = kvsim(&[
        r#""session": 1"#,
        r#""session": 1, "turn": 1, "think_time_s": 1"#,
        r#""session": 2"#,
        r#""session": 3"#,
        r#""session": 4"#,
    ]);
    // Answers take 2 s. Session 1 is over at 5 s, session 2 at 2 s, and session 3 at 4 s.
    let times = sent("arrivals: {concurrency: 2}", &content, 2.0);
    let expected =
        [(0.0, Some(1), 0), (0.0, Some(2), 0), (2.0, Some(3), 0), (3.0, Some(1), 1), (4.0, Some(4), 0)];
    assert_eq!(times, expected);
}

const LENGTHS: &str = "Timestamp,Session ID,Request tokens,Response tokens
0,,100,50
10,,200,50
20,,90,5
30,a,60,5
40,a,80,5
50,a,50,5
";

#[test]
fn lengths_without_tokens_need_a_reuse_model() {
    let error = trace("closed_loop: false", LENGTHS).err().unwrap();
    assert_eq!(
        error.to_string(),
        "`reuse`: found not given, expected `none`, `shared_prefix` or `sessions`: the trace does not tell what prompts \
         share"
    );
    let one = "{\"kvsim_trace\": 1}\n{\"at_s\": 0, \"prompt_tokens\": 9, \"output_tokens\": 1}\n";
    let error = run(&mut trace("closed_loop: false", one).unwrap(), 1.0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2: found a prompt of which only the length, 9, is recorded, expected `reuse` in the scenario's trace, \
         `none`, `shared_prefix` or `sessions`: the trace does not tell what prompts share"
    );
}

/// Tokens of each prompt that the best earlier prompt and answer begins with, and its length.
fn shared(yaml: &str) -> Vec<(u32, u32)> {
    let arrivals = run(&mut trace(yaml, LENGTHS).unwrap(), 1.0).unwrap();
    let mut places: HashMap<(u64, u64), u64> = HashMap::new();
    let mut shared = Vec::new();
    for Arrival { request, .. } in arrivals {
        let (mut place, mut known, mut is_known) = (0, 0, true);
        let ids =
            request.prompt.ids(0, request.prompt.len()).chain(request.output.ids(0, request.output.len()));
        for (position, id) in ids.enumerate() {
            let next = places.len() as u64 + 1;
            is_known &= places.contains_key(&(place, id));
            known += u32::from(is_known && (position as u32) < request.prompt.len());
            place = *places.entry((place, id)).or_insert(next);
        }
        shared.push((known, request.prompt.len()));
    }
    shared
}

#[test]
fn reuse_fills_in_what_is_said_of_it() {
    assert_eq!(shared("reuse: none"), [(0, 100), (0, 200), (0, 90), (0, 60), (0, 80), (0, 50)]);
    let prefix = "reuse: {shared_prefix: {num_prefixes: 1, prefix_tokens: {fixed: 70}}}";
    assert_eq!(shared(prefix), [(0, 100), (70, 200), (70, 90), (60, 60), (70, 80), (50, 50)]);
    // 200 tokens go on from 100 and an answer of 50; 90 fit none. The recorded session goes on from 60 and
    // 5; then 50 do not hold the 85.
    let sessions = "reuse: {sessions: {continue_chance: 1, max_gap_s: 1000}}";
    assert_eq!(shared(sessions), [(0, 100), (150, 200), (0, 90), (0, 60), (65, 80), (0, 50)]);
    let short = "reuse: {sessions: {continue_chance: 1, max_gap_s: 9}}";
    assert_eq!(shared(short)[1], (0, 200));
    let never = "reuse: {sessions: {continue_chance: 0, max_gap_s: 1000}}";
    assert_eq!(shared(never)[1], (0, 200));
}

#[test]
fn the_report_is_told_what_was_assumed() {
    let mut lengths = trace("reuse: none", LENGTHS).unwrap();
    run(&mut lengths, 1.0).unwrap();
    let notes = lengths.notes();
    assert_eq!(notes.trace_format, Some("burstgpt"));
    assert_eq!(notes.notes, ["only lengths are recorded: prompts are assumed to share nothing"]);
    let chat = r#"{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}"#;
    let mut chat = trace("arrivals: {concurrency: 1}", chat).unwrap();
    run(&mut chat, 1.0).unwrap();
    assert_eq!(
        chat.notes().notes,
        ["4 characters of text count as a token, and the chat template as 4 tokens for each message"]
    );
}

#[test]
fn bad_rows_are_counted_for_the_report() {
    let content = format!("{LENGTHS}60,,0,0\n70,,x,1\n80,,9,9\n");
    let mut lengths = trace("reuse: none, skip_bad_rows: true", &content).unwrap();
    assert_eq!(run(&mut lengths, 1.0).unwrap().len(), 7);
    let notes = lengths.notes();
    assert_eq!(notes.skipped_rows, 2);
    assert_eq!(
        notes.first_skipped_row.unwrap(),
        "line 8, field `Request tokens`: found `0`, expected a whole number of tokens from 1 to 2147483647"
    );
}

#[test]
fn settings_are_checked() {
    for (yaml, field) in [
        ("rate_scale: 0", "rate_scale"),
        ("hash_id_tokens: 0", "hash_id_tokens"),
        ("sort_window_s: -1", "sort_window_s"),
        ("arrivals: {rate: {per_s: 0}}", "arrivals.rate.per_s"),
        ("arrivals: {concurrency: 0}", "arrivals.concurrency"),
        ("arrivals: {concurrency: 1}, rate_scale: 2", "rate_scale"),
        ("think_time_s: {fixed: -1}", "think_time_s.fixed"),
        ("text: {characters_per_token: 0}", "text.characters_per_token"),
        ("text: {template_tokens_per_message: 1001}", "text.template_tokens_per_message"),
        ("text: {image_tokens: 0}", "text.image_tokens"),
        ("reuse: {sessions: {continue_chance: 2, max_gap_s: 1}}", "reuse.sessions.continue_chance"),
        ("reuse: {sessions: {continue_chance: 1, max_gap_s: -1}}", "reuse.sessions.max_gap_s"),
        (
            "reuse: {shared_prefix: {num_prefixes: 0, prefix_tokens: {fixed: 1}}}",
            "reuse.shared_prefix.num_prefixes",
        ),
        (
            "reuse: {shared_prefix: {num_prefixes: 1, prefix_tokens: {fixed: 0}}}",
            "reuse.shared_prefix.prefix_tokens.fixed",
        ),
    ] {
        let config: TraceConfig = serde_yaml::from_str(&format!("{{path: trace, {yaml}}}")).unwrap();
        assert_eq!(config.validate().unwrap_err().field, field, "{yaml}");
    }
}
