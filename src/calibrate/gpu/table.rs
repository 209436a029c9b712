//! Measurements as timing tables: CSV files with the columns that `kvsim calibrate table` reads, a
//! file with all that is known of each measurement, and a manifest.

use std::path::{Path, PathBuf};

use csv::Writer;
use serde_json::json;

use super::device::{DeviceKind, ElementType, Kernel};
use super::operation::{Attention, Batch, Operation};
use super::session::{Measurement, Outcome, SessionReport};
use crate::catalog::Gpu;
use crate::report::{Folder, MANIFEST, ReportError};

/// Why tables could not be written.
pub type TableError = ReportError;

/// What every row of a table starts with.
struct Origin<'a> {
    framework: String,
    gpu: String,
    report: &'a SessionReport,
}

/// The operations of one file and its columns between `dtype` and `time_us`.
struct Table {
    file: &'static str,
    /// The cost model has a law that is fitted to it.
    has_a_law: bool,
    columns: &'static [&'static str],
    /// The values of these columns, for an operation that belongs into the file.
    row: fn(&Operation) -> Option<Vec<String>>,
}

const TABLES: [Table; 6] = [
    Table {
        file: "gemm.csv",
        has_a_law: true,
        columns: &["m", "n", "k"],
        row: |operation| match operation {
            Operation::Gemm { m, n, k, .. } => Some(vec![m.to_string(), n.to_string(), k.to_string()]),
            _ => None,
        },
    },
    Table {
        file: "attention.csv",
        has_a_law: true,
        columns: &[
            "kv_dtype",
            "batch",
            "q_len",
            "kv_len",
            "kv_past",
            "n_decode",
            "kv_decode",
            "heads_q",
            "heads_kv",
            "head_dim",
            "window",
        ],
        row: |operation| match operation {
            Operation::Attention(attention) => Some(attention_row(attention)),
            _ => None,
        },
    },
    Table {
        file: "comm.csv",
        has_a_law: true,
        columns: &["num_gpus", "bytes"],
        row: |operation| match operation {
            Operation::AllReduce { num_gpus, bytes } => Some(vec![num_gpus.to_string(), bytes.to_string()]),
            _ => None,
        },
    },
    Table {
        file: "kv_cache_write.csv",
        has_a_law: false,
        columns: &["tokens", "hidden"],
        row: |operation| match operation {
            Operation::KvCacheWrite { tokens, heads_kv, head_dim } => {
                Some(vec![tokens.to_string(), (2 * heads_kv * head_dim).to_string()])
            }
            _ => None,
        },
    },
    Table {
        file: "copies.csv",
        has_a_law: false,
        columns: &["bytes"],
        row: |operation| match operation {
            Operation::DeviceCopy { bytes } | Operation::HostCopy { bytes, .. } => {
                Some(vec![bytes.to_string()])
            }
            _ => None,
        },
    },
    Table {
        file: "launch.csv",
        has_a_law: false,
        columns: &["nodes"],
        row: |operation| match operation {
            Operation::Launch => Some(vec!["1".to_owned()]),
            Operation::GraphReplay { nodes } => Some(vec![nodes.to_string()]),
            _ => None,
        },
    },
];

fn attention_row(attention: &Attention) -> Vec<String> {
    let empty = String::new;
    let [batch, q_len, kv_len, kv_past, n_decode, kv_decode] = match attention.batch {
        Batch::Decode { sequences, kv_len } => {
            [sequences.to_string(), "1".to_owned(), kv_len.to_string(), empty(), empty(), empty()]
        }
        Batch::Prefill { sequences, q_len, kv_past } => [
            sequences.to_string(),
            q_len.to_string(),
            (q_len + kv_past).to_string(),
            kv_past.to_string(),
            empty(),
            empty(),
        ],
        Batch::Mixed { q_len, kv_past, decodes, kv_decode } => [
            "1".to_owned(),
            q_len.to_string(),
            (q_len + kv_past).to_string(),
            kv_past.to_string(),
            decodes.to_string(),
            kv_decode.to_string(),
        ],
    };
    // The format of the cache is that of the queries; no window.
    let heads = [attention.heads_q, attention.heads_kv, attention.head_dim].map(|n| n.to_string());
    let mut row = vec![empty(), batch, q_len, kv_len, kv_past, n_decode, kv_decode];
    row.extend(heads);
    row.push("0".to_owned());
    row
}

