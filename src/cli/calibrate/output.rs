//! Tables of errors.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::calibrate::OperationErrors;
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

/// The shapes that were measured: beyond them a prediction is an extrapolation.
pub(super) fn valid_table(profile: &Profile) -> String {
    let mut table = plain_table(&["operation", "measured from and to"], 2);
    for fit in fitted_operations(profile) {
        let ranges = fit.valid.iter().map(|(name, &(low, high))| {
            let (low, high) = (whole(low), whole(high));
            if low == high { format!("{name} {low}") } else { format!("{name} {low}-{high}") }
        });
        table.add_row([fit.operation, ranges.collect::<Vec<_>>().join(", ")]);
    }
    table.trim_fmt()
}

/// With commas between the thousands.
fn whole(value: f64) -> String {
    let digits = format!("{value:.0}");
    let first = digits.len() % 3;
    let mut text = String::new();
    for (index, digit) in digits.char_indices() {
        if index > 0 && index % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
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
