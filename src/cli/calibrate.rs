//! `kvsim calibrate`: measured kernel timings to a profile, and what a profile is worth.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use rayon::prelude::*;
use serde::Serialize;

use super::calibrate_bench::{self, BenchArguments};
use super::exit;
use crate::calibrate::{
    CalibrateError, Evaluated, OperationErrors, Origin, Timings, evaluate, fit_profiles, scatter_plot,
};
use crate::catalog::Gpu;
use crate::cost::{Fit, FitError, Profile};

/// Fit the cost model to measured timings, or show how well it fits
#[derive(Debug, Args)]
pub(super) struct CalibrateArguments {
    #[command(subcommand)]
    command: CalibrateCommand,
}

#[derive(Debug, Subcommand)]
enum CalibrateCommand {
    Table(TableArguments),
    Bench(BenchArguments),
    Show(ShowArguments),
}

/// Fit profiles to tables of kernel timings (CSV)
#[derive(Debug, Args)]
struct TableArguments {
    /// The tables to fit
    #[arg(required = true, value_name = "FIT")]
    tables: Vec<PathBuf>,
    /// Write the profile to this .yaml file, or a profile for each GPU into this folder
    #[arg(long, value_name = "PROFILE")]
    out: Option<PathBuf>,
    /// Compare the fitted profiles with these tables, without the rows that were fitted
    #[arg(long, value_name = "OTHER", num_args = 1..)]
    evaluate: Vec<PathBuf>,
    /// Fit this GPU only
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where the timings come from [default: what the tables say]
    #[arg(long, value_name = "TEXT")]
    source: Option<String>,
    /// The date in the profile [default: today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
    /// The driver that the timings were taken with
    #[arg(long, value_name = "TEXT", default_value = "not recorded")]
    driver: String,
}

/// Show a profile, and plot its predictions against measured timings
#[derive(Debug, Args)]
struct ShowArguments {
    /// A profile (.yaml), or the name of a GPU with a built-in one
    profile: String,
    /// Tables of timings to compare with
    #[arg(value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// The folder for the plots [default: reports/calibration/GPU]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn calibrate(arguments: &CalibrateArguments) -> Result<u8, Box<dyn Error>> {
    match &arguments.command {
        CalibrateCommand::Table(arguments) => table(arguments),
        CalibrateCommand::Bench(arguments) => calibrate_bench::bench(arguments),
        CalibrateCommand::Show(arguments) => show(arguments),
    }
}

fn table(arguments: &TableArguments) -> Result<u8, Box<dyn Error>> {
    let gpu = arguments.gpu.as_deref().map(Gpu::find).transpose()?;
    let mut timings = Timings::read(&arguments.tables)?;
    timings.keep_one_source();
    if let Some(gpu) = gpu {
        timings.keep_gpu(gpu);
    }
    let gpus = timings.gpus();
    if gpus.is_empty() {
        let found = gpu.map_or("a GPU of the catalogue", |gpu| gpu.name);
        return Err(wrong_use(
            format!("the tables hold no timing of {found} that can be fitted"),
            "give other tables, or another --gpu",
        ));
    }
    check_out(arguments.out.as_deref(), gpus.len())?;
    let mut others = Timings::read(&arguments.evaluate)?;
    others.keep_one_source();
    others.remove_rows_of(&timings);
    let origin = Origin {
        source: arguments.source.clone(),
        date: arguments.date.clone().unwrap_or_else(today),
        driver: arguments.driver.clone(),
    };
    let profiles = fit_profiles(&timings, &origin);
    let errors: Vec<OperationErrors> = profiles
        .par_iter()
        .flat_map_iter(|profile| evaluate(profile, &others))
        .map(|evaluated| evaluated.errors())
        .collect();
    if !arguments.evaluate.is_empty() && errors.is_empty() {
        return Err(wrong_use(
            "--evaluate: every row was fitted, or has no law".to_owned(),
            "give timings of the same GPUs that are not among those that are fitted",
        ));
    }
    if let Some(out) = &arguments.out {
        write_profiles(&profiles, out)?;
    }
    let mut stdout = io::stdout().lock();
    if arguments.json {
        let summary = Summary {
            fitted: profiles.iter().flat_map(fitted_operations).collect(),
            evaluated: errors,
            left_out: timings.left_out,
            left_out_of_evaluation: others.left_out,
        };
        writeln!(stdout, "{}", serde_json::to_string_pretty(&summary)?)?;
        return Ok(exit::OK);
    }
    for profile in &profiles {
        writeln!(stdout, "{} ({})\n{}\n", profile.gpu, profile.source, fits_table(profile))?;
    }
    left_out_lines(&mut stdout, "not fitted", &timings.left_out)?;
    if !arguments.evaluate.is_empty() {
        writeln!(stdout, "\nOn rows that were not fitted:\n{}", errors_table(&errors))?;
        left_out_lines(&mut stdout, "not evaluated", &others.left_out)?;
    }
    if let Some(out) = &arguments.out {
        writeln!(stdout, "\nwritten: {}", out.display())?;
    }
    Ok(exit::OK)
}

