//! `kvsim conform`: our decision log of a case, and how it compares with vLLM's.

use std::error::Error;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use flate2::read::MultiGzDecoder;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::console::{Console, Finished};
use super::diagnostic::InFile;
use super::exit;
use super::progress::Unit;
use crate::conformance::{Case, first_difference, run_case};
use crate::text_file::decode_text;

/// Write our decision log of a conformance case, or compare it with vLLM's
#[derive(Debug, Args)]
pub(super) struct ConformArguments {
    /// A case (NAME.case.json, plain or gzip), or a folder of cases with their logs
    /// (NAME.expected.jsonl) beside them
    case: PathBuf,
    /// The log to compare with; shows the first line that differs, and exits with 1 if there is one
    #[arg(long, value_name = "LOG")]
    expect: Option<PathBuf>,
}

pub(super) fn conform(arguments: &ConformArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let path = &arguments.case;
    if path.is_dir() {
        if arguments.expect.is_some() {
            return Err("--expect goes with one case; a folder has its logs beside its cases".into());
        }
        return conform_folder(path, console);
    }
    let log = log_of(path)?;
    let lines = log.lines().count();
    let Some(expected_path) = &arguments.expect else {
        console.product(&log)?;
        if console.tells_events() {
            log.lines().try_for_each(|line| console.row(serde_json::from_str::<Value>(line)?))?;
        }
        return Ok(Finished::new(json!({"lines": lines})));
    };
    let difference = first_difference(&log, &read_text(expected_path)?).map(|it| it.to_string());
    let summary = json!({"lines": lines, "is_equal": difference.is_none(), "difference": difference});
    match difference {
        None => {
            console.say(format_args!("{lines} lines, all equal"))?;
            Ok(Finished::new(summary))
        }
        Some(difference) => {
            console.say(difference)?;
            Ok(Finished::new(summary).with_code(exit::DIFFERENT))
        }
    }
}

fn conform_folder(folder: &Path, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(|error| format!("cannot read the folder {}: {error}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| case_stem(path).is_some())
        .collect();
    cases.sort();
    if cases.is_empty() {
        return Err(format!("{} holds no NAME.case.json", folder.display()).into());
    }
    let bar = Mutex::new(console.bar("conform", Unit::Cases, Some(cases.len())));
    let compare = |path: &PathBuf| {
        let outcome = compare(path);
        bar.lock().unwrap_or_else(PoisonError::into_inner).add(1);
        outcome
    };
    let outcomes: Vec<Result<Option<String>, String>> = cases.par_iter().map(compare).collect();
    drop(bar);
    let mut failed = 0;
    for (path, outcome) in cases.iter().zip(outcomes) {
        let problem = outcome.unwrap_or_else(Some);
        console.row(json!({"case": path, "is_equal": problem.is_none(), "problem": problem}))?;
        if let Some(problem) = problem {
            failed += 1;
            console.say(format_args!("{}: {problem}", path.display()))?;
        }
    }
    let passed = cases.len() - failed;
    console.say(format_args!("{passed} passed, {failed} failed"))?;
    let code = if failed == 0 { exit::OK } else { exit::DIFFERENT };
    Ok(Finished::new(json!({"passed": passed, "failed": failed})).with_code(code))
}

/// The first difference of a case from the log beside it.
fn compare(case: &Path) -> Result<Option<String>, String> {
    let stem = case_stem(case).unwrap_or_default();
    let beside = |end: &str| case.with_file_name(format!("{stem}.expected.jsonl{end}"));
    let expected = [beside(""), beside(".gz")].into_iter().find(|path| path.exists());
    let Some(expected) = expected else { return Err(format!("there is no {stem}.expected.jsonl beside it")) };
    let log = log_of(case).map_err(|error| error.to_string())?;
    let expected = read_text(&expected).map_err(|error| error.to_string())?;
    Ok(first_difference(&log, &expected).map(|difference| difference.to_string()))
}

/// The name of a case, if the file is one.
fn case_stem(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".case.json")?;
    Some(stem.to_owned())
}

fn log_of(path: &Path) -> Result<String, Box<dyn Error>> {
    let case = Case::parse(&read_text(path)?).map_err(|error| InFile::new(path, error))?;
    Ok(run_case(&case).map_err(|error| InFile::new(path, error))?)
}

/// Reads a file, plain or gzip.
fn read_text(path: &Path) -> Result<String, Box<dyn Error>> {
    let cannot =
        |error: io::Error| InFile::with_text(path, format!("cannot read {}: {error}", path.display()), error);
    let bytes = fs::read(path).map_err(cannot)?;
    let bytes = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).map_err(cannot)?;
        plain
    } else {
        bytes
    };
    Ok(decode_text(path, bytes)?)
}
