//! `kvsim calibrate gpu`: times the kernels of a decoder layer on the GPU at hand.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::output::fits_table;
use super::table::fit_measured;
use crate::calibrate::gpu::{
    Backend, DeviceKind, Effort, Identity, Measurement, Operation, Outcome, Session, SessionReport,
    TableFolder, find_device, list_devices,
};
use crate::catalog::Gpu;
use crate::cli::console::{Console, Finished};
use crate::cli::exit;
use crate::cli::progress::Unit;

/// Time the kernels of a decoder layer on this machine's GPU, and write timing tables
#[derive(Debug, Args)]
pub(super) struct GpuArguments {
    /// Fewer shapes, within 90 s of GPU time
    #[arg(long, conflicts_with = "check")]
    quick: bool,
    /// Write nothing: run every kernel on small shapes and compare it with f64; renderers on the CPU
    /// will do
    #[arg(long, conflicts_with = "out")]
    check: bool,
    /// Which way to the GPU [default: the first that finds one]
    #[arg(long, value_enum)]
    backend: Option<BackendName>,
    /// Which of several GPUs, counted from 0 in the order of --list
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// List the GPUs there are, and end
    #[arg(long)]
    list: bool,
    /// Measure although another process computes on the GPU
    #[arg(long)]
    shared: bool,
    /// The folder for the tables [default: reports/calibration/GPU]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BackendName {
    /// NVIDIA's driver
    Cuda,
    /// Vulkan, Metal or Direct3D 12
    Wgpu,
}

impl From<BackendName> for Backend {
    fn from(name: BackendName) -> Self {
        match name {
            BackendName::Cuda => Self::Cuda,
            BackendName::Wgpu => Self::Wgpu,
        }
    }
}

/// There is no GPU to measure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(in crate::cli) struct NoGpu(String);

pub(super) fn calibrate_gpu(arguments: &GpuArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let backend = arguments.backend.map(Backend::from);
    if arguments.list {
        return list(backend, console);
    }
    let device = find_device(backend, arguments.device, arguments.check);
    let mut device = device.map_err(|error| NoGpu(error.to_string()))?;
    let identity = device.identity().clone();
    if let Some(others) = identity.shared_with.as_ref().filter(|_| !arguments.shared) {
        return Err(format!(
            "{} is in use by {others}, which would disturb the timings; end it, or give --shared",
            identity.name
        )
        .into());
    }
    let effort = match arguments {
        GpuArguments { check: true, .. } => Effort::Check,
        GpuArguments { quick: true, .. } => Effort::Quick,
        _ => Effort::Full,
    };
    let target = arguments.out.clone().unwrap_or_else(|| default_folder(&identity.name));
    // Before minutes are spent.
    let folder = (effort != Effort::Check).then(|| TableFolder::create(&target)).transpose()?;
    console.note(format_args!("{} ({}, {})", identity.name, identity.backend, identity.driver))?;
    let mut bar = console.bar(&identity.name, Unit::Operations, None);
    let report = Session::new(device.as_mut(), effort).run(&mut |done, all, operation| {
        bar.set_all(all);
        bar.remark(operation.to_string());
        bar.set(done as f64, None);
    });
    drop(bar);
    if report.timed().next().is_none() {
        return Err(format!("nothing could be measured\n{}", problems(&report)).into());
    }
    let for_a_fit = folder.map(|folder| folder.write(&report)).transpose()?;
    console.say(summary(&report))?;
    problems(&report).lines().try_for_each(|line| console.note(line))?;
    if let Some(tables) = for_a_fit {
        console.written("tables", &target)?;
        console.say("")?;
        fit(&tables, &target, &report, console)?;
    }
    let is_bad = |m: &&Measurement| matches!(m.outcome, Outcome::Wrong | Outcome::Failed(_));
    let bad = report.measurements.iter().filter(is_bad).count();
    let summary = json!({
        "gpu": identity.name,
        "backend": identity.backend,
        "driver": identity.driver,
        "measurements": report.measurements.len(),
        "timed": report.timed().count(),
        "wrong_or_failed": bad,
    });
    Ok(Finished::new(summary).with_code(if bad > 0 { exit::DIFFERENT } else { exit::OK }))
}

/// Fits a profile to the tables, beside them.
fn fit(
    tables: &[PathBuf],
    target: &Path,
    report: &SessionReport,
    console: &Console,
) -> Result<(), Box<dyn Error>> {
    let name = &report.identity.name;
    if tables.is_empty() {
        console.note("not fitted: there is no timing that a law is fitted to")?;
    } else if Gpu::find(name).is_err() {
        console.note(format_args!(
            "not fitted: the catalogue of GPUs has no {name}, whose peaks a fit starts from"
        ))?;
    } else {
        let out = target.join("profile.yaml");
        for profile in fit_measured(tables, &out, &report.identity.driver, console)? {
            console.say(format_args!("{}\n", fits_table(&profile)))?;
        }
        console.written("profile", &out)?;
    }
    Ok(())
}

