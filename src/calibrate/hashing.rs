//! Timings of block hashing on a CPU, and the law of each algorithm that is fitted to them.

use std::collections::BTreeMap;
use std::path::Path;

use super::CalibrateError;
use super::errors::errors;
use super::fit::rounded;
use super::optimise::Problem;
use super::row::Row;
use super::table::read_rows;
use crate::cost::HashingLaw;
use crate::cost::HashingProfile;
use crate::cost::hashing::HashingFit;
use crate::cost::law::Law;
use crate::engine::hash::PrefixCachingHashAlgo;

/// One row: the time of one block of a prompt, or that an output fills.
struct HashingTiming {
    block_size: u32,
    has_extra_keys: bool,
    is_output: bool,
    block_ns: f64,
}

impl HashingTiming {
    fn predict_ns(&self, law: &HashingLaw) -> f64 {
        let extra_keys = if self.has_extra_keys { law.extra_keys_ns } else { 0.0 };
        let append = if self.is_output { law.append_ns } else { 0.0 };
        law.block_ns + law.token_ns * f64::from(self.block_size) + extra_keys + append
    }
}

/// Fits the law of every algorithm in a table that `tests/vllm/measure_hashing.py` wrote.
///
/// # Errors
/// What is wrong with the table, with line and column.
pub fn fit_hashing(table: &Path, date: String) -> Result<HashingProfile, CalibrateError> {
    let mut timings: BTreeMap<PrefixCachingHashAlgo, Vec<HashingTiming>> = BTreeMap::new();
    let mut measured_on = String::new();
    let columns = ["algorithm", "of", "block_size", "extra_keys", "block_ns", "measured_on"];
    read_rows(table, &columns, |row| {
        let algorithm = algorithm(row)?;
        let is_output = match row.text("of")? {
            "prompt" => false,
            "output" => true,
            other => return Err(row.wrong("of", format!("found `{other}`"), "prompt, output")),
        };
        let timing = HashingTiming {
            block_size: row.count("block_size")?,
            has_extra_keys: row.text("extra_keys")? != "none",
            is_output,
            block_ns: row.number("block_ns", "nanoseconds above 0", |ns| ns.is_finite() && ns > 0.0)?,
        };
        timings.entry(algorithm).or_default().push(timing);
        row.text("measured_on")?.clone_into(&mut measured_on);
        Ok(())
    })?;
    let algorithms = timings.iter().map(|(algorithm, rows)| (*algorithm, fit(rows))).collect();
    Ok(HashingProfile { measured_on, date, algorithms })
}

fn algorithm(row: &Row<'_>) -> Result<PrefixCachingHashAlgo, CalibrateError> {
    let name = row.text("algorithm")?;
    name.parse().map_err(|_| {
        let known = PrefixCachingHashAlgo::ALL.map(PrefixCachingHashAlgo::name).join(", ");
        row.wrong("algorithm", format!("there is no algorithm `{name}`"), &known)
    })
}

fn fit(rows: &[HashingTiming]) -> HashingFit {
    let law = |values: &[f64]| HashingLaw::neutral().with_values(values);
    let log_errors = |values: &[f64], errors: &mut Vec<f64>| {
        let law = law(values);
        errors.clear();
        errors.extend(rows.iter().map(|row| (row.predict_ns(&law) / row.block_ns).ln()));
    };
    let parameters = HashingLaw::PARAMETERS;
    let problem = Problem {
        low: parameters.iter().map(|parameter| parameter.low).collect(),
        high: parameters.iter().map(|parameter| parameter.high).collect(),
        weights: vec![1.0; rows.len()],
        log_errors: &log_errors,
    };
    let start: Vec<f64> = parameters.iter().map(|parameter| parameter.start).collect();
    let values: Vec<f64> = problem.solve(&start).values.into_iter().map(rounded).collect();
    let law = law(&values);
    let ratios: Vec<f64> = rows.iter().map(|row| row.predict_ns(&law) / row.block_ns).collect();
    HashingFit { rows: rows.len(), fit_error: errors(&ratios), law }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_behind_timings_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hashing.csv");
        let mut text = "algorithm,block_size,extra_keys,of,block_ns,measured_on\n".to_owned();
        for block_size in [16, 64, 256] {
            for (keys, keys_ns) in [("none", 0), ("lora", 250), ("image", 250)] {
                for (of, append_ns) in [("prompt", 0), ("output", 400)] {
                    let ns = 900 + 12 * block_size + keys_ns + append_ns;
                    text += &format!("xxhash,{block_size},{keys},{of},{ns},a CPU\n");
                }
            }
        }
        std::fs::write(&path, &text).unwrap();
        let profile = fit_hashing(&path, "2026-11-30".to_owned()).unwrap();
        assert_eq!(profile.measured_on, "a CPU");
        let fit = profile.algorithms[&PrefixCachingHashAlgo::Xxhash];
        assert_eq!((fit.rows, profile.algorithms.len()), (18, 1));
        for (found, expected) in fit.law.values().into_iter().zip([900.0, 12.0, 250.0, 400.0]) {
            assert!((found / expected - 1.0).abs() < 1e-3, "{:?}", fit.law);
        }
        std::fs::write(&path, text.replacen("xxhash,16,none,prompt", "md5,16,none,prompt", 1)).unwrap();
        let error = fit_hashing(&path, String::new()).unwrap_err().to_string();
        assert!(error.contains(":2: column 1 (`algorithm`): there is no algorithm `md5`"), "{error}");
    }
}
