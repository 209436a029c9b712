//! Every conformance case: our decision log must equal the recorded one byte for byte.

use std::any::Any;
use std::fs::{self, File};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use kvsim::conformance::{Case, first_difference, run_case};
use rayon::prelude::*;

/// What lies beside a case under `name`, plain or with gzip.
fn read(folder: &Path, name: &str) -> Result<String, String> {
    let plain = folder.join(name);
    let zipped = folder.join(format!("{name}.gz"));
    let mut text = String::new();
    let result = if plain.is_file() {
        File::open(&plain).and_then(|mut file| file.read_to_string(&mut text))
    } else {
        File::open(&zipped).and_then(|file| MultiGzDecoder::new(file).read_to_string(&mut text))
    };
    result.map(|_| text).map_err(|error| format!("{}: {error}", plain.display()))
}

/// Names of the cases in a folder, without their endings, in order.
fn case_names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = files
        .filter_map(|file| {
            let file = file.to_str()?.to_owned();
            let file = file.strip_suffix(".gz").unwrap_or(&file);
            Some(file.strip_suffix(".case.json")?.to_owned())
        })
        .collect();
    names.sort_unstable();
    names
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

fn check(folder: &Path, name: &str) -> Result<(), String> {
    let case =
        Case::parse(&read(folder, &format!("{name}.case.json"))?).map_err(|error| error.to_string())?;
    let expected = read(folder, &format!("{name}.expected.jsonl"))?;
    let ours = catch_unwind(AssertUnwindSafe(|| run_case(&case)))
        .map_err(|payload| format!("panics: {}", panic_message(&*payload)))?
        .map_err(|error| error.to_string())?;
    match first_difference(&ours, &expected) {
        None => Ok(()),
        Some(difference) => Err(difference.to_string()),
    }
}

fn check_all(folder: &Path) {
    if !folder.is_dir() {
        eprintln!("no conformance cases were run: {} is not there", folder.display());
        return;
    }
    let names = case_names(folder);
    assert!(!names.is_empty(), "{} has no *.case.json", folder.display());
    let failures: Vec<String> = names
        .par_iter()
        // Two long cases are neighbours.
        .with_max_len(1)
        .filter_map(|name| check(folder, name).err().map(|problem| format!("{name}: {problem}")))
        .collect();
    let failed = failures.len();
    assert!(failed == 0, "{failed} of {} cases differ\n\n{}", names.len(), failures.join("\n\n"));
    eprintln!("{} cases are equal", names.len());
}

#[test]
fn logs_equal_those_of_vllm() {
    let shared = std::env::var_os("KVSIM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    check_all(&shared.join("conformance/cases"));
}

#[test]
fn logs_of_our_own_cases_stay_equal() {
    check_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance"));
}