fn list(backend: Option<Backend>, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let (devices, reasons) = list_devices(backend);
    let (gpus, software): (Vec<_>, Vec<_>) =
        devices.iter().partition(|(_, _, identity)| identity.kind == DeviceKind::Gpu);
    for (index, (_, _, identity)) in gpus.iter().enumerate() {
        let (backend, driver) = (&identity.backend, &identity.driver);
        console.say(format_args!("{index}: {} ({backend}, {driver})", identity.name))?;
    }
    for (_, _, identity) in &software {
        console.say(format_args!(
            "-: {} ({}), which computes on the CPU: for --check only",
            identity.name, identity.backend
        ))?;
    }
    reasons.iter().try_for_each(|reason| console.note(format_args!("-: {reason}")))?;
    let of_kind = |devices: &[&(Backend, usize, Identity)]| -> Vec<Value> {
        let of_device = |it: &Identity| json!({"name": it.name, "backend": it.backend, "driver": it.driver});
        devices.iter().map(|(_, _, identity)| of_device(identity)).collect()
    };
    let summary = json!({"gpus": of_kind(&gpus), "software": of_kind(&software)});
    Ok(Finished::new(summary).with_code(if gpus.is_empty() { exit::NO_GPU } else { exit::OK }))
}

/// By the catalogue's name of the GPU, or the driver's.
fn default_folder(name: &str) -> PathBuf {
    let name = Gpu::find(name).map_or(name, |gpu| gpu.name);
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    Path::new("reports/calibration").join(name.chars().map(plain).collect::<String>())
}

/// A row for each operation and kernel.
fn summary(report: &SessionReport) -> String {
    let mut rows: BTreeMap<(&str, &str, &str), Vec<&Measurement>> = BTreeMap::new();
    for measurement in &report.measurements {
        if let Some(kernel) = &measurement.kernel {
            let key = (measurement.operation.name(), kernel.name.as_str(), kernel.dtype.name());
            rows.entry(key).or_default().push(measurement);
        }
    }
    let is_check = report.effort == Effort::Check;
    let mut header =
        vec!["operation", "kernel", "type", if is_check { "right" } else { "timed" }, "of", "error"];
    if !is_check {
        header.extend(["spread", "best"]);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    for index in 3..8 {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for ((operation, kernel, dtype), measurements) in rows {
        let errors = measurements.iter().filter_map(|m| m.error);
        let mut spreads: Vec<f64> = measurements.iter().filter_map(|m| Some(timing(m)?.spread)).collect();
        spreads.sort_by(f64::total_cmp);
        let spread = spreads.get(spreads.len() / 2).map(|spread| format!("{:.1} %", spread * 100.0));
        let mut row = vec![
            operation.to_owned(),
            kernel.to_owned(),
            dtype.to_owned(),
            spreads.len().to_string(),
            measurements.len().to_string(),
            format!("{:.0e}", errors.fold(0.0, f64::max)),
        ];
        if !is_check {
            row.extend([spread.unwrap_or_default(), best(&measurements)]);
        }
        table.add_row(row);
    }
    table.trim_fmt()
}

fn timing(measurement: &Measurement) -> Option<&crate::calibrate::gpu::Timing> {
    match &measurement.outcome {
        Outcome::Timed(timing) => Some(timing),
        _ => None,
    }
}

/// The highest rate of an operation's rows, or the shortest time where it has no rate.
fn best(measurements: &[&Measurement]) -> String {
    let highest = |rate: fn(&Measurement) -> f64| {
        let rates = measurements.iter().filter_map(|m| Some(rate(m) / timing(m)?.median_us));
        rates.fold(0.0, f64::max)
    };
    if measurements.iter().all(|m| timing(m).is_none()) {
        return String::new();
    }
    match measurements[0].operation {
        Operation::Gemm { .. } => format!("{:.1} TFLOP/s", highest(|m| m.operation.flops()) / 1e6),
        Operation::Attention(_) if measurements[0].operation.name() != "decode_attention" => {
            format!("{:.1} TFLOP/s", highest(|m| m.operation.flops()) / 1e6)
        }
        Operation::Launch | Operation::GraphReplay { .. } | Operation::AllReduce { .. } => {
            let times = measurements.iter().filter_map(|m| Some(timing(m)?.median_us));
            format!("{:.1} us", times.fold(f64::INFINITY, f64::min))
        }
        _ => {
            let bytes = |m: &Measurement| {
                let element = m.kernel.as_ref().map_or(0, |kernel| kernel.dtype.bytes());
                m.operation.bytes_moved(element) as f64
            };
            format!("{:.1} GB/s", highest(bytes) / 1e3)
        }
    }
}

/// What did not go well, a line each, the same only once.
fn problems(report: &SessionReport) -> String {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for measurement in &report.measurements {
        let operation = measurement.operation;
        let line = match &measurement.outcome {
            Outcome::Timed(_) => continue,
            Outcome::Wrong => {
                let error =
                    measurement.error.map_or_else(String::new, |error| format!(" (error {error:.0e})"));
                format!("wrong: {operation}{error}; the kernel was not timed")
            }
            Outcome::Failed(reason) => format!("failed: {operation}: {reason}"),
            Outcome::LeftOut(reason) => format!("left out: {}: {reason}", operation.name()),
        };
        *lines.entry(line).or_default() += 1;
    }
    let timed: Vec<&Measurement> = report.timed().map(|(measurement, _, _)| measurement).collect();
    let throttled = timed.iter().filter(|m| !m.telemetry.throttle_reasons.is_empty());
    for measurement in throttled {
        let reasons = measurement.telemetry.throttle_reasons.join(", ");
        *lines.entry(format!("clocks were held down ({reasons})")).or_default() += 1;
    }
    if report.repeated_batches > 0 {
        let line = "16 operations were timed again, since the clocks had moved".to_owned();
        lines.insert(line, report.repeated_batches as usize);
    }
    let lines = lines.into_iter().map(|(line, count)| {
        if count == 1 { format!("{line}\n") } else { format!("{line} ({count} times)\n") }
    });
    lines.collect()
}
