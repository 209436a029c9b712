//! All formats: our samples are told apart and read whole, and each kind of mistake in each family of
//! formats has its message.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use kvsim::units::SimTime;
use kvsim::workload::WorkloadError;
use kvsim::workload::trace::{
    ReadOptions, TextConfig, TraceFormat, TraceInput, TraceReader, TraceRequest, TraceTokens, open,
};

fn text(content: impl Into<Vec<u8>>) -> TraceInput {
    TraceInput::new(Cursor::new(content.into())).unwrap()
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(name)
}

fn read_all(reader: &mut dyn TraceReader) -> Result<Vec<TraceRequest>, WorkloadError> {
    let mut requests = Vec::new();
    while let Some(request) = reader.next_request()? {
        requests.push(request);
    }
    Ok(requests)
}

/// What a trace comes to.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    requests: usize,
    prompt_tokens: u64,
    /// Of all prompts, tokens that no earlier one has behind the same beginning; `None` where only
    /// lengths are recorded.
    distinct_tokens: Option<u64>,
    output_tokens: u64,
    /// Time of the last request that has one.
    last_ns: Option<u64>,
    sessions: usize,
    /// The sum of the numbers of all turns.
    turns: u64,
    timed: usize,
}

fn figures(requests: &[TraceRequest]) -> Figures {
    let mut places = HashMap::new();
    for request in requests {
        if let TraceTokens::Known(prompt) = &request.prompt {
            let mut place = 0;
            for id in prompt.ids(0, prompt.len()) {
                let next = places.len() as u64 + 1;
                place = *places.entry((place, id)).or_insert(next);
            }
        }
    }
    let times: Vec<SimTime> = requests.iter().filter_map(|request| request.at).collect();
    Figures {
        requests: requests.len(),
        prompt_tokens: requests.iter().map(|request| u64::from(request.prompt.len())).sum(),
        distinct_tokens: (!places.is_empty()).then_some(places.len() as u64),
        output_tokens: requests.iter().map(|request| u64::from(request.output.len())).sum(),
        last_ns: times.last().map(|at| at.as_ns()),
        sessions: requests.iter().filter_map(|request| request.session).collect::<BTreeSet<_>>().len(),
        turns: requests.iter().map(|request| u64::from(request.turn)).sum(),
        timed: times.len(),
    }
}