fn show(arguments: &ShowArguments) -> Result<u8, Box<dyn Error>> {
    let profile = find_profile(&arguments.profile)?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}\nsource: {}", profile.gpu, profile.source)?;
    writeln!(stdout, "fitted: {}, driver: {}\n", profile.date, profile.driver)?;
    writeln!(stdout, "{}", fits_table(&profile))?;
    if arguments.tables.is_empty() {
        writeln!(stdout, "\nFor plots of predicted against measured times, give tables of timings too.")?;
        return Ok(exit::OK);
    }
    let mut timings = Timings::read(&arguments.tables)?;
    timings.keep_one_source();
    let evaluated = evaluate(&profile, &timings);
    if evaluated.is_empty() {
        return Err(wrong_use(
            format!("the tables hold no timing of {} that the profile has a law for", profile.gpu),
            "give tables with rows of this GPU",
        ));
    }
    let errors: Vec<OperationErrors> = evaluated.iter().map(Evaluated::errors).collect();
    writeln!(stdout, "\nAgainst the tables:\n{}", errors_table(&errors))?;
    let default = || Path::new("reports/calibration").join(profile.gpu.to_lowercase());
    let folder = arguments.out.clone().unwrap_or_else(default);
    let plots: Vec<(String, String)> = evaluated
        .par_iter()
        .map(|evaluated| {
            let name = format!("{}.svg", evaluated.operation.replace(' ', "_"));
            scatter_plot(evaluated).map(|svg| (name, svg))
        })
        .collect::<Result<_, _>>()?;
    std::fs::create_dir_all(&folder).map_err(cannot_write(&folder))?;
    for (name, svg) in &plots {
        let path = folder.join(name);
        std::fs::write(&path, svg).map_err(cannot_write(&path))?;
    }
    writeln!(stdout, "\n{} plots: {}", plots.len(), folder.display())?;
    Ok(exit::OK)
}

fn find_profile(name: &str) -> Result<Profile, Box<dyn Error>> {
    let path = Path::new(name);
    let is_file = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    if !is_file {
        return Ok(Profile::built_in(Gpu::find(name)?)?);
    }
    let text = std::fs::read_to_string(path)
        .map_err(|source| CalibrateError::Read { path: path.to_owned(), source })?;
    Ok(Profile::from_yaml(&text)
        .map_err(|source| CalibrateError::Profile { path: path.to_owned(), source })?)
}

fn wrong_use(problem: String, hint: &str) -> Box<dyn Error> {
    CalibrateError::Use { problem, hint: hint.to_owned() }.into()
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// One file cannot hold several profiles.
fn check_out(out: Option<&Path>, num_gpus: usize) -> Result<(), Box<dyn Error>> {
    match out {
        Some(out) if is_yaml(out) && num_gpus > 1 => Err(wrong_use(
            format!("--out {} is one file, but the tables hold {num_gpus} GPUs", out.display()),
            "give a folder, or choose one with --gpu NAME",
        )),
        Some(out) if !is_yaml(out) && out.is_file() => Err(wrong_use(
            format!("--out {} is a file that does not end in .yaml", out.display()),
            "give a name that ends in .yaml, or a folder",
        )),
        _ => Ok(()),
    }
}

fn cannot_write(path: &Path) -> impl FnOnce(io::Error) -> CalibrateError {
    let path = path.to_owned();
    move |source| CalibrateError::Write { path, source }
}

fn write_profiles(profiles: &[Profile], out: &Path) -> Result<(), CalibrateError> {
    let write = |path: &Path, profile: &Profile| {
        // All of it or nothing: a rename cannot stop half-way.
        let partial = path.with_extension("yaml.partial");
        std::fs::write(&partial, profile.to_yaml()).map_err(cannot_write(&partial))?;
        std::fs::rename(&partial, path).map_err(cannot_write(path))
    };
    if is_yaml(out) {
        if let Some(parent) = out.parent() {
            std::fs::create_dir_all(parent).map_err(cannot_write(parent))?;
        }
        return profiles.iter().try_for_each(|profile| write(out, profile));
    }
    std::fs::create_dir_all(out).map_err(cannot_write(out))?;
    profiles
        .iter()
        .try_for_each(|profile| write(&out.join(format!("{}.yaml", profile.gpu.to_lowercase())), profile))
}

/// Today in UTC, by the calendar's 400-year cycle.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut days = (seconds / 86_400) as i64;
    let is_leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let mut year = 1970;
    while days >= if is_leap(year) { 366 } else { 365 } {
        days -= if is_leap(year) { 366 } else { 365 };
        year += 1;
    }
    let mut month = 1;
    for length in [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    fitted: Vec<FittedOperation>,
    evaluated: Vec<OperationErrors>,
    left_out: std::collections::BTreeMap<String, usize>,
    left_out_of_evaluation: std::collections::BTreeMap<String, usize>,
}

#[derive(Serialize)]
struct FittedOperation {
    gpu: String,
    operation: String,
    rows: usize,
    coefficients: usize,
    fit_error: FitError,
    held_out_error: FitError,
}

fn fitted_operations(profile: &Profile) -> Vec<FittedOperation> {
    let mut all = Vec::new();
    fn add<L>(all: &mut Vec<FittedOperation>, gpu: &str, operation: String, fit: &Fit<L>) {
        all.push(FittedOperation {
            gpu: gpu.to_owned(),
            operation,
            rows: fit.rows,
            coefficients: fit.fitted,
            fit_error: fit.fit_error,
            held_out_error: fit.held_out_error,
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

fn fits_table(profile: &Profile) -> String {
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

fn errors_table(errors: &[OperationErrors]) -> String {
    let header = [
        "GPU", "operation", "rows", "med %", "p90 %", "bias %", "serving rows", "bias %", "all rows", "med %",
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

fn left_out_lines(
    out: &mut impl Write,
    what: &str,
    left_out: &std::collections::BTreeMap<String, usize>,
) -> io::Result<()> {
    left_out.iter().try_for_each(|(reason, rows)| writeln!(out, "{what}: {rows} rows, {reason}"))
}
