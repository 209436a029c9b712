//! Tables of errors.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::calibrate::OperationErrors;
use crate::chart::grouped;
use crate::cost::host::HostLaw;
use crate::cost::{Fit, FitError, HashingProfile, Profile};

/// How well one law of a profile fits.
#[derive(Serialize)]
pub(super) struct FittedOperation {
    gpu: String,
    operation: String,
    rows: usize,
    coefficients: usize,
    fit_error: FitError,
    held_out_error: FitError,
    /// The smallest and the largest value that was measured, by quantity.
    valid: BTreeMap<String, (f64, f64)>,
}

pub(super) fn fitted_operations(profile: &Profile) -> Vec<FittedOperation> {
    let mut all = Vec::new();
    fn add<L>(all: &mut Vec<FittedOperation>, gpu: &str, operation: String, fit: &Fit<L>) {
        all.push(FittedOperation {
            gpu: gpu.to_owned(),
            operation,
            rows: fit.rows,
            coefficients: fit.fitted,
            fit_error: fit.fit_error,
            held_out_error: fit.held_out_error,
            valid: fit.valid.clone(),
        });
    }
    let gpu = &profile.gpu;
    for (format, fit) in &profile.gemm {
        add(&mut all, gpu, format!("gemm {format}"), fit);
    }
    for (format, fit) in &profile.decode_attention {
        add(&mut all, gpu, format!("decode_attention {format}"), fit);
    }
    for (format, fit) in &profile.prefill_attention {
        add(&mut all, gpu, format!("prefill_attention {format}"), fit);
    }
    if let Some(fit) = &profile.mixed_attention {
        add(&mut all, gpu, "mixed_attention bf16".to_owned(), fit);
    }
    for (format, fit) in &profile.moe {
        add(&mut all, gpu, format!("moe {format}"), fit);
    }
    if let Some(fit) = &profile.nvlink_all_reduce {
        add(&mut all, gpu, "all_reduce".to_owned(), fit);
    }
    for (name, fits) in [
        ("all_reduce", &profile.pcie_all_reduce),
        ("all_gather", &profile.all_gather),
        ("all_to_all", &profile.all_to_all),
        ("reduce_scatter", &profile.reduce_scatter),
    ] {
        for fit in fits {
            add(&mut all, gpu, format!("{name} of {}", fit.law.num_gpus), fit);
        }
    }
    if let Some(fit) = &profile.elementwise {
        add(&mut all, gpu, "elementwise".to_owned(), fit);
    }
    if let Some(fit) = &profile.sampler {
        add(&mut all, gpu, "sampler".to_owned(), fit);
    }
    all
}

/// A table whose columns after the first `num_texts` are right-aligned.
fn plain_table(header: &[&str], num_texts: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    for index in num_texts..header.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Each host term before and after a fit.
pub(super) fn host_terms_table(before: &HostLaw, after: &HostLaw) -> String {
    let terms = |law: &HostLaw| match serde_json::to_value(law) {
        Ok(Value::Object(terms)) => terms,
        _ => Map::default(),
    };
    let (before, after) = (terms(before), terms(after));
    let figure = |value: Option<&Value>| format!("{:.3}", value.and_then(Value::as_f64).unwrap_or(f64::NAN));
    let mut table = plain_table(&["host term", "before", "after"], 1);
    for (name, value) in &after {
        table.add_row([name.clone(), figure(before.get(name)), figure(Some(value))]);
    }
    table.trim_fmt()
}

/// A number with its noun.
pub(in crate::cli) fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

pub(super) fn fits_table(profile: &Profile) -> String {
    let header =
        ["operation", "rows", "coeff.", "fit med %", "p90 %", "bias %", "held out med %", "p90 %", "bias %"];
    let mut table = plain_table(&header, 1);
    for fit in fitted_operations(profile) {
        let (own, held_out) = (fit.fit_error, fit.held_out_error);
        table.add_row([
            fit.operation,
            fit.rows.to_string(),
            fit.coefficients.to_string(),
            format!("{:.1}", own.median_percent),
            format!("{:.1}", own.p90_percent),
            format!("{:+.1}", own.bias_percent),
            format!("{:.1}", held_out.median_percent),
            format!("{:.1}", held_out.p90_percent),
            format!("{:+.1}", held_out.bias_percent),
        ]);
    }
    table.trim_fmt()
}

/// Laws that say little, or nothing of the timings.
pub(super) fn cautions(profile: &Profile) -> Vec<String> {
    const ROWS_PER_COEFFICIENT: usize = 3;
    const WRONG_PERCENT: f64 = 50.0;
    let mut cautions = Vec::new();
    for FittedOperation { gpu, operation, rows, coefficients, fit_error, .. } in fitted_operations(profile) {
        let needed = ROWS_PER_COEFFICIENT * coefficients;
        if rows < needed {
            cautions.push(format!(
                "caution: {operation} on {gpu} has {rows} rows for {coefficients} numbers; give {needed} or more"
            ));
        }
        if fit_error.median_percent > WRONG_PERCENT {
            cautions.push(format!(
                "caution: {operation} on {gpu} is {:.0} % off: are the times in microseconds, and of this GPU?",
                fit_error.median_percent
            ));
        }
    }
    cautions
}

/// The shapes that were measured: beyond them a prediction is an extrapolation.
pub(super) fn valid_table(profile: &Profile) -> String {
    let mut table = plain_table(&["operation", "measured from and to"], 2);
    for fit in fitted_operations(profile) {
        let ranges = fit.valid.iter().map(|(name, &(low, high))| {
            let (low, high) = (grouped(low), grouped(high));
            if low == high { format!("{name} {low}") } else { format!("{name} {low}-{high}") }
        });
        table.add_row([fit.operation, ranges.collect::<Vec<_>>().join(", ")]);
    }
    table.trim_fmt()
}

/// Nanoseconds of each algorithm.
pub(super) fn hashing_table(profile: &HashingProfile) -> String {
    let header =
        ["algorithm", "block ns", "token ns", "extra keys ns", "append ns", "rows", "med %", "p90 %"];
    let mut table = plain_table(&header, 1);
    for (algorithm, fit) in &profile.algorithms {
        table.add_row([
            algorithm.name().to_owned(),
            format!("{:.0}", fit.law.block_ns),
            format!("{:.2}", fit.law.token_ns),
            format!("{:.0}", fit.law.extra_keys_ns),
            format!("{:.0}", fit.law.append_ns),
            fit.rows.to_string(),
            format!("{:.1}", fit.fit_error.median_percent),
            format!("{:.1}", fit.fit_error.p90_percent),
        ]);
    }
    table.trim_fmt()
}

pub(super) fn errors_table(errors: &[OperationErrors]) -> String {
    let header = [
        "GPU",
        "operation",
        "rows",
        "med %",
        "p90 %",
        "bias %",
        "serving rows",
        "bias %",
        "all rows",
        "med %",
        "p90 %",
    ];
    let mut table = plain_table(&header, 2);
    for error in errors {
        table.add_row([
            error.gpu.to_owned(),
            error.operation.clone(),
            error.rows.to_string(),
            format!("{:.1}", error.median_percent),
            format!("{:.1}", error.p90_percent),
            format!("{:+.1}", error.bias_percent),
            error.serving_rows.to_string(),
            error.serving_bias_percent.map_or_else(String::new, |bias| format!("{bias:+.1}")),
            error.all_rows.to_string(),
            format!("{:.1}", error.all_median_percent),
            format!("{:.1}", error.all_p90_percent),
        ]);
    }
    table.trim_fmt()
}
