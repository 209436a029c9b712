//! `kvsim compare`: two runs, or two points of sweeps, side by side.

use std::error::Error;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::console::{Console, Finished};
use crate::chart::{interval, number, signed};
use crate::report::write_page;
use crate::study::compare::{Comparison, Method, Metric, Subject, Which, compare, page};

/// Put two reports, or two points of sweeps, side by side
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// The folder of a run, or a point of a sweep: FOLDER:POINT, by its number or name
    a: String,
    /// What to compare it with
    b: String,
    /// All figures, not only the headlines
    #[arg(long)]
    all: bool,
    /// Of the intervals, where there are replications
    #[arg(long, value_name = "SHARE", default_value_t = 0.95, value_parser = share)]
    confidence: f64,
    /// Write the comparison as a page too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if 0.0 < share && share < 1.0 => Ok(share),
        _ => Err("give a share between 0 and 1, such as 0.95".to_owned()),
    }
}

pub(super) fn run(arguments: &CompareArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let (a, b) = (Subject::read(&arguments.a)?, Subject::read(&arguments.b)?);
    let which = if arguments.all { Which::All } else { Which::Headlines };
    let comparison = compare(&a, &b, which, arguments.confidence);
    if let Some(path) = &arguments.html {
        write_page(path, &page(&a, &b, &comparison, arguments.confidence))?;
    }
    console.say(format_args!("A: {}\nB: {}\n", a.name, b.name))?;
    console.say(text(&comparison, arguments.confidence))?;
    Ok(Finished::new(&comparison))
}

fn text(comparison: &Comparison, confidence: f64) -> String {
    let settings = if comparison.settings.is_empty() {
        "the scenarios are the same".to_owned()
    } else {
        let text = |value: &Option<serde_json::Value>| {
            value.as_ref().map_or_else(|| "not given".to_owned(), ToString::to_string)
        };
        let rows = comparison.settings.iter().map(|it| [it.field.clone(), text(&it.a), text(&it.b)]);
        table(["setting", "A", "B"], rows)
    };
    let rows = comparison.metrics.iter().map(|metric| {
        let Metric { name, a, b, difference } = metric;
        let relative =
            if a.mean == 0.0 { String::new() } else { format!("{:+.1} %", 100.0 * difference.mean / a.mean) };
        let mark = if difference.is_significant() { "*" } else { "" };
        [
            name.clone(),
            interval(a.half_width, number(a.mean)),
            interval(b.half_width, number(b.mean)),
            interval(difference.half_width, signed(difference.mean)),
            relative,
            mark.to_owned(),
        ]
    });
    let metrics = table(["", "A", "B", "B - A", "", ""], rows);
    let intervals = format!("± is the {} % interval; * leaves out 0", 100.0 * confidence);
    let method = match comparison.method {
        Method::SingleRuns => {
            "One run on a side: no interval. Replications in a sweep tell whether a difference is more than chance."
                .to_owned()
        }
        Method::Paired => format!("{intervals}. Differences are between runs with the same seed."),
        Method::Independent => format!("{intervals}. The seeds of A and B differ (Welch's interval)."),
    };
    format!("{settings}\n\n{metrics}\n\n{method}")
}

/// Numbers to the right.
fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.add_row(head);
    rows.for_each(|row| {
        table.add_row(row);
    });
    for index in 1..N {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
