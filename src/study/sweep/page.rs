//! `report.html` of a sweep.

use maud::{Markup, html};

use super::labels::{labels, value};
use super::plot;
use super::results::{MetricResult, Results};
use super::run::REPORTS;
use crate::chart::{Table, grouped, interval, number, signed};
use crate::page::{Page, Section, count, definitions, figure, figures, sortable};

/// `has_reports`: each run has a report of its own beside the page.
pub(super) fn page(results: &Results, has_reports: bool) -> String {
    let plan = &results.plan;
    let failed = results.points.iter().filter(|point| point.error().is_some()).count();
    let mut about = format!("{} points", count(results.points.len() as u64));
    if plan.replications > 1 {
        about += &format!(
            ", each with {} seeds; ± is the {} % interval",
            plan.replications,
            percent(plan.confidence)
        );
    }
    let page = Page {
        kind: "sweep",
        title: plan.name.clone(),
        about: html! {
            @if !plan.description.is_empty() { p { (plan.description) } }
            p { (about) "." }
        },
        notice: (failed > 0).then(|| {
            let first = results.points.iter().find_map(|point| point.error()).unwrap_or_default();
            format!("{failed} of {} points have errors; the first: {first}", results.points.len())
        }),
        headlines: Vec::new(),
        sections: sections(results, has_reports),
    };
    page.html()
}

fn percent(share: f64) -> String {
    grouped(100.0 * share)
}

fn sections(results: &Results, has_reports: bool) -> Vec<Section> {
    let plots = plot::over_field(results);
    let mut sections = vec![Section::new("axes", "What varies", axes(results))];
    if let Some(front) = plot::of_front(results) {
        sections.push(Section::new("pareto", "Pareto front", html! { div.wide { (figure(&front)) } }));
    }
    if !plots.is_empty() {
        sections.push(Section::new("metrics", "Metrics", figures(&plots)));
    }
    sections.push(Section::new("points", "Points", points(results)));
    if has_reports {
        sections.push(Section::new("runs", "Reports of runs", runs(results)));
    }
    sections.push(Section::new("files", "Files", files()));
    sections
}

fn axes(results: &Results) -> Markup {
    let plan = &results.plan;
    let rows: Vec<(&str, String)> = plan
        .fields
        .iter()
        .map(|field| {
            let mut values: Vec<String> = Vec::new();
            for point in &plan.points {
                let value = value(point.fields.get(field));
                if !value.is_empty() && !values.contains(&value) {
                    values.push(value);
                }
            }
            (field.as_str(), listed(&values))
        })
        .collect();
    html! {
        (definitions(&rows))
        details {
            summary { "The scenario that all points share" }
            pre.scroll tabindex="0" { (serde_json::to_string_pretty(&plan.scenario).unwrap_or_default()) }
        }
    }
}

/// All of a few values, the ends of many.
fn listed(values: &[String]) -> String {
    const MOST: usize = 10;
    match values {
        [] => "–".to_owned(),
        values if values.len() <= MOST => values.join(", "),
        [first, .., last] => format!("{first} … {last} ({} values)", values.len()),
        [only] => only.clone(),
    }
}

/// All points with all metrics.
fn points(results: &Results) -> Markup {
    let plan = &results.plan;
    let mut head = vec!["point".to_owned()];
    if plan.is_named() {
        head.push("name".to_owned());
    }
    let fields: Vec<&str> = plan.fields.iter().map(String::as_str).collect();
    head.extend(labels(&fields));
    let text_columns = head.len();
    if plan.pareto.is_some() {
        head.push("on front".to_owned());
    }
    let names: Vec<&str> = plan.metrics.iter().map(String::as_str).collect();
    for label in labels(&names) {
        head.push(label);
        if let Some(baseline) = plan.baseline {
            head.push(format!(
                "vs {}",
                plan.points[baseline].name.clone().unwrap_or_else(|| baseline.to_string())
            ));
        }
    }
    let mut table = Table { head, rows: Vec::new(), text_columns };
    for (index, point) in results.points.iter().enumerate() {
        let planned = &plan.points[index];
        let mut row = vec![index.to_string()];
        if plan.is_named() {
            row.push(planned.name.clone().unwrap_or_default());
        }
        row.extend(plan.fields.iter().map(|field| value(planned.fields.get(field))));
        if let Some(is_on_front) = point.is_on_front {
            row.push(if is_on_front { "yes" } else { "" }.to_owned());
        }
        for metric in &point.metrics {
            row.push(mean(*metric));
            if plan.baseline.is_some() {
                row.push(difference(*metric));
            }
        }
        table.push(row);
    }
    html! {
        p { "Click a head to sort. " code { "kvsim compare FOLDER:A FOLDER:B" } " puts two points side by side." }
        (sortable(&table))
    }
}

/// Links to the page of each run.
fn runs(results: &Results) -> Markup {
    html! {
        ul.runs {
            @for row in results.points.iter().flat_map(|point| &point.rows) {
                @if let (Some(seed), None) = (row.seed, row.error()) {
                    li {
                        a href={ (REPORTS) "/point-" (row.point) "-seed-" (seed) "/report.html" } {
                            "point " (row.point) ", seed " (seed)
                        }
                    }
                }
            }
        }
    }
}

fn mean(metric: Option<MetricResult>) -> String {
    metric.map_or_else(
        || "–".to_owned(),
        |metric| interval(metric.estimate.half_width, number(metric.estimate.mean)),
    )
}

fn difference(metric: Option<MetricResult>) -> String {
    metric
        .and_then(|metric| metric.difference)
        .map_or_else(|| "–".to_owned(), |difference| interval(difference.half_width, signed(difference.mean)))
}

fn files() -> Markup {
    html! {
        p { "Beside this page, in the same folder:" }
        dl.definitions.files {
            @for (name, holds) in [
                ("points.csv", "a row for each point: means and intervals"),
                ("results.csv", "a row for each run"),
                ("results.json", "all of it, with what was planned"),
            ] {
                div { dt { a href=(name) { (name) } } dd { (holds) } }
            }
        }
    }
}