/// The figures were counted from the files with Python's json and csv.
#[test]
fn samples_are_told_apart_and_read_whole() {
    use TraceFormat::*;
    #[rustfmt::skip]
    let expected = [
        ("mooncake_sample.jsonl", Mooncake, (200, 692_207, Some(0), 61_438), (Some(474_424_000_000), 0, 0, 200)),
        ("kvsim_sample.jsonl", Kvsim, (36, 22_559, Some(6_097), 2_201), (Some(20_182_000_000), 12, 43, 12)),
        ("qwen_bailian_sample.jsonl", QwenBailian, (105, 48_972, Some(22_748), 12_432), (Some(245_222_000_000), 40, 111, 105)),
        ("azure_2023_sample.csv", Azure, (60, 160_254, None, 28_506), (Some(42_577_833_100), 0, 0, 60)),
        ("azure_2024_sample.csv", Azure, (60, 193_836, None, 30_301), (Some(41_124_144_000), 0, 0, 60)),
        ("burstgpt_sample.csv", Burstgpt, (84, 40_801, None, 10_428), (Some(184_000_000_000), 24, 68, 84)),
        ("sharegpt_sample.json", Sharegpt, (19, 2_493, Some(1_213), 1_050), (None, 8, 19, 0)),
        ("vllm_multi_turn_sample.json", VllmMultiTurn, (25, 5_796, Some(1_780), 1_260), (None, 6, 42, 0)),
        ("openai_chat_sample.jsonl", OpenaiChat, (27, 5_396, Some(1_902), 1_416), (Some(178_465_000_000), 10, 31, 27)),
        ("vllm_bench_sample.json", VllmBench, (40, 44_238, None, 5_742), (Some(9_018_880_598), 0, 0, 40)),
        ("prefix_blocks_sample.csv", PrefixBlocks, (83, 39_556, Some(16_516), 9_870), (Some(123_671_000_000), 0, 0, 83)),
        ("dynamo_sample.jsonl", Dynamo, (67, 32_498, Some(13_938), 8_995), (Some(138_071_000_000), 25, 70, 67)),
        ("aiperf_sample.jsonl", Aiperf, (45, 115_902, Some(46_270), 9_270), (Some(43_197_000_000), 20, 42, 20)),
    ];
    for (
        name,
        format,
        (requests, prompt_tokens, distinct, output_tokens),
        (last_ns, sessions, turns, timed),
    ) in expected
    {
        let input = TraceInput::new(File::open(sample(name)).unwrap()).unwrap();
        let (found, mut reader) = open(input, &ReadOptions::default()).unwrap();
        assert_eq!(found, format, "{name}");
        let mut figures = figures(&read_all(reader.as_mut()).unwrap());
        if format == Mooncake {
            figures.distinct_tokens = Some(0); // Counted in its own test.
        }
        // A clock's float of seconds has its own last digits.
        if format == VllmBench {
            figures.last_ns =
                figures.last_ns.map(|ns| if ns.abs_diff(9_018_880_598) < 100 { 9_018_880_598 } else { ns });
        }
        let expected = Figures {
            requests,
            prompt_tokens,
            distinct_tokens: distinct,
            output_tokens,
            last_ns,
            sessions,
            turns,
            timed,
        };
        assert_eq!(figures, expected, "{name}");
    }
}

#[test]
fn every_format_has_a_name_of_its_own() {
    for format in TraceFormat::ALL {
        let read: TraceFormat = serde_yaml::from_str(format.name()).unwrap();
        assert_eq!(read, format);
    }
}

#[test]
fn a_file_that_looks_like_nothing_is_refused() {
    let message = |content: &str| open(text(content), &ReadOptions::default()).err().unwrap().to_string();
    assert!(message("a,b\n1,2\n").starts_with(
        "cannot tell the format of a trace that begins with a line with \"a\", \"b\"; give one: `format: ...` with \
         kvsim, qwen_bailian,"
    ));
    assert!(message("{\"x\": 1}").contains("a JSON object with \"x\""));
    assert!(message("[{\"x\": 1}]").contains("a JSON list of objects with \"x\""));
    assert!(message("").contains("the trace is empty"));
}

/// A good row of each format that has rows of its own, behind what comes first in the file.
const ROWS: [(TraceFormat, &str, &str); 9] = [
    (
        TraceFormat::Mooncake,
        "",
        r#"{"timestamp": 5, "input_length": 1000, "output_length": 7, "hash_ids": [4, 9]}"#,
    ),
    (
        TraceFormat::QwenBailian,
        "",
        r#"{"chat_id": 3, "parent_chat_id": -1, "timestamp": 5, "input_length": 32, "output_length": 7, "hash_ids": [4, 9]}"#,
    ),
    (
        TraceFormat::Aiperf,
        "",
        r#"{"timestamp": 5, "session_id": "a", "input_length": 1000, "output_length": 7, "hash_ids": [4, 9]}"#,
    ),
    (
        TraceFormat::Dynamo,
        "",
        r#"{"schema": "x", "event_type": "request_end", "request": {"request_received_ms": 5, "output_tokens": 7, "replay": {"trace_block_size": 64, "input_length": 128, "input_sequence_hashes": [4, 9]}}}"#,
    ),
    (
        TraceFormat::Kvsim,
        "{\"kvsim_trace\": 1}\n",
        r#"{"at_s": 5, "prompt": [[4, 9], 7], "output_tokens": 7}"#,
    ),
    (
        TraceFormat::OpenaiChat,
        "",
        r#"{"timestamp": 5, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 7}"#,
    ),
    (TraceFormat::Azure, "TIMESTAMP,ContextTokens,GeneratedTokens\n", "2024-05-10 00:00:05+00:00,100,7"),
    (TraceFormat::Burstgpt, "Timestamp,Request tokens,Response tokens\n", "5,100,7"),
    (TraceFormat::PrefixBlocks, "arrival_s,input_len,output_len,prefix_block_ids\n", "5,32,7,4 9"),
];

