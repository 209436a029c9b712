//! Measurements as timing tables: CSV files with the columns that `kvsim calibrate table` reads.

use std::path::{Path, PathBuf};

use csv::Writer;

use super::device::ElementType;
use super::operation::{Attention, Batch, Operation};
use super::session::{Measurement, SessionReport};
use super::session_files::{manifest_text, measurements_text};
use crate::catalog::Gpu;
use crate::report::{Folder, MANIFEST, ReportError};

/// Why tables could not be written.
pub type TableError = ReportError;

/// What every row of a table starts with.
pub(super) struct Origin<'a> {
    pub framework: String,
    pub gpu: String,
    pub report: &'a SessionReport,
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

pub(super) fn csv_text(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut writer = Writer::from_writer(Vec::new());
    // Into memory: neither can fail.
    let _ = writer.write_record(head);
    for row in rows {
        let _ = writer.write_record(row);
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}
