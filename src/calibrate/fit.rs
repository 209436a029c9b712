//! From timings to a law: every kernel variant from several starts, the best one kept; then the same
//! again without a third of the shapes, to know what the law is worth on shapes it has not seen.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::errors::errors;
use super::operation::{Operation, Timing, Variant};
use super::optimise::{Optimum, Problem};
use crate::cost::law::{Law, Parameter};
use crate::cost::{Fit, FitError};

/// Starts of each variant: the parameters' own, and random ones.
const NUM_STARTS: u64 = 3;
/// Parts of the shapes that are held out in turn.
const NUM_FOLDS: u64 = 3;
/// Significant digits of a fitted number.
const DIGITS: i32 = 5;

/// Fits the law of operation `O`. None without a row that counts.
pub(super) fn fit<O: Operation>(timings: &[Timing<O::Shape>]) -> Option<Fit<O::Law>>
where
    O::Law: Law,
{
    let rows: Vec<&Timing<O::Shape>> =
        timings.iter().filter(|row| O::weight(&row.shape, row.format, row.gpu) > 0.0).collect();
    let first = rows.first()?;
    let variants = O::variants(first.gpu, first.format);
    let tries: Vec<(usize, u64)> =
        (0..variants.len()).flat_map(|variant| (0..NUM_STARTS).map(move |start| (variant, start))).collect();
    let optima: Vec<(usize, Optimum)> = tries
        .into_par_iter()
        .map(|(index, start)| (index, solve::<O>(&rows, &variants[index], start)))
        .collect();
    // The first of equals, so that the order of work does not matter.
    let (index, best) = optima.into_iter().min_by(|a, b| a.1.loss.total_cmp(&b.1.loss))?;
    let variant = &variants[index];
    let law = rounded_law(&with_free(variant, &best.values));
    Some(Fit {
        rows: rows.len(),
        fitted: variant.free.len(),
        fit_error: error_in_scope::<O>(rows.iter().map(|row| (*row, &law))),
        held_out_error: held_out_error::<O>(&rows, variant),
        valid: valid_range::<O>(&rows),
        law,
    })
}

fn solve<O: Operation>(rows: &[&Timing<O::Shape>], variant: &Variant<O::Law>, start: u64) -> Optimum {
    let parameters = free_parameters(variant);
    let bounds = |pick: fn(&Parameter) -> f64| parameters.iter().map(pick).collect();
    let log_errors = |values: &[f64], errors: &mut Vec<f64>| {
        let law = with_free(variant, values);
        errors.clear();
        errors.extend(
            rows.iter().map(|row| (O::predict_us(&row.shape, row.format, row.gpu, &law) / row.time_us).ln()),
        );
    };
    let problem = Problem {
        low: bounds(|parameter| parameter.low),
        high: bounds(|parameter| parameter.high),
        weights: rows.iter().map(|row| O::weight(&row.shape, row.format, row.gpu)).collect(),
        log_errors: &log_errors,
    };
    let mut random = ChaCha8Rng::seed_from_u64(start);
    let start: Vec<f64> = parameters
        .iter()
        .map(|parameter| {
            let spread = if start == 0 { 0.0 } else { random.random_range(-0.7..0.7) };
            (parameter.start * f64::exp(spread)).clamp(parameter.low, parameter.high)
        })
        .collect();
    problem.solve(&start)
}

fn free_parameters<L: Law>(variant: &Variant<L>) -> Vec<Parameter> {
    variant
        .free
        .iter()
        .filter_map(|name| L::PARAMETERS.iter().find(|parameter| parameter.name == *name))
        .copied()
        .collect()
}

/// The law with fewer digits, as the profile holds it.
fn rounded_law<L: Law>(law: &L) -> L {
    law.with_values(&law.values().into_iter().map(rounded).collect::<Vec<_>>())
}

/// The variant's law with `values` for its free parameters.
fn with_free<L: Law>(variant: &Variant<L>, values: &[f64]) -> L {
    let mut all = variant.law.values();
    for (name, value) in variant.free.iter().zip(values) {
        if let Some(index) = L::PARAMETERS.iter().position(|parameter| parameter.name == *name) {
            all[index] = *value;
        }
    }
    variant.law.with_values(&all)
}