fn parse(format: TraceFormat, content: impl Into<Vec<u8>>) -> Result<Vec<TraceRequest>, String> {
    let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
    let (_, mut reader) = open(text(content), &options).map_err(|error| error.to_string())?;
    read_all(reader.as_mut()).map_err(|error| error.to_string())
}

#[test]
fn byte_order_marks_line_ends_of_windows_and_blank_lines_change_nothing() {
    for (format, first, row) in ROWS {
        let plain = parse(format, format!("{first}{row}\n{row}\n")).unwrap();
        assert_eq!(plain.len(), 2, "{format:?}");
        let windows = format!("\u{feff}{first}{row}\n{row}").replace('\n', "\r\n");
        let without_lines = |requests: Vec<TraceRequest>| {
            requests.into_iter().map(|request| TraceRequest { line: 0, ..request }).collect::<Vec<_>>()
        };
        assert_eq!(parse(format, windows).unwrap(), plain, "{format:?}");
        let blank = parse(format, format!("{first}\n{row}\n\n\n{row}\n\n")).unwrap();
        assert_eq!(without_lines(blank), without_lines(plain), "{format:?}");
    }
}

#[test]
fn lines_are_counted_from_the_first() {
    for (format, first, row) in ROWS {
        let lines: Vec<u64> = parse(format, format!("{first}{row}\n{row}\n"))
            .unwrap()
            .iter()
            .map(|request| request.line)
            .collect();
        let expected = if first.is_empty() { [1, 2] } else { [2, 3] };
        assert_eq!(lines, expected, "{format:?}");
    }
}

#[test]
fn times_out_of_order_ask_to_be_sorted() {
    for (format, first, row) in ROWS {
        let earlier = match format {
            TraceFormat::Azure => row.replace(":05", ":03"),
            TraceFormat::Burstgpt | TraceFormat::PrefixBlocks => row.replacen('5', "3", 1),
            _ => row.replacen(": 5", ": 3", 1),
        };
        assert_ne!(row, earlier);
        let read = parse(format, format!("{first}{row}\n{earlier}\n"));
        match format {
            // Logs are written when answers end.
            TraceFormat::OpenaiChat | TraceFormat::Dynamo => {
                let lines: Vec<u64> = read.unwrap().iter().map(|request| request.line).collect();
                assert_eq!(lines, [2, 1], "{format:?}");
            }
            _ => {
                let message = read.unwrap_err();
                let expected = "; sort the rows, or set `sort_window_s` to";
                assert!(message.contains(expected), "{format:?}: {message}");
            }
        }
        let options = ReadOptions {
            format: Some(format),
            sort_window: Some(SimTime::from_ms(10_000)),
            ..ReadOptions::default()
        };
        let (_, mut reader) = open(text(format!("{first}{row}\n{earlier}\n")), &options).unwrap();
        let times: Vec<_> = read_all(reader.as_mut()).unwrap().iter().map(|request| request.at).collect();
        assert!(times[0] < times[1], "{format:?}: {times:?}");
    }
}