/// The folder of a calibration's tables, which changes only when all are complete. Made before
/// anything is measured, so that a place that cannot be written costs no time.
pub struct TableFolder {
    folder: Folder,
    target: PathBuf,
}

impl TableFolder {
    /// # Errors
    /// The folder holds something else, or cannot be written.
    pub fn create(target: &Path) -> Result<Self, TableError> {
        Ok(Self { folder: Folder::create(target)?, target: target.to_owned() })
    }

    /// Writes all tables of a session. Returns those that a fit of the cost model reads.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(self, report: &SessionReport) -> Result<Vec<PathBuf>, TableError> {
        let files = write_files(report, &self.folder)?;
        self.folder.publish()?;
        Ok(files.into_iter().map(|file| self.target.join(file)).collect())
    }
}

fn write_files(report: &SessionReport, folder: &Folder) -> Result<Vec<&'static str>, TableError> {
    let name = &report.identity.name;
    let origin = Origin {
        framework: format!("kvsim-{}", env!("CARGO_PKG_VERSION")),
        gpu: Gpu::find(name).map_or_else(|_| name.clone(), |gpu| gpu.name.to_owned()),
        report,
    };
    let mut for_a_fit = Vec::new();
    for table in &TABLES {
        if let Some(text) = table_text(table, &origin) {
            folder.write(table.file, &text)?;
            // No law is fitted to products in 32 bits, which devices without f16 fall back to.
            let is_f32 = report.timed().any(|(measurement, kernel, _)| {
                kernel.dtype == ElementType::F32 && (table.row)(&measurement.operation).is_some()
            });
            if table.has_a_law && !is_f32 {
                for_a_fit.push(table.file);
            }
        }
    }
    folder.write("measurements.csv", &measurements_text(report))?;
    folder.write(MANIFEST, &manifest_text(&origin))?;
    Ok(for_a_fit)
}

/// A table with its rows; none if it has none.
fn table_text(table: &Table, origin: &Origin<'_>) -> Option<String> {
    let mut rows = Vec::new();
    for (measurement, kernel, timing) in origin.report.timed() {
        let Some(mut shape) = (table.row)(&measurement.operation) else { continue };
        if matches!(measurement.operation, Operation::Attention(_)) {
            shape[0] = kernel.dtype.name().to_owned();
        }
        let mut row: Vec<String> = [
            "kvsim",
            &origin.framework,
            &origin.gpu,
            measurement.operation.name(),
            &kernel.name,
            kernel.dtype.name(),
        ]
        .map(str::to_owned)
        .into();
        row.extend(shape);
        row.push(format!("{:.3}", timing.median_us));
        row.push(timing_words(origin.report, measurement));
        rows.push(row);
    }
    if rows.is_empty() {
        return None;
    }
    let head = ["source", "framework", "gpu", "op", "kernel", "dtype"];
    let head: Vec<&str> = head.iter().chain(table.columns).chain(&["time_us", "timing"]).copied().collect();
    Some(csv_text(&head, &rows))
}

/// How launches are timed that stay out of graphs.
const LOOP: &str = "device clock around a loop of launches";

/// The column `timing`: whose clock, and what the L2 cache held.
fn timing_words(report: &SessionReport, measurement: &Measurement) -> String {
    let clock = report.identity.clock;
    match measurement.operation {
        Operation::HostCopy { .. }
        | Operation::AllReduce { .. }
        | Operation::Launch
        | Operation::GraphReplay { .. } => LOOP.to_owned(),
        _ if measurement.cold_l2 => format!("{clock}, cold L2"),
        _ => format!("{clock}, warm L2"),
    }
}

