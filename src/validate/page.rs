//! The comparison as one page without scripts: plots, the summary, every run.

use std::fmt::Write;
use std::path::Path;

use super::plots::scatter;
use super::summary::{Group, Spread};
use super::{BenchError, Metric, Outcome, Ranking};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;color:#333;max-width:76em;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;margin:1em 0;font-size:13px}th,td{padding:.2em .7em;border-bottom:1px solid #e1e1e1;\
text-align:right;white-space:nowrap}th{background:#f6f6f6;position:sticky;top:0}td.t,th.t{text-align:left}\
figure{display:inline-block;margin:0 1em 1em 0}svg{max-width:100%;height:auto}summary{cursor:pointer}";

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
/// A file that cannot be written, or a plot that cannot be drawn.
pub fn write_page(
    folder: &Path,
    outcomes: &[Outcome],
    groups: &[Group],
    rankings: &[Ranking],
) -> Result<(), BenchError> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Predicted against measured</title>\n\
         <style>{STYLE}</style>\n<h1>Predicted against measured</h1>\n"
    );
    for (metric, name, title) in [
        (Metric::TpotMeanMs, "tpot.svg", "Mean time per output token"),
        (Metric::TtftMeanMs, "ttft.svg", "Mean time to first token"),
    ] {
        let Some(svg) = scatter(outcomes, metric, title) else { continue };
        let path = folder.join(name);
        let svg = svg.map_err(|problem| BenchError::File {
            path: path.clone(),
            problem,
            hint: "report this as a bug".to_owned(),
        })?;
        write(&path, &svg)?;
        text(&mut page, format_args!("<figure>{svg}</figure>\n"));
    }
    text(&mut page, format_args!("<p>Grey lines: 20 % to either side. A point is a run.</p>\n"));
    summary_table(&mut page, groups);
    ranking_tables(&mut page, rankings);
    run_table(&mut page, outcomes);
    left_out_table(&mut page, outcomes);
    page.push_str("</html>\n");
    write(&folder.join("index.html"), &page)
}

fn write(path: &Path, content: &str) -> Result<(), BenchError> {
    std::fs::write(path, content).map_err(|source| BenchError::Write { path: path.to_owned(), source })
}

fn text(page: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = page.write_fmt(arguments);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn summary_table(page: &mut String, groups: &[Group]) {
    page.push_str(
        "<h2>Summary</h2>\n<p>Errors in per cent of what was measured: median and 90th percentile of the absolute \
         error, median of the signed error.</p>\n<table><tr><th class=t>source<th class=t>GPU<th class=t>model<th>runs",
    );
    for metric in SUMMARY {
        text(page, format_args!("<th>{}", metric.name()));
    }
    page.push('\n');
    for group in groups {
        text(
            page,
            format_args!(
                "<tr><td class=t>{}<td class=t>{}<td class=t>{}<td>{}",
                escaped(&group.source),
                escaped(&group.gpu),
                escaped(&group.model),
                group.num_runs
            ),
        );
        for metric in SUMMARY {
            match group.errors.get(&metric) {
                Some(Spread { median_percent, p90_percent, bias_percent, .. }) => text(
                    page,
                    format_args!("<td>{median_percent:.1} / {p90_percent:.1} ({bias_percent:+.1})"),
                ),
                None => page.push_str("<td>"),
            }
        }
        page.push('\n');
    }
    page.push_str("</table>\n");
}

/// Which routing strategy is better, on both sides.
fn ranking_tables(page: &mut String, rankings: &[Ranking]) {
    if rankings.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Routing strategies</h2>\n<p>Means over all rates, and Spearman's rank correlation of predicted and measured: \
         of the strategies by these means, of the strategies at each rate (mean), and of all runs.</p>\n",
    );
    for ranking in rankings {
        text(
            page,
            format_args!(
                "<h3>{}, {} on {}</h3>\n<table><tr><th class=t>figure<th class=t>strategy<th>measured<th>predicted\
                 <th>Spearman<th>at each rate<th>all runs\n",
                escaped(&ranking.source),
                escaped(&ranking.model),
                escaped(&ranking.gpu)
            ),
        );
        for (metric, figure) in &ranking.figures {
            for (index, means) in figure.strategies.iter().enumerate() {
                text(
                    page,
                    format_args!(
                        "<tr><td class=t>{}<td class=t>{}<td>{}<td>{}",
                        if index == 0 { metric.name() } else { "" },
                        escaped(&means.routing),
                        Figure(means.measured),
                        Figure(means.predicted)
                    ),
                );
                match index {
                    0 => text(
                        page,
                        format_args!(
                            "<td>{:.2}<td>{:.2}<td>{:.2}\n",
                            figure.of_strategies, figure.of_strategies_by_rate, figure.of_runs
                        ),
                    ),
                    _ => page.push_str("<td><td><td>\n"),
                }
            }
        }
        page.push_str("</table>\n");
    }
}

fn run_table(page: &mut String, outcomes: &[Outcome]) {
    page.push_str(
        "<h2>Run by run</h2>\n<details><summary>Every figure of every run</summary>\n<table><tr><th class=t>run\
         <th class=t>GPU<th>TP<th class=t>vLLM<th class=t>figure<th>measured<th>predicted<th>error, %\n",
    );
    for outcome in outcomes {
        let settings = &outcome.run.settings;
        for (metric, comparison) in &outcome.comparisons {
            text(
                page,
                format_args!(
                    "<tr><td class=t>{}<td class=t>{}<td>{}<td class=t>{}<td class=t>{}<td>{}<td>{}<td>{:+.1}\n",
                    escaped(&outcome.run.id),
                    escaped(&settings.gpu),
                    settings.tensor_parallel_size,
                    escaped(&settings.engine_version),
                    metric.name(),
                    Figure(comparison.measured),
                    Figure(comparison.predicted),
                    100.0 * comparison.error()
                ),
            );
        }
    }
    page.push_str("</table></details>\n");
}

/// A number with as many digits behind the point as are worth reading.
struct Figure(f64);

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value >= 1e3 => write!(f, "{value:.0}"),
            value if value >= 10.0 => write!(f, "{value:.1}"),
            value => write!(f, "{value:.3}"),
        }
    }
}

fn left_out_table(page: &mut String, outcomes: &[Outcome]) {
    let mut reasons: std::collections::BTreeMap<(&str, &str), usize> = std::collections::BTreeMap::new();
    for outcome in outcomes {
        if let Some(reason) = &outcome.left_out {
            *reasons.entry((&outcome.run.source, reason)).or_default() += 1;
        }
    }
    if reasons.is_empty() {
        return;
    }
    page.push_str("<h2>Loads not simulated</h2>\n<table><tr><th class=t>source<th class=t>reason<th>runs\n");
    for ((source, reason), count) in reasons {
        text(
            page,
            format_args!("<tr><td class=t>{}<td class=t>{}<td>{count}\n", escaped(source), escaped(reason)),
        );
    }
    page.push_str("</table>\n");
}