/// The message about the second of two rows.
fn mistake(format: TraceFormat, from: &str, to: &str) -> String {
    let (_, first, row) = ROWS.into_iter().find(|(known, ..)| *known == format).unwrap();
    assert!(row.contains(from), "{from} is not in {row}");
    let message = parse(format, format!("{first}{row}\n{}\n", row.replacen(from, to, 1))).unwrap_err();
    let line = if first.is_empty() { 2 } else { 3 };
    let prefix = format!("line {line}");
    message
        .strip_prefix(&prefix)
        .unwrap_or_else(|| panic!("{message} does not begin with {prefix}"))
        .to_owned()
}

#[test]
fn lengths_of_zero_huge_numbers_and_nan_are_named() {
    use TraceFormat::*;
    let tokens = "expected a whole number of tokens from 1 to 2147483647";
    for (format, field) in [
        (Mooncake, "output_length"),
        (QwenBailian, "output_length"),
        (Aiperf, "output_length"),
        (Dynamo, "request.output_tokens"),
        (Kvsim, "output_tokens"),
        (OpenaiChat, "max_tokens"),
    ] {
        for value in ["0", "-7", "7.5", "2147483648", "123456789012345678901234567890", "1e3"] {
            let expected = format!(", field `{field}`: found `{value}`, {tokens}");
            assert_eq!(mistake(format, ": 7", &format!(": {value}")), expected, "{format:?}");
        }
        let found = mistake(format, ": 7", ": \"7\"");
        assert_eq!(found, format!(", field `{field}`: found \"7\", {tokens}"), "{format:?}");
        let found = mistake(format, ": 7", ": NaN");
        assert!(found.starts_with(&format!(", field `{field}`: found invalid JSON at column ")), "{found}");
    }
    for (format, field) in
        [(Azure, "GeneratedTokens"), (Burstgpt, "Response tokens"), (PrefixBlocks, "output_len")]
    {
        for value in ["0", "-7", "7.5", "2147483648", "123456789012345678901234567890", "NaN"] {
            let expected = format!(", field `{field}`: found `{value}`, {tokens}");
            assert_eq!(mistake(format, ",7", &format!(",{value}")), expected, "{format:?}");
        }
        assert_eq!(mistake(format, ",7", ","), format!(", field `{field}`: found nothing, {tokens}"));
    }
}

#[test]
fn times_that_are_none_are_named() {
    use TraceFormat::*;
    let (seconds, milliseconds) = ("seconds from 0 to 18446744073", "milliseconds from 0 to 18446744073709");
    for (format, field, expected) in [
        (Mooncake, "timestamp", milliseconds),
        (QwenBailian, "timestamp", seconds),
        (Aiperf, "timestamp", milliseconds),
        (Dynamo, "request.request_received_ms", milliseconds),
        (Kvsim, "at_s", seconds),
        (OpenaiChat, "timestamp", seconds),
    ] {
        for value in ["-5", "99999999999999999999", "true"] {
            let found = mistake(format, ": 5", &format!(": {value}"));
            assert_eq!(
                found,
                format!(", field `{field}`: found `{value}`, expected {expected}"),
                "{format:?}"
            );
        }
        assert!(mistake(format, ": 5", ": NaN").contains("found invalid JSON"), "{format:?}");
    }
    for value in ["-5", "NaN", "inf", ""] {
        let what = if value.is_empty() { "nothing".to_owned() } else { format!("`{value}`") };
        let expected = format!(", field `Timestamp`: found {what}, expected {seconds}");
        assert_eq!(mistake(Burstgpt, "5", value), expected);
    }
    assert_eq!(
        mistake(Azure, "2024-05-10 00:00:05+00:00", "10 May"),
        ", field `TIMESTAMP`: found `10 May`, expected a date and time such as 2023-11-16 18:17:03.9799600"
    );
}

