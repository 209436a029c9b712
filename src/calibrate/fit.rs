//! From timings to a law. Each kernel variant is fitted three times without a third of the shapes; the
//! variant that does best on shapes it has not seen is fitted to all rows from several starts.

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

/// Starts of the last fit: the parameters' own, and random ones.
const NUM_STARTS: u64 = 6;
/// Parts of the shapes that are held out in turn.
const NUM_FOLDS: usize = 3;
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
    let folds = folds::<O>(&rows);
    let validated: Vec<(Vec<O::Law>, f64)> =
        variants.par_iter().map(|variant| cross_validate::<O>(&rows, &folds, variant)).collect();
    // The first of equals, here and below, so that the order of work does not matter.
    let index = (0..variants.len()).min_by(|&a, &b| validated[a].1.total_cmp(&validated[b].1))?;
    let (variant, (laws, _)) = (&variants[index], &validated[index]);
    let optima: Vec<Optimum> =
        (0..NUM_STARTS).into_par_iter().map(|start| solve::<O>(&rows, variant, start)).collect();
    let best = optima.into_iter().min_by(|a, b| a.loss.total_cmp(&b.loss))?;
    let law = rounded_law(&with_free(variant, &best.values));
    Some(Fit {
        rows: rows.len(),
        fitted: variant.free.len(),
        fit_error: error_in_scope::<O>(rows.iter().map(|row| (*row, &law))),
        held_out_error: error_in_scope::<O>(rows.iter().zip(&folds).map(|(row, fold)| (*row, &laws[*fold]))),
        valid: valid_range::<O>(&rows),
        law,
    })
}

/// The part that each row belongs to: parts of as many shapes, in an order that says nothing.
fn folds<O: Operation>(rows: &[&Timing<O::Shape>]) -> Vec<usize> {
    let key = |row: &Timing<O::Shape>| xxh3_64(O::key(&row.shape).as_bytes());
    // With one shape nothing would be left to fit: then points are held out. With two shapes a part is
    // empty, and each of the others is one of them.
    let point = |row: &Timing<O::Shape>| xxh3_64(format!("{:?}", O::quantities(&row.shape)).as_bytes());
    let mut keys: Vec<u64> = rows.iter().map(|row| key(row)).collect();
    if keys.iter().collect::<BTreeSet<_>>().len() < 2 {
        keys = rows.iter().map(|row| point(row)).collect();
    }
    let ranks: BTreeSet<u64> = keys.iter().copied().collect();
    let ranks: BTreeMap<u64, usize> = ranks.into_iter().zip(0..).collect();
    keys.iter().map(|key| ranks[key] % NUM_FOLDS).collect()
}

/// For each part the law fitted to the others, and the mean log error of all rows by them; errors
/// beyond a factor of e are all the same.
fn cross_validate<O: Operation>(
    rows: &[&Timing<O::Shape>],
    folds: &[usize],
    variant: &Variant<O::Law>,
) -> (Vec<O::Law>, f64) {
    let laws: Vec<O::Law> = (0..NUM_FOLDS)
        .into_par_iter()
        .map(|held_out| {
            let fitted: Vec<_> =
                rows.iter().zip(folds).filter(|(_, fold)| **fold != held_out).map(|(row, _)| *row).collect();
            with_free(variant, &solve::<O>(&fitted, variant, 0).values)
        })
        .collect();
    let (mut loss, mut total) = (0.0, 0.0);
    for (row, fold) in rows.iter().zip(folds) {
        let weight = O::weight(&row.shape, row.format, row.gpu);
        let ratio = O::predict_us(&row.shape, row.format, row.gpu, &laws[*fold]) / row.time_us;
        loss += weight * ratio.ln().abs().min(1.0);
        total += weight;
    }
    (laws, loss / total)
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
