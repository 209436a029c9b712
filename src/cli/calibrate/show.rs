//! `kvsim calibrate show`: a profile's errors, and plots of what it predicts against measured times.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Args;
use rayon::prelude::*;
use serde_json::json;

use super::bench::read_profile;
use super::output::{errors_table, fits_table, fitted_operations, valid_table};
use super::{ProfileName, cannot_write, wrong_use};
use crate::calibrate::{Evaluated, OperationErrors, Timings, evaluate, scatter_plot};
use crate::cli::console::{Console, Finished};
use crate::cost::Profile;
use crate::whole_file::write_whole;

/// Show a profile, and plot its predictions against measured timings
#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// A profile (.yaml), or the name of a GPU with a built-in one
    profile: String,
    /// Tables of timings to compare with
    #[arg(value_name = "TABLE")]
    tables: Vec<PathBuf>,
    /// The folder for the plots [default: reports/calibration/GPU]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn show(arguments: &ShowArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let profile = find_profile(&arguments.profile)?;
    console.say(format_args!("{}\nsource: {}", profile.gpu, profile.source))?;
    console.say(format_args!("fitted: {}, driver: {}\n", profile.date, profile.driver))?;
    console.say(fits_table(&profile))?;
    console.say(format_args!("\n{}", valid_table(&profile)))?;
    let summary = |errors: &[OperationErrors]| {
        Finished::new(json!({
            "gpu": profile.gpu,
            "source": profile.source,
            "date": profile.date,
            "driver": profile.driver,
            "fitted": fitted_operations(&profile),
            "evaluated": errors,
        }))
    };
    if arguments.tables.is_empty() {
        console.say("\nFor plots of predicted against measured times, give tables of timings too.")?;
        return Ok(summary(&[]));
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
    console.say(format_args!("\nAgainst the tables:\n{}", errors_table(&errors)))?;
    let default = || Path::new("reports/calibration").join(profile.gpu.to_lowercase());
    let folder = arguments.out.clone().unwrap_or_else(default);
    let plots: Vec<(String, String)> = evaluated
        .par_iter()
        .map(|evaluated| {
            let name = format!("{}.svg", evaluated.operation.replace(' ', "_"));
            (name, scatter_plot(evaluated))
        })
        .collect();
    std::fs::create_dir_all(&folder).map_err(cannot_write(&folder))?;
    for (name, svg) in &plots {
        let path = folder.join(name);
        write_whole(&path, svg).map_err(cannot_write(&path))?;
    }
    console.say("")?;
    console.written(&format!("{} plots", plots.len()), &folder)?;
    Ok(summary(&errors))
}

fn find_profile(name: &str) -> Result<Profile, Box<dyn Error>> {
    match ProfileName::parse(name)? {
        ProfileName::Gpu(gpu) => Ok(Profile::built_in(gpu)?.clone()),
        ProfileName::File(path) => read_profile(path),
    }
}