#[test]
fn ids_that_do_not_cover_the_prompt_are_named() {
    use TraceFormat::*;
    for (format, field, from, to, expected) in [
        (
            Mooncake,
            "hash_ids",
            "[4, 9]",
            "[4]",
            "found 1 ids of 512 tokens each, expected 2 to cover the prompt's 1000 tokens",
        ),
        (
            QwenBailian,
            "hash_ids",
            "[4, 9]",
            "[4]",
            "found 1 ids of 16 tokens each, expected 2 to cover the prompt's 32 tokens",
        ),
        (
            Aiperf,
            "hash_ids",
            "[4, 9]",
            "[4, 5, 6]",
            "found 3 ids of 512 tokens each, expected 1 or 2 to cover the prompt's 1000 tokens",
        ),
        (
            Dynamo,
            "request.replay.input_sequence_hashes",
            "[4, 9]",
            "[]",
            "found 0 ids of 64 tokens each, expected 2 to cover the prompt's 128 tokens",
        ),
        (
            PrefixBlocks,
            "prefix_block_ids",
            "4 9",
            "4",
            "found 1 ids of 16 tokens each, expected 2 to cover the prompt's 32 tokens",
        ),
    ] {
        assert_eq!(mistake(format, from, to), format!(", field `{field}`: {expected}"), "{format:?}");
    }
    assert_eq!(
        mistake(PrefixBlocks, "4 9", "4 x"),
        ", field `prefix_block_ids`: found `x`, expected whole numbers from 0 to 18446744073709551615 with spaces between"
    );
}