/// Everything about each operation of the plan, the failed ones too.
fn measurements_text(report: &SessionReport) -> String {
    let head = [
        "op",
        "shape",
        "kernel",
        "dtype",
        "outcome",
        "reason",
        "time_us",
        "spread",
        "launches_per_group",
        "repeats",
        "error",
        "sets",
        "cold_l2",
        "drift",
        "sm_clock_mhz",
        "memory_clock_mhz",
        "temperature_c",
        "power_w",
        "throttle_reasons",
    ];
    let rows: Vec<Vec<String>> = report.measurements.iter().map(measurement_row).collect();
    csv_text(&head, &rows)
}

fn measurement_row(measurement: &Measurement) -> Vec<String> {
    fn text<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let share = |value: Option<f64>| value.map(|value| format!("{value:.5}"));
    let (outcome, reason, timing) = match &measurement.outcome {
        Outcome::Timed(timing) => ("timed", "", Some(timing)),
        Outcome::Wrong => ("wrong", "the result is not that of the reference", None),
        Outcome::LeftOut(reason) => ("left out", reason.as_str(), None),
        Outcome::Failed(reason) => ("failed", reason.as_str(), None),
    };
    let kernel = measurement.kernel.as_ref();
    let telemetry = &measurement.telemetry;
    vec![
        measurement.operation.name().to_owned(),
        measurement.operation.to_string(),
        text(kernel.map(|kernel| &kernel.name)),
        text(kernel.map(|kernel| kernel.dtype.name())),
        outcome.to_owned(),
        reason.to_owned(),
        text(timing.map(|timing| format!("{:.3}", timing.median_us))),
        text(share(timing.map(|timing| timing.spread))),
        text(timing.map(|timing| timing.launches_per_group)),
        text(timing.map(|timing| timing.repeats)),
        text(measurement.error.map(|error| format!("{error:.2e}"))),
        measurement.sets.to_string(),
        measurement.cold_l2.to_string(),
        text(share(measurement.drift)),
        text(telemetry.sm_clock_mhz),
        text(telemetry.memory_clock_mhz),
        text(telemetry.temperature_c),
        text(telemetry.power_w.map(|power| format!("{power:.0}"))),
        telemetry.throttle_reasons.join(" "),
    ]
}

fn csv_text(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    // Into memory: neither can fail.
    let _ = writer.write_record(head);
    for row in rows {
        let _ = writer.write_record(row);
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

fn manifest_text(origin: &Origin<'_>) -> String {
    let SessionReport { identity, measurements, .. } = origin.report;
    let count = |wanted: fn(&Outcome) -> bool| measurements.iter().filter(|m| wanted(&m.outcome)).count();
    let kernels: std::collections::BTreeSet<&str> =
        origin.report.timed().map(|(_, Kernel { name, .. }, _)| name.as_str()).collect();
    let manifest = json!({
        "made_by": origin.framework,
        "gpu": origin.gpu,
        "device": identity.name,
        "backend": identity.backend,
        "driver": identity.driver,
        "software_renderer": identity.kind == DeviceKind::Software,
        "memory_bytes": identity.memory_bytes,
        "l2_bytes": identity.l2_bytes,
        "num_sms": identity.num_sms,
        "shared_with": identity.shared_with,
        "effort": origin.report.effort.name(),
        "clock": identity.clock,
        "device_s": origin.report.device_s,
        "reference_us": origin.report.reference_us,
        "repeated_batches": origin.report.repeated_batches,
        "kernels": kernels,
        "timed": count(|outcome| matches!(outcome, Outcome::Timed(_))),
        "wrong": count(|outcome| matches!(outcome, Outcome::Wrong)),
        "left_out": count(|outcome| matches!(outcome, Outcome::LeftOut(_))),
        "failed": count(|outcome| matches!(outcome, Outcome::Failed(_))),
    });
    format!("{manifest:#}\n")
}
