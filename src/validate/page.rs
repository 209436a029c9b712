//! The comparison as one page: plots, the summary, every run.

use std::collections::BTreeMap;
use std::path::Path;

use maud::{Markup, html};

use super::plots::scatter;
use super::summary::{Group, Spread};
use super::{BenchError, Metric, Outcome, Ranking};
use crate::chart::{Plot, Table, sheet};
use crate::page::{Page, Section, count, figures, sortable, table};
use crate::whole_file::write_whole;

/// The columns of the summary.
const SUMMARY: [Metric; 6] = [
    Metric::TtftMeanMs,
    Metric::TpotMeanMs,
    Metric::E2eMeanMs,
    Metric::OutputTokS,
    Metric::MakespanS,
    Metric::NumGpuBlocks,
];

/// Writes `index.html` and the plots beside it.
///
/// # Errors
/// A file that cannot be written.
pub fn write_page(
    folder: &Path,
    outcomes: &[Outcome],
    groups: &[Group],
    rankings: &[Ranking],
) -> Result<(), BenchError> {
    let mut plots: Vec<Plot> = Vec::new();
    for (metric, name, title) in [
        (Metric::TpotMeanMs, "tpot.svg", "Mean time per output token"),
        (Metric::TtftMeanMs, "ttft.svg", "Mean time to first token"),
    ] {
        let Some(plot) = scatter(outcomes, metric, title) else { continue };
        write(&folder.join(name), &sheet(title, &[vec![plot.clone()]]))?;
        plots.push(plot);
    }
    let summary = html! {
        p {
            "Errors in per cent of what was measured: median and 90th percentile of the absolute error, median of \
            the signed error."
        }
        (sortable(&summary_table(groups)))
    };
    let runs = html! { details { summary { "Every figure of every run" } (table(&run_table(outcomes))) } };
    let mut sections = vec![
        Section::new("plots", "Runs", figures(&plots)),
        Section::new("summary", "Summary", summary),
        Section::new("runs", "Run by run", runs),
    ];
    if !rankings.is_empty() {
        sections.insert(2, Section::new("rankings", "Routing strategies", rankings_section(rankings)));
    }
    let left_out = left_out_table(outcomes);
    if !left_out.rows.is_empty() {
        sections.push(Section::new("left-out", "Loads not simulated", table(&left_out)));
    }
    let page = Page {
        kind: "validation",
        title: "Predicted against measured".to_owned(),
        about: html! { p { "A point is a run, a colour is a GPU." } },
        notice: None,
        headlines: Vec::new(),
        sections,
    };
    write(&folder.join("index.html"), &page.html())
}

fn write(path: &Path, content: &str) -> Result<(), BenchError> {
    write_whole(path, content).map_err(|source| BenchError::Write { path: path.to_owned(), source })
}

fn summary_table(groups: &[Group]) -> Table {
    let mut head = ["source", "GPU", "model", "runs"].map(str::to_owned).to_vec();
    head.extend(SUMMARY.map(|metric| metric.name().to_owned()));
    let mut table = Table { head, rows: Vec::new(), text_columns: 3 };
    for group in groups {
        let begin =
            [group.source.clone(), group.gpu.clone(), group.model.clone(), count(group.num_runs as u64)];
        let errors = SUMMARY.map(|metric| match group.errors.get(&metric) {
            Some(Spread { median_percent, p90_percent, bias_percent, .. }) => {
                format!("{median_percent:.1} / {p90_percent:.1} ({bias_percent:+.1})")
            }
            None => String::new(),
        });
        table.push(begin.into_iter().chain(errors));
    }
    table
}

/// Which routing strategy is better, on both sides.
fn rankings_section(rankings: &[Ranking]) -> Markup {
    html! {
        p {
            "Means over all rates, and Spearman's rank correlation of predicted and measured: of the strategies by \
            these means, of the strategies at each rate (mean), and of all runs. Pairs of strategies count where \
            their measured difference, rate by rate, is more than twice its standard error."
        }
        @for ranking in rankings {
            h3 { (ranking.source) ", " (ranking.model) " on " (ranking.gpu) }
            (table(&ranking_table(ranking)))
        }
    }
}

fn ranking_table(ranking: &Ranking) -> Table {
    let mut table = Table::new(
        2,
        &[
            "figure",
            "strategy",
            "measured",
            "predicted",
            "Spearman",
            "at each rate",
            "all runs",
            "pairs in order",
        ],
    );
    for (metric, ranks) in &ranking.figures {
        for (index, means) in ranks.strategies.iter().enumerate() {
            let correlations = [ranks.of_strategies, ranks.of_strategies_by_rate, ranks.of_runs];
            let begin = [
                if index == 0 { metric.name().to_owned() } else { String::new() },
                means.routing.clone(),
                figure(means.measured),
                figure(means.predicted),
            ];
            let mut of_all = correlations.map(|of| format!("{of:.2}")).to_vec();
            of_all.push(format!("{} of {}", ranks.num_pairs_in_order, ranks.num_pairs));
            let of_all = of_all.into_iter().map(|of| if index == 0 { of } else { String::new() });
            table.push(begin.into_iter().chain(of_all));
        }
    }
    table
}

fn run_table(outcomes: &[Outcome]) -> Table {
    let mut table =
        Table::new(5, &["run", "GPU", "TP", "vLLM", "figure", "measured", "predicted", "error, %"]);
    for outcome in outcomes {
        let settings = &outcome.run.settings;
        for (metric, comparison) in &outcome.comparisons {
            table.push([
                outcome.run.id.clone(),
                settings.gpu.clone(),
                settings.ranks(),
                settings.engine_version.clone(),
                metric.name().to_owned(),
                figure(comparison.measured),
                figure(comparison.predicted),
                format!("{:+.1}", 100.0 * comparison.error()),
            ]);
        }
    }
    table
}

/// With as many digits behind the point as are worth reading.
fn figure(value: f64) -> String {
    match value {
        value if value >= 1e3 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

fn left_out_table(outcomes: &[Outcome]) -> Table {
    let mut reasons: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for outcome in outcomes {
        if let Some(reason) = &outcome.left_out {
            *reasons.entry((&outcome.run.source, reason)).or_default() += 1;
        }
    }
    let mut table = Table::new(2, &["source", "reason", "runs"]);
    for ((source, reason), runs) in reasons {
        table.push([source.to_owned(), reason.to_owned(), count(runs)]);
    }
    table
}
