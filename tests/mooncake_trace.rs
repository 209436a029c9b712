//! Mooncake traces: rows, mistakes in them, our sample, and the recorded traces where they lie
//! beside the repository.

use std::fs::File;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use kvsim::prompt::TokenRun;
use kvsim::units::SimTime;
use kvsim::workload::trace::{Trace, TraceConfig, TraceFormat, TraceInput};
use kvsim::workload::{Arrival, Workload, WorkloadError};
use proptest::prelude::*;

const ROW: &str = r#"{"timestamp": 5, "input_length": 513, "output_length": 7, "hash_ids": [4, 9]}"#;

fn config() -> TraceConfig {
    TraceConfig { format: Some(TraceFormat::Mooncake), ..TraceConfig::new("") }
}

fn read(text: impl Into<Vec<u8>>, config: &TraceConfig) -> Result<Vec<Arrival>, WorkloadError> {
    let mut trace = Trace::new(TraceInput::new(Cursor::new(text.into())).unwrap(), config, None, 1).unwrap();
    let mut arrivals = Vec::new();
    while let Some(at) = trace.peek()? {
        let arrival = trace.next()?.unwrap();
        assert_eq!(arrival.at, at);
        arrivals.push(arrival);
    }
    Ok(arrivals)
}

/// The message about this text after one good row.
fn mistake(text: impl AsRef<[u8]>) -> String {
    let text = [ROW.as_bytes(), b"\n", text.as_ref()].concat();
    read(text, &config()).unwrap_err().to_string()
}

/// The message about the good row with `from` replaced by `to`.
fn mistyped(from: &str, to: &str) -> String {
    assert!(ROW.contains(from));
    mistake(ROW.replace(from, to))
}

#[test]
fn a_row_is_its_time_lengths_and_runs() {
    let arrivals = read([ROW, ROW].join("\n"), &config()).unwrap();
    assert_eq!(arrivals.len(), 2);
    let [first, second] = [&arrivals[0].request, &arrivals[1].request];
    assert_eq!(arrivals[0].at, SimTime::from_ms(5));
    assert_eq!((first.index, second.index), (0, 1));
    assert_eq!(first.prompt.runs(), [TokenRun { start: 2048, len: 512 }, TokenRun { start: 4608, len: 1 }]);
    assert_eq!(first.prompt, second.prompt);
    assert_eq!((first.output.len(), second.output.len()), (7, 7));
    assert!(first.output.ids(0, 7).all(|id| second.output.ids(0, 7).all(|other| other != id)));
}

#[test]
fn options_scale_time_end_the_trace_and_set_the_size_of_a_hash_id() {
    let rows = [ROW, &ROW.replace("5,", "1005,"), "no row"].join("\n");
    let options = TraceConfig { max_requests: Some(2), rate_scale: 2.0, ..config() };
    let at: Vec<_> = read(rows, &options).unwrap().iter().map(|arrival| arrival.at).collect();
    assert_eq!(at, [SimTime(2_500_000), SimTime(502_500_000)]);

    let options = TraceConfig { hash_id_tokens: Some(300), ..config() };
    let runs = read(ROW, &options).unwrap()[0].request.prompt.clone();
    assert_eq!(runs.runs(), [TokenRun { start: 1200, len: 300 }, TokenRun { start: 2700, len: 213 }]);
}