#[test]
fn fields_that_are_missing_or_not_known_are_named() {
    use TraceFormat::*;
    assert_eq!(
        mistake(Kvsim, "\"prompt\"", "\"promt\""),
        ": found a field `promt`, expected only these: at_s, think_time_s, prompt, output, prompt_tokens, \
         output_tokens, session, turn, tenant, priority, skip_reading_prefix_cache, cache_salt, lora, mm, \
         prompt_embeds, patience"
    );
    assert_eq!(
        mistake(Kvsim, "\"output_tokens\": 7", "\"tenant\": \"x\", \"output_tokens\": 7"),
        ", field `tenant`: found \"x\", expected a name in the list `tenants` of the first line"
    );
    assert_eq!(
        mistake(Kvsim, "[4, 9]", "[4, 9, 1]"),
        ", field `prompt`: found a list, expected a pair of first id and number of ids"
    );
    assert_eq!(
        mistake(Kvsim, "[[4, 9], 7]", "[]"),
        ", field `prompt`: found no tokens, expected at least one"
    );
    assert!(mistake(Kvsim, "[4, 9]", "[9223372036854775807, 9]").contains("all below 9223372036854775808"));
    assert_eq!(
        mistake(OpenaiChat, ", \"max_tokens\": 7", ""),
        ", field `choices`: found nothing, expected an answer: `choices`, a last message of the assistant, or its \
         length in `usage.completion_tokens` or `max_tokens`"
    );
    assert_eq!(
        mistake(OpenaiChat, "\"hello\"", "[{\"type\": \"image_url\", \"image_url\": {\"url\": \"x\"}}]"),
        ", field `content`: found an image, expected `image_tokens` in the scenario's `text`: the placeholder tokens \
         of an image"
    );
    assert_eq!(
        parse(Azure, "TIMESTAMP,ContextTokens\n1,2\n").unwrap_err(),
        "line 1, field `GeneratedTokens`: found no such column, expected it in the first line"
    );
    assert_eq!(mistake(Burstgpt, "5,100,7", "5,100"), ": found 2 values, expected 3, as in the first line");
    assert_eq!(
        parse(Kvsim, "").unwrap_err(),
        "line 1: found an empty file, expected {\"kvsim_trace\": 1} on the first line"
    );
    assert_eq!(
        parse(Kvsim, "{\"kvsim_trace\": 2}").unwrap_err(),
        "line 1, field `kvsim_trace`: found `2`, expected the version of the format, from 1 to 1"
    );
    assert_eq!(
        parse(VllmBench, r#"{"input_lens": [1, 2], "output_lens": [3]}"#).unwrap_err(),
        "line 1, field `output_lens`: found 1 values, expected 2, as many as `input_lens`"
    );
    assert_eq!(
        parse(VllmBench, r#"{"input_lens": [1, 2], "output_lens": [3, 0]}"#).unwrap_err(),
        "line 1, field `output_lens`: found `0` at position 1, expected a whole number of tokens from 1 to 2147483647"
    );
    assert_eq!(
        parse(VllmBench, r#"{"num_prompts": 3}"#).unwrap_err(),
        "line 1, field `input_lens`: found nothing, expected a list; write the results with `--save-detailed`"
    );
}

#[test]
fn bytes_that_are_no_text_are_named() {
    for (format, first, row) in ROWS {
        let mut content = format!("{first}{row}\n").into_bytes();
        let at = content.len() - 3;
        content[at] = 0xff;
        let message = parse(format, content).unwrap_err();
        assert!(message.starts_with("line "), "{format:?}: {message}");
    }
}

#[test]
fn bad_rows_are_left_out_and_counted_on_demand() {
    for (format, first, row) in ROWS {
        let bad = match format {
            TraceFormat::Azure | TraceFormat::Burstgpt | TraceFormat::PrefixBlocks => "x,y",
            // The structure is good, so that the next one can be found.
            _ => "{\"event_type\": \"request_end\", \"request\": {\"timestamp\": []}, \"messages\": 3}",
        };
        let options = ReadOptions { format: Some(format), skip_bad_rows: true, ..ReadOptions::default() };
        let content = format!("{first}{bad}\n{row}\n{bad}\n{row}\n{bad}\n");
        let (_, mut reader) = open(text(content), &options).unwrap();
        assert_eq!(read_all(reader.as_mut()).unwrap().len(), 2, "{format:?}");
        let skipped = reader.skipped();
        assert_eq!(skipped.count, 3, "{format:?}");
        let line = if first.is_empty() { "line 1" } else { "line 2" };
        assert!(skipped.first.as_ref().unwrap().starts_with(line), "{format:?}: {skipped:?}");
    }
}

#[test]
fn conversations_become_turns_with_what_was_said_before() {
    let conversation = r#"[{"id": "a", "conversations": [
        {"from": "gpt", "value": "said before anybody asked"},
        {"from": "human", "value": "12345678"},
        {"from": "gpt", "value": "1234"},
        {"from": "gpt", "value": ""},
        {"from": "human", "value": "1234"},
        {"from": "gpt", "value": "123456"},
        {"from": "human", "value": "no answer"}]}]"#;
    let requests = parse(TraceFormat::Sharegpt, conversation).unwrap();
    let lengths: Vec<(u32, u32, u32)> =
        requests.iter().map(|request| (request.turn, request.prompt.len(), request.output.len())).collect();
    // Each message is 4 tokens of the template and a token for each 4 characters; 25 characters before
    // the first question are 7 tokens.
    let first = (4 + 7) + (4 + 2) + 4;
    assert_eq!(lengths, [(0, first, 1), (1, first + 1 + 4 + (4 + 1) + 4, 2)]);
    let [TraceTokens::Known(first), TraceTokens::Known(second)] = [&requests[0].prompt, &requests[1].prompt]
    else {
        panic!("the tokens are known");
    };
    let TraceTokens::Known(answer) = &requests[0].output else { panic!("the tokens are known") };
    let mut so_far = first.clone();
    so_far.extend(answer);
    assert!(second.ids(0, so_far.len()).eq(so_far.ids(0, so_far.len())));
}

