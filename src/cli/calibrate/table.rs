//! `kvsim calibrate table`: fits profiles to tables of timings.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use rayon::prelude::*;
use serde::Serialize;

use super::host_terms::HostTerms;
use super::output::{FittedOperation, errors_table, fits_table, fitted_operations};
use super::{cannot_write, is_yaml, wrong_use};
use crate::calibrate::{CalibrateError, OperationErrors, Origin, Timings, evaluate, fit_profiles};
use crate::catalog::Gpu;
use crate::cli::console::{Console, Finished};
use crate::cli::progress::Unit;
use crate::cost::Profile;
use crate::whole_file::write_whole;

/// Fit profiles to tables of kernel timings (CSV)
#[derive(Debug, Args)]
pub(super) struct TableArguments {
    /// The tables to fit
    #[arg(required = true, value_name = "FIT")]
    tables: Vec<PathBuf>,
    /// Write the profile to this .yaml file, or a profile for each GPU into this folder
    #[arg(long, value_name = "PROFILE")]
    out: Option<PathBuf>,
    /// Whose host terms the profile gets: a profile (.yaml), or the name of a GPU with a built-in one
    /// [default: those of the file that --out replaces, or of the GPU's built-in profile]
    #[arg(long, value_name = "PROFILE", requires = "out")]
    host: Option<String>,
    /// Compare the fitted profiles with these tables, without the rows that were fitted
    #[arg(long, value_name = "OTHER", num_args = 1..)]
    evaluate: Vec<PathBuf>,
    /// Fit this GPU only
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
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

pub(super) fn table(arguments: &TableArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
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
    let out = arguments.out.as_deref();
    check_out(out, gpus.len())?;
    // Before minutes are spent.
    let hosts: BTreeMap<&str, HostTerms> = match out {
        Some(out) => host_terms(gpus, out, arguments.host.as_deref())?,
        None => BTreeMap::new(),
    };
    let mut others = Timings::read(&arguments.evaluate)?;
    others.keep_one_source();
    others.remove_rows_of(&timings);
    let origin = Origin {
        source: arguments.source.clone(),
        date: arguments.date.clone().unwrap_or_else(today),
        driver: arguments.driver.clone(),
    };
    let mut profiles = fit_with_bar(&timings, &origin, console);
    set_host_terms(&mut profiles, &hosts);
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
    if let Some(out) = out {
        write_profiles(&profiles, out)?;
    }
    for profile in &profiles {
        console.say(format_args!("{} ({})\n{}\n", profile.gpu, profile.source, fits_table(profile)))?;
    }
    left_out_lines(console, "not fitted", &timings.left_out)?;
    if !arguments.evaluate.is_empty() {
        console.say(format_args!("\nOn rows that were not fitted:\n{}", errors_table(&errors)))?;
        left_out_lines(console, "not evaluated", &others.left_out)?;
    }
    if let Some(out) = out {
        console.say("")?;
        hosts
            .iter()
            .try_for_each(|(gpu, terms)| console.say(format_args!("host terms of {gpu}: {terms}")))?;
        console.written("written", out)?;
    }
    Ok(Finished::new(Summary {
        fitted: profiles.iter().flat_map(fitted_operations).collect(),
        evaluated: errors,
        left_out: timings.left_out,
        left_out_of_evaluation: others.left_out,
    }))
}

/// Fits a profile to tables of one GPU that was just measured, and writes it.
pub(super) fn fit_measured(
    tables: &[PathBuf],
    out: &Path,
    driver: &str,
    console: &Console,
) -> Result<Vec<Profile>, Box<dyn Error>> {
    let timings = Timings::read(tables)?;
    let origin = Origin { source: None, date: today(), driver: driver.to_owned() };
    let hosts = host_terms(timings.gpus(), out, None)?;
    let mut profiles = fit_with_bar(&timings, &origin, console);
    set_host_terms(&mut profiles, &hosts);
    write_profiles(&profiles, out)?;
    Ok(profiles)
}

/// Of each GPU, for the file that its profile is written to.
fn host_terms(
    gpus: BTreeSet<&'static str>,
    out: &Path,
    given: Option<&str>,
) -> Result<BTreeMap<&'static str, HostTerms>, Box<dyn Error>> {
    let of_gpu = |name| Ok((name, HostTerms::choose(Gpu::find(name)?, given, &profile_path(out, name))?));
    gpus.into_iter().map(of_gpu).collect()
}

fn set_host_terms(profiles: &mut [Profile], hosts: &BTreeMap<&str, HostTerms>) {
    for profile in profiles {
        if let Some(terms) = hosts.get(profile.gpu.as_str()) {
            profile.host = terms.law;
        }
    }
}

/// `out` is the file of one profile, or the folder of several.
fn profile_path(out: &Path, gpu: &str) -> PathBuf {
    if is_yaml(out) { out.to_owned() } else { out.join(format!("{}.yaml", gpu.to_lowercase())) }
}

fn fit_with_bar(timings: &Timings, origin: &Origin, console: &Console) -> Vec<Profile> {
    let bar = Mutex::new(console.bar("fit", Unit::Rows, Some(timings.num_rows())));
    fit_profiles(timings, origin, &|rows| {
        bar.lock().unwrap_or_else(PoisonError::into_inner).add(rows as u64);
    })
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

fn write_profiles(profiles: &[Profile], out: &Path) -> Result<(), CalibrateError> {
    let folder = if is_yaml(out) { out.parent() } else { Some(out) };
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder).map_err(cannot_write(folder))?;
    }
    profiles.iter().try_for_each(|profile| {
        let path = profile_path(out, &profile.gpu);
        write_whole(&path, profile.to_yaml()).map_err(cannot_write(&path))
    })
}

/// Today in UTC, by the calendar's 400-year cycle.
pub(super) fn today() -> String {
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

/// What it came to.
#[derive(Serialize)]
struct Summary {
    fitted: Vec<FittedOperation>,
    evaluated: Vec<OperationErrors>,
    left_out: BTreeMap<String, usize>,
    left_out_of_evaluation: BTreeMap<String, usize>,
}

fn left_out_lines(console: &Console, what: &str, left_out: &BTreeMap<String, usize>) -> std::io::Result<()> {
    left_out.iter().try_for_each(|(reason, rows)| console.say(format_args!("{what}: {rows} rows, {reason}")))
}
