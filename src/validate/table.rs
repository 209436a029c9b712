//! The comparison as a table for the terminal and as CSV.

use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};

use super::summary::Group;
use super::{BenchError, Metric, Outcome};

/// A row for each run and figure.
///
/// # Errors
/// A file that cannot be written.
pub fn write_csv(path: &Path, outcomes: &[Outcome]) -> Result<(), BenchError> {
    let failed = |error: csv::Error| BenchError::Write { path: path.to_owned(), source: error.into() };
    let mut writer = csv::Writer::from_path(path).map_err(failed)?;
    let header = [
        "run_id",
        "source",
        "gpu",
        "model",
        "tp",
        "engine_version",
        "weights",
        "metric",
        "measured",
        "predicted",
        "error_percent",
        "left_out",
    ];
    writer.write_record(header).map_err(failed)?;
    for outcome in outcomes {
        let settings = &outcome.run.settings;
        let tp = settings.tensor_parallel_size.to_string();
        let mut row = |metric: &str, figures: [String; 3], left_out: &str| {
            let [measured, predicted, error] = &figures;
            writer.write_record([
                &outcome.run.id,
                &outcome.run.source,
                &settings.gpu,
                &settings.model,
                &tp,
                &settings.engine_version,
                settings.weight_dtype.as_deref().unwrap_or_default(),
                metric,
                measured,
                predicted,
                error,
                left_out,
            ])
        };
        let left_out = outcome.left_out.as_deref().unwrap_or_default();
        for (metric, comparison) in &outcome.comparisons {
            let figures = [
                comparison.measured.to_string(),
                format!("{:.6}", comparison.predicted),
                format!("{:.2}", 100.0 * comparison.error()),
            ];
            row(metric.name(), figures, left_out).map_err(failed)?;
        }
        if outcome.comparisons.is_empty() {
            row("", [(); 3].map(|()| String::new()), left_out).map_err(failed)?;
        }
    }
    writer.flush().map_err(|source| BenchError::Write { path: path.to_owned(), source })
}

/// The figures of the summary that the terminal shows.
const SHOWN: [Metric; 4] = [Metric::TtftMeanMs, Metric::TpotMeanMs, Metric::E2eMeanMs, Metric::MakespanS];

/// A row for each group: runs, and median |error|, 90th percentile and median signed error.
pub fn terminal_table(groups: &[Group]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    let mut header = vec!["source".to_owned(), "GPU".to_owned(), "model".to_owned(), "runs".to_owned()];
    header.extend(SHOWN.map(|metric| format!("{}\nmedian / p90 (bias) %", metric.name())));
    table.set_header(header);
    for group in groups {
        let mut row =
            vec![group.source.clone(), group.gpu.clone(), group.model.clone(), group.num_runs.to_string()];
        row.extend(SHOWN.map(|metric| {
            group.errors.get(&metric).map_or_else(String::new, |spread| {
                format!(
                    "{:.1} / {:.1} ({:+.1})",
                    spread.median_percent, spread.p90_percent, spread.bias_percent
                )
            })
        }));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}