#[test]
fn images_of_a_chat_are_told_apart_by_their_address() {
    let row = |url: &str| {
        format!(
            r#"{{"messages": [{{"role": "user", "content": [{{"type": "text", "text": "1234"}},
               {{"type": "image_url", "image_url": {{"url": "{url}"}}}}]}}], "max_tokens": 1}}"#
        )
    };
    let options = ReadOptions {
        text: TextConfig { image_tokens: Some(100), ..TextConfig::default() },
        ..ReadOptions::default()
    };
    let content = [row("a"), row("a"), row("b")].join("\n");
    let (format, mut reader) = open(text(content), &options).unwrap();
    assert_eq!(format, TraceFormat::OpenaiChat);
    let requests = read_all(reader.as_mut()).unwrap();
    assert_eq!(requests[0].prompt.len(), 4 + 1 + 100 + 4);
    assert_eq!((requests[0].extras.mm[0].offset_tokens, requests[0].extras.mm[0].length_tokens), (5, 100));
    assert_eq!(requests[0].extras, requests[1].extras);
    assert_ne!(requests[0].extras, requests[2].extras);
    assert_eq!(requests[0].prompt, requests[2].prompt);
}

#[test]
fn a_chat_log_keeps_requests_and_answers_in_many_ways() {
    let question = r#""messages": [{"role": "user", "content": "hello"}]"#;
    let chat = |line: String| {
        let requests = parse(TraceFormat::OpenaiChat, line).unwrap();
        (requests[0].prompt.len(), requests[0].output.len())
    };
    let expected = (4 + 2 + 4, 2);
    assert_eq!(chat(format!("{{{question}, \"response\": \"answer\"}}")), expected);
    assert_eq!(
        chat(format!(
            "{{\"request\": {{{question}}}, \"response\": {{\"choices\": [{{\"message\": {{\"role\": \"assistant\", \"content\": \"answer\"}}}}, {{\"message\": {{\"role\": \"assistant\", \"content\": \"another\"}}}}]}}}}"
        )),
        expected
    );
    assert_eq!(
        chat(format!("{{\"custom_id\": \"1\", \"body\": {{{question}, \"max_tokens\": 2}}}}")),
        expected
    );
    assert_eq!(
        chat(format!("{{{question}, \"usage\": {{\"completion_tokens\": 2}}, \"response\": null}}")),
        expected
    );
    assert_eq!(
        chat(format!(
            "{{{}, {{\"role\": \"assistant\", \"content\": \"answer\"}}]}}",
            question.trim_end_matches(']')
        )),
        expected
    );
    assert_eq!(chat("{\"prompt\": \"hello\", \"choices\": [{\"text\": \"answer\"}]}".into()), expected);
}