/// Errors on each third of the shapes by laws fitted to the other two.
fn held_out_error<O: Operation>(rows: &[&Timing<O::Shape>], variant: &Variant<O::Law>) -> FitError {
    let keys: BTreeSet<String> = rows.iter().map(|row| O::key(&row.shape)).collect();
    let fold = |row: &Timing<O::Shape>| {
        let mut key = O::key(&row.shape);
        // With fewer shapes than parts nothing would be left to fit: then points are held out.
        if (keys.len() as u64) < NUM_FOLDS {
            key = format!("{:?}", O::quantities(&row.shape));
        }
        xxh3_64(key.as_bytes()) % NUM_FOLDS
    };
    let laws: Vec<O::Law> = (0..NUM_FOLDS)
        .into_par_iter()
        .map(|held_out| {
            let fitted: Vec<_> = rows.iter().copied().filter(|row| fold(row) != held_out).collect();
            with_free(variant, &solve::<O>(&fitted, variant, 0).values)
        })
        .collect();
    error_in_scope::<O>(rows.iter().map(|row| (*row, &laws[fold(row) as usize])))
}

/// The error over the rows in scope; over all where none is.
fn error_in_scope<'a, O: Operation + 'a>(
    rows: impl Iterator<Item = (&'a Timing<O::Shape>, &'a O::Law)> + Clone,
) -> FitError
where
    O::Shape: 'a,
    O::Law: 'a,
{
    let ratio = |(row, law): (&Timing<O::Shape>, &O::Law)| {
        O::predict_us(&row.shape, row.format, row.gpu, law) / row.time_us
    };
    let in_scope: Vec<f64> =
        rows.clone().filter(|(row, _)| O::is_in_scope(&row.shape, row.format, row.gpu)).map(ratio).collect();
    let ratios = if in_scope.is_empty() { rows.map(ratio).collect() } else { in_scope };
    errors(&ratios)
}

fn valid_range<O: Operation>(rows: &[&Timing<O::Shape>]) -> BTreeMap<String, (f64, f64)> {
    let mut valid = BTreeMap::new();
    for (name, value) in rows.iter().flat_map(|row| O::quantities(&row.shape)) {
        let range = valid.entry(name.to_owned()).or_insert((value, value));
        *range = (range.0.min(value), range.1.max(value));
    }
    valid
}

/// To so many significant digits, so that a profile can be read and gives what was evaluated.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = DIGITS - 1 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits.abs());
    if digits >= 0 { (value * scale).round() / scale } else { (value / scale).round() * scale }
}

#[cfg(test)]
mod tests {
    use super::super::operations::{GemmOperation, GemmShape};
    use super::*;
    use crate::catalog::Gpu;
    use crate::cost::Format;
    use crate::cost::gemm::{GemmLaw, Tiling};

    /// Timings that obey a law give a law that predicts them, also where it has not seen them.
    #[test]
    fn the_law_behind_timings_is_found() {
        let gpu = Gpu::find("H100").unwrap();
        let truth = GemmLaw {
            t0_us: 3.0,
            compute_efficiency: 0.7,
            memory_efficiency: 0.8,
            p: 3.0,
            tile_loss: 0.2,
            pad_k: 200.0,
            quantisation_passes: 2.0,
            ..GemmLaw::neutral(Tiling::ByRows)
        };
        let timings: Vec<Timing<GemmShape>> = [8, 64, 200, 1000, 4096]
            .into_iter()
            .flat_map(|m| [1024, 2048, 6144, 14336].map(|n| (m, n)))
            .flat_map(|(m, n)| [1024, 4096, 8192].map(|k| GemmShape { m, n, k }))
            .map(|shape| Timing {
                gpu,
                format: Format::Fp8,
                shape,
                time_us: GemmOperation::predict_us(&shape, Format::Fp8, gpu, &truth),
                source: String::new(),
            })
            .collect();
        let fit = fit::<GemmOperation>(&timings).unwrap();
        assert_eq!(fit.law.tiling, Tiling::ByRows);
        assert!(fit.fit_error.p90_percent < 1.0, "{:?}", fit.fit_error);
        assert!(fit.held_out_error.p90_percent < 3.0, "{:?}", fit.held_out_error);
        assert_eq!((fit.rows, fit.fitted), (60, 11));
        assert_eq!(fit.valid["n"], (1024.0, 14336.0));
    }

    #[test]
    fn numbers_are_rounded_to_five_digits() {
        assert_eq!(rounded(123_456.7), 123_460.0);
        assert_eq!(rounded(-0.001_234_56), -0.001_234_6);
        assert_eq!(rounded(0.0), 0.0);
    }
}