#[test]
fn byte_order_mark_crlf_blank_lines_and_unknown_fields_are_accepted() {
    let row = ROW.replace('{', r#"{"chat": {"id": [1, null]}, "#);
    let text = format!("\u{feff}{row}\r\n\r\n  \n{ROW}\r\n\n");
    assert_eq!(read(text, &config()).unwrap().len(), 2);
    assert!(read("", &config()).unwrap().is_empty());
}

#[test]
fn a_row_that_is_not_json_is_named_by_line() {
    assert_eq!(
        mistake(&ROW[..30]),
        "line 2: found a row that ends at column 31, where the end of a string should be, expected valid JSON"
    );
    assert_eq!(
        mistake(&ROW[..55]),
        "line 2, field `output_length`: found a row that ends at column 55, where a value should be, expected a \
         whole number of tokens from 1 to 2147483647"
    );
    assert_eq!(
        mistake(format!("\n{ROW}}}")),
        format!(
            "line 3: found invalid JSON at column {}, where the end of the row should be, expected valid JSON",
            ROW.len() + 1
        )
    );
    assert_eq!(mistake("[1, 2]"), "line 2: found a list, expected a JSON object");
    assert_eq!(
        mistake(b"{\"timestamp\": 5, \"\xff\": 1}"),
        "line 2: found bytes that are not UTF-8 at column 19, expected UTF-8 text"
    );
}

#[test]
fn a_missing_or_repeated_field_is_named() {
    assert_eq!(
        mistyped("\"input_length\": 513, ", ""),
        "line 2, field `input_length`: found nothing, expected a whole number of tokens from 1 to 2147483647"
    );
    assert_eq!(
        mistyped("\"timestamp\": 5, ", ""),
        "line 2, field `timestamp`: found nothing, expected milliseconds from 0 to 18446744073709"
    );
    assert_eq!(
        mistyped(", \"hash_ids\": [4, 9]", ""),
        "line 2, field `hash_ids`: found nothing, expected a list of whole numbers from 0 to 18446744073709551615"
    );
    assert_eq!(
        mistyped("{", "{\"timestamp\": 5, "),
        "line 2, field `timestamp`: found a second value, expected one"
    );
}

#[test]
fn numbers_out_of_range_are_named() {
    let length = "expected a whole number of tokens from 1 to 2147483647";
    for (value, found) in [
        ("-513", "`-513`"),
        ("513.0", "`513.0`"),
        ("0", "`0`"),
        ("2147483648", "`2147483648`"),
        ("100000000000000000000", "`100000000000000000000`"),
        ("\"513\"", "\"513\""),
        ("null", "`null`"),
        ("NaN", "invalid JSON at column 34, where a value should be"),
    ] {
        assert_eq!(mistyped("513", value), format!("line 2, field `input_length`: found {found}, {length}"));
    }
    assert_eq!(mistyped("7", "0"), format!("line 2, field `output_length`: found `0`, {length}"));
    let time = "expected milliseconds from 0 to 18446744073709";
    assert_eq!(
        mistyped("5, ", "NaN, "),
        format!(
            "line 2, field `timestamp`: found invalid JSON at column 15, where a value should be, {time}"
        )
    );
    assert_eq!(mistyped("5, ", "-5, "), format!("line 2, field `timestamp`: found `-5`, {time}"));
    let ids = "expected a list of whole numbers from 0 to 18446744073709551615";
    for (value, found) in [
        ("[4, 18446744073709551616]", "`18446744073709551616`"),
        ("[4, -9]", "`-9`"),
        ("[4, 9.5]", "`9.5`"),
        ("4", "`4`"),
    ] {
        assert_eq!(mistyped("[4, 9]", value), format!("line 2, field `hash_ids`: found {found}, {ids}"));
    }
    // Up to here ids are taken as they are.
    let largest = read(ROW.replace("[4, 9]", "[4, 9007199254740991]"), &config()).unwrap();
    assert_eq!(largest[0].request.prompt.get(512), 9_007_199_254_740_991 * 512);
}

#[test]
fn hash_ids_must_cover_the_prompt() {
    let covers = "2 to cover the prompt's 513 tokens";
    for (ids, num_ids) in [("[]", 0), ("[4]", 1), ("[4, 9, 10]", 3)] {
        assert_eq!(
            mistyped("[4, 9]", ids),
            format!("line 2, field `hash_ids`: found {num_ids} ids of 512 tokens each, expected {covers}")
        );
    }
}

#[test]
fn time_must_not_run_backwards() {
    assert_eq!(
        mistyped("5,", "4,"),
        "line 2, field `timestamp`: found 0.004 s, expected at least 0.005 s, the time of a row before; sort the \
         rows, or set `sort_window_s` to 1 or more"
    );
}

#[test]
fn the_first_bad_row_ends_the_trace() {
    let input = TraceInput::new(Cursor::new(format!("{{}}\n{ROW}"))).unwrap();
    let mut trace = Trace::new(input, &config(), None, 1).unwrap();
    assert!(trace.peek().is_err());
    assert!(trace.next().unwrap().is_none());
}

#[test]
fn settings_are_checked() {
    for options in [
        TraceConfig { rate_scale: 0.0, ..config() },
        TraceConfig { rate_scale: f64::NAN, ..config() },
        TraceConfig { hash_id_tokens: Some(0), ..config() },
    ] {
        assert!(options.validate().is_err(), "{options:?}");
    }
    let options: TraceConfig = serde_yaml::from_str("{path: chat.jsonl.gz, format: mooncake}").unwrap();
    assert_eq!(options, TraceConfig { path: "chat.jsonl.gz".into(), ..config() });
    assert!(serde_yaml::from_str::<TraceConfig>("{path: a, format: mooncake, speed: 2}").is_err());
}

proptest! {
    #[test]
    fn runs_are_the_tokens_of_the_hash_ids(
        ids in prop::collection::vec(0u64..5, 1..20),
        hash_id_tokens in 1u32..40,
        last in 0u32..40,
    ) {
        let input_length = (ids.len() as u32 - 1) * hash_id_tokens + 1 + last % hash_id_tokens;
        let row = format!(
            r#"{{"timestamp":0,"input_length":{input_length},"output_length":1,"hash_ids":{ids:?}}}"#
        );
        let options = TraceConfig { hash_id_tokens: Some(hash_id_tokens), ..config() };
        let prompt = &read(row, &options).unwrap()[0].request.prompt;
        let expanded: Vec<u64> = ids
            .iter()
            .flat_map(|id| (0..u64::from(hash_id_tokens)).map(move |i| id * u64::from(hash_id_tokens) + i))
            .take(input_length as usize)
            .collect();
        prop_assert_eq!(prompt.ids(0, prompt.len()).collect::<Vec<_>>(), expanded);
    }
}

/// Requests, sum of prompt tokens, sum of answer tokens, and of the last request the time, prompt
/// and answer tokens and the first and last token id.
type Figures = (usize, u64, u64, (SimTime, u32, u32, u64, u64));

fn figures(path: &Path) -> Figures {
    let input = TraceInput::new(File::open(path).unwrap()).unwrap();
    let mut trace = Trace::new(input, &TraceConfig::new(""), None, 1).unwrap();
    let (mut requests, mut prompt_tokens, mut answer_tokens, mut last) = (0, 0, 0, Default::default());
    while let Some(Arrival { at, request: asked }) = trace.next().unwrap() {
        requests += 1;
        prompt_tokens += u64::from(asked.prompt.len());
        answer_tokens += u64::from(asked.output.len());
        let end = asked.prompt.len() - 1;
        last = (at, asked.prompt.len(), asked.output.len(), asked.prompt.get(0), asked.prompt.get(end));
    }
    (requests, prompt_tokens, answer_tokens, last)
}

/// Our sample; the expected figures were counted from the file with Python's json.
#[test]
fn our_sample_is_read_whole() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/mooncake_sample.jsonl");
    assert_eq!(
        figures(&sample),
        (200, 692_207, 61_438, (SimTime::from_ms(474_424), 6_058, 429, 4 * 512, 467 * 512 + 425))
    );
}

/// The recorded traces; the expected figures were counted from the files with Python's json.
#[test]
fn recorded_traces_are_read_whole() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("KVSIM_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let traces = shared.join("data/traces");
    if !traces.is_dir() {
        eprintln!("skipped: there is no {}", traces.display());
        return;
    }
    assert_eq!(
        figures(&traces.join("mooncake_fast25_conversation_trace.jsonl.gz")),
        (12_031, 144_793_823, 4_122_048, (SimTime::from_ms(3_536_999), 20_774, 508, 0, 182_789 * 512 + 293))
    );
    assert_eq!(
        figures(&traces.join("mooncake_fast25_synthetic_trace.jsonl.gz")),
        (
            3_993,
            61_194_628,
            595_432,
            (SimTime::from_ms(1_022_025), 18_440, 83, 17_915 * 512, 43_923 * 512 + 7)
        )
    );
}
