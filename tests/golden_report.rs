//! The whole report of one small run, byte for byte, as it was worked out by hand:
//!
//! - Session 0 at 0 ms: a prompt of 130 tokens, nothing is known. First token at 1.130 ms, one more
//!   each 1.001 ms, the 20th would be there at 20.149 ms. At 20.1 ms its user gives up, has 19, and
//!   asks again. The step in flight ends at 20.149 ms; then 128 of 130 tokens are hit: first token at
//!   21.151 ms, last at 40.170 ms.
//! - Sessions 1 and 2 at 100 and 200 ms hit the 96 tokens of full blocks of the system prompt:
//!   34 tokens, first token after 1.034 ms, last after 20.053 ms.
//! - Second turns, 500 ms later: prompts of 180 tokens that hit the 144 of full blocks within the
//!   149 computed ones: 36 tokens, first token after 1.036 ms, last after 20.055 ms.
//!
//! 1,060 tokens are looked up (4 x 130 + 3 x 180), 752 are hit (128 + 2 x 96 + 3 x 144).

use std::fs;
use std::path::Path;
use std::process::Command;

fn run(out: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kvsim"))
        .args(["run", "tests/golden/golden.yaml", "--out"])
        .arg(out)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The texts of a plot and the marks in it, a line each.
fn drawn(svg: &str) -> String {
    let (_, svg) = svg.split_once("</style>").unwrap();
    svg.split('<')
        .filter(|element| ["text", "path", "circle", "rect"].iter().any(|name| element.starts_with(name)))
        .map(|element| format!("{}\n", element.trim_end()))
        .collect()
}

#[test]
fn a_report_is_what_was_worked_out_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("golden");
    let table = run(&out);
    let file = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let (table, _) = table.rsplit_once("report: ").unwrap();
    insta::assert_snapshot!("terminal", table);
    insta::assert_snapshot!("summary.json", file("summary.json"));
    insta::assert_snapshot!("requests.csv", file("requests.csv"));
    insta::assert_snapshot!("timeseries.csv", file("timeseries.csv"));
    insta::assert_snapshot!("hit_rate.svg", drawn(&file("hit_rate.svg")));
    insta::assert_snapshot!("kv_usage.svg", drawn(&file("kv_usage.svg")));
}

/// The six whole answers have their first tokens after 1.051 ms (the one that was asked for again), 1.034 ms (twice) and
/// 1.036 ms (three times); the last one ends at 740.108 ms.
#[test]
fn goodput_counts_who_keeps_every_limit() {
    let dir = tempfile::tempdir().unwrap();
    let summary = |limits: &[&str]| -> serde_json::Value {
        let out = dir.path().join("golden");
        let output = Command::new(env!("CARGO_BIN_EXE_kvsim"))
            .args(["run", "tests/golden/golden.yaml", "--quiet", "--out"])
            .arg(&out)
            .args(limits.iter().flat_map(|limit| ["--set", limit]))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&fs::read_to_string(out.join("summary.json")).unwrap()).unwrap()
    };
    assert_eq!(summary(&[]).get("goodput"), None);
    let goodput = &summary(&["goodput.ttft_ms=1.04", "goodput.tpot_ms=2"])["goodput"];
    assert_eq!((&goodput["requests"], &goodput["good_requests"]), (&7.into(), &5.into()));
    assert_eq!((&goodput["missed_ttft"], &goodput["missed_tpot"]), (&1.into(), &0.into()));
    assert_eq!(goodput["unfinished_requests"], 1);
    assert_eq!(goodput["share"], 5.0 / 7.0);
    assert_eq!(goodput["requests_per_s"], 5.0 / 0.740108);
    assert_eq!(goodput["output_tokens_per_s"], 100.0 / 0.740108);
    // A limit is kept by who needs just as long.
    let goodput = &summary(&["goodput.ttft_ms=1.036", "goodput.e2e_ms=20.053"])["goodput"];
    assert_eq!((&goodput["good_requests"], &goodput["missed_ttft"]), (&2.into(), &1.into()));
    assert_eq!(goodput["missed_e2e"], 4);
}

/// Every table of a run, a curve and a sweep, read back: the same columns and cells as in CSV.
#[cfg(feature = "parquet")]
#[test]
fn parquet_holds_what_csv_does() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    let is_same = |cell: &str, field: &Field| match field {
        Field::Null => cell.is_empty(),
        Field::Long(value) => cell.parse() == Ok(*value),
        Field::ULong(value) => cell.parse() == Ok(*value),
        Field::Double(value) => cell.parse() == Ok(*value),
        Field::Bool(value) => cell.parse() == Ok(*value),
        Field::Str(text) => cell == text,
        _ => false,
    };
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("run"));
    let evicting = [
        "--set=engine.num_gpu_blocks_override=17",
        "--set=engine.max_model_len=256",
        "--set=workload.chat.max_context_tokens=256",
    ];
    let golden = ["run", "tests/golden/golden.yaml"];
    let fleet = ["--set=cluster={replicas: 2}", "--set=workload.chat.num_sessions=9"];
    let commands: [(&str, &[&str]); 4] = [
        ("evictions", &[&golden[..], &evicting].concat()),
        ("fleet", &[&golden[..], &evicting, &fleet].concat()),
        ("curve", &["curve", "tests/cmd/curve_table.in/scenario.yaml", "--simulate", "5000tokens,2blocks"]),
        ("sweep", &["sweep", "tests/cmd/sweep_table.in/sweep.yaml"]),
    ];
    for (name, arguments) in commands {
        let status = Command::new(env!("CARGO_BIN_EXE_kvsim"))
            .args(arguments)
            .args(["--quiet", "--out"])
            .arg(dir.path().join(name))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(status.unwrap().success());
    }
    let mut compared = Vec::new();
    for folder in ["run", "evictions", "fleet", "curve", "sweep"] {
        for entry in fs::read_dir(dir.path().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "csv") {
                continue;
            }
            let mut csv = csv::Reader::from_path(&path).unwrap();
            let reader = SerializedFileReader::try_from(path.with_extension("parquet").as_path()).unwrap();
            let schema = reader.metadata().file_metadata().schema();
            let names: Vec<&str> = schema.get_fields().iter().map(|field| field.name()).collect();
            assert!(csv.headers().unwrap().iter().eq(names), "{}", path.display());
            let mut rows = reader.get_row_iter(None).unwrap();
            let mut num_rows = 0;
            for record in csv.records() {
                let (record, row) = (record.unwrap(), rows.next().unwrap().unwrap());
                num_rows += 1;
                for (cell, (name, field)) in record.iter().zip(row.get_column_iter()) {
                    assert!(is_same(cell, field), "{}: {name}: {cell} is {field:?}", path.display());
                }
            }
            assert!(rows.next().is_none());
            compared.push((folder, path.file_stem().unwrap().to_owned(), num_rows > 0));
        }
    }
    compared.sort();
    let expected = [
        ("curve", "breakdown", true),
        ("curve", "curve", true),
        ("evictions", "blocks", true),
        ("evictions", "requests", true),
        ("evictions", "timeseries", true),
        ("fleet", "blocks", true),
        ("fleet", "replicas", true),
        ("fleet", "requests", true),
        ("fleet", "timeseries", true),
        ("run", "blocks", false),
        ("run", "requests", true),
        ("run", "timeseries", true),
        ("sweep", "points", true),
        ("sweep", "results", true),
    ];
    assert_eq!(compared, expected.map(|(folder, stem, has_rows)| (folder, stem.into(), has_rows)));
}