#[test]
fn aiperf_rows_may_be_texts_deltas_and_whole_conversations() {
    let lengths = |content: &str| -> Vec<(Option<u64>, u32, u32, u32)> {
        let requests = parse(TraceFormat::Aiperf, content).unwrap();
        let row = |request: &TraceRequest| {
            (request.at.map(SimTime::as_ns), request.turn, request.prompt.len(), request.output.len())
        };
        requests.iter().map(row).collect()
    };
    assert_eq!(
        lengths(r#"{"text_input": "12345678", "output_length": 4, "timestamp": 1.5}"#),
        [(Some(1_500_000), 0, 10, 4)]
    );
    assert_eq!(lengths(r#"{"input_length": 10, "output_length": 4}"#), [(None, 0, 10, 4)]);
    let delta = r#"{"session_id": "s", "message_mode": "delta", "messages": [{"role": "user", "content": "1234"}], "output_length": 50, "timestamp": 0}
{"session_id": "s", "message_mode": "delta", "messages": [{"role": "user", "content": "1234"}], "output_length": 5, "delay": 2000}"#;
    assert_eq!(lengths(delta), [(Some(0), 0, 9, 50), (None, 1, 5 + 4 + 50 + 5 + 4, 5)]);
    let turns = r#"{"session_id": "s", "turns": [{"text": "1234", "output_length": 50, "timestamp": 7}, {"text": "1234", "output_length": 5, "delay": 9}]}"#;
    assert_eq!(lengths(turns), [(Some(7_000_000), 0, 9, 50), (None, 1, 5 + 4 + 50 + 5 + 4, 5)]);
    let payload = r#"{"payload": {"messages": [{"role": "user", "content": "1234"}], "max_tokens": 3}, "timestamp": 1}"#;
    assert_eq!(lengths(payload), [(Some(1_000_000), 0, 9, 3)]);
}

#[test]
fn a_dynamo_session_thinks_between_an_end_and_the_next_request() {
    let row = |received: u64, end: u64| {
        format!(
            "{{\"schema\": \"dynamo.request.trace.v1\", \"event_type\": \"request_end\", \"event_time_unix_ms\": {end}, \
             \"agent_context\": {{\"session_id\": \"s\"}}, \"request\": {{\"request_received_ms\": {received}, \
             \"input_tokens\": 9, \"output_tokens\": 7}}}}"
        )
    };
    let tool =
        r#"{"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": 1000900}"#;
    let content = [&row(1_000_000, 1_000_800), tool, &row(1_001_000, 1_002_000)].join("\n");
    let requests = parse(TraceFormat::Dynamo, content).unwrap();
    let times: Vec<_> =
        requests.iter().map(|request| (request.at, request.turn, request.think_time)).collect();
    assert_eq!(
        times,
        [(Some(SimTime::ZERO), 0, None), (Some(SimTime::from_ms(1000)), 1, Some(SimTime::from_ms(200)))]
    );
    assert_eq!(requests[0].prompt, TraceTokens::Length(9));
}

/// Hashes of 64 bits as ids: different ones stay different.
#[test]
fn large_ids_are_folded() {
    let row = |id: u64| {
        format!("{{\"timestamp\": 0, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [{id}]}}\n")
    };
    let content: String = [u64::MAX, u64::MAX - 1, 7].into_iter().map(row).collect();
    let requests = parse(TraceFormat::Mooncake, content).unwrap();
    let starts: BTreeSet<u64> = requests
        .iter()
        .map(|request| match &request.prompt {
            TraceTokens::Known(prompt) => prompt.get(0),
            TraceTokens::Length(_) => panic!("the tokens are known"),
        })
        .collect();
    assert!(starts.len() == 3 && starts.contains(&(7 * 512)) && starts.iter().all(|&start| start < 1 << 62));
}

/// The recorded traces beside the repository; the figures were counted with Python's csv.
#[test]
fn recorded_traces_are_read_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("KVSIM_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    if !shared.join("data/traces").is_dir() {
        eprintln!("skipped: there is no {}", shared.join("data/traces").display());
        return;
    }
    for (name, format, requests, prompt_tokens, output_tokens, last_ns) in [
        (
            "data/traces/azure2023_conv.csv.gz",
            TraceFormat::Azure,
            19_366,
            22_361_870,
            4_088_665,
            3_501_721_937_000,
        ),
        (
            "data/traces/azure2023_code.csv.gz",
            TraceFormat::Azure,
            8_819,
            18_059_974,
            245_896,
            3_435_948_056_000,
        ),
        (
            "data/e2e/requests/llmservingsim-RTX4090-Llama-3.1-8B.csv",
            TraceFormat::PrefixBlocks,
            300,
            257_239,
            195_753,
            29_100_521_000,
        ),
    ] {
        let input = TraceInput::new(File::open(shared.join(name)).unwrap()).unwrap();
        let (found, mut reader) = open(input, &ReadOptions::default()).unwrap();
        assert_eq!(found, format, "{name}");
        let found = read_all(reader.as_mut()).unwrap();
        let sum =
            |length: fn(&TraceRequest) -> u32| found.iter().map(|row| u64::from(length(row))).sum::<u64>();
        assert_eq!(
            (found.len(), sum(|row| row.prompt.len()), sum(|row| row.output.len())),
            (requests, prompt_tokens, output_tokens),
            "{name}"
        );
        assert_eq!(found.last().and_then(|row| row.at), Some(SimTime(last_ns)), "{name}");
    }
}
