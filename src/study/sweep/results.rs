//! The rows of a sweep in order, what they say of each point, and the files that hold it.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::SweepError;
use super::header::RunKey;
use super::page::page;
use super::pareto::front;
use super::plan::{Outcome, Plan, PlannedPoint, Row};
use super::plot;
use crate::report::json::pretty;
use crate::report::{Column, Kind, parquet_bytes};
use crate::study::journal::write_whole;
use crate::study::statistics::Estimate;

/// Files that a finished sweep may have written.
pub(super) const RESULTS: [&str; 8] = [
    "results.csv",
    "results.parquet",
    "points.csv",
    "points.parquet",
    "results.json",
    "report.html",
    "sweep.svg",
    "pareto.svg",
];

/// A finished sweep.
#[derive(Clone, Debug)]
pub struct Results {
    pub plan: Plan,
    /// In the order of points.
    pub points: Vec<PointResult>,
}

#[derive(Clone, Debug)]
pub struct PointResult {
    /// In the order of replications.
    pub rows: Vec<Row>,
    /// In the order of the plan's metrics; `None` where no run has the figure.
    pub metrics: Vec<Option<MetricResult>>,
    /// No other point is better in one of the Pareto metrics and as good in the others; `None`
    /// without Pareto metrics.
    pub is_on_front: Option<bool>,
}

impl PointResult {
    /// Why a run came to nothing.
    pub fn error(&self) -> Option<&str> {
        self.rows.iter().find_map(Row::error)
    }
}

/// A metric over the replications of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricResult {
    pub estimate: Estimate,
    /// From the baseline, over pairs of runs with the same seed.
    pub difference: Option<Estimate>,
}

impl Results {
    /// Puts the rows of all runs in order.
    pub(super) fn new(plan: &Plan, mut rows: HashMap<RunKey, Row>) -> Self {
        let mut take = |point: usize| -> Vec<Row> {
            (0..plan.replications).filter_map(|replication| rows.remove(&(point, replication))).collect()
        };
        let all: Vec<Vec<Row>> = (0..plan.points.len()).map(&mut take).collect();
        let on_front = plan.pareto.as_ref().map(|pareto| front(pareto, &all));
        let baseline = plan.baseline.map(|index| all[index].clone());
        let points = all
            .into_iter()
            .enumerate()
            .map(|(index, rows)| PointResult {
                metrics: plan
                    .metrics
                    .iter()
                    .map(|name| metric(name, &rows, baseline.as_deref(), plan.confidence))
                    .collect(),
                rows,
                is_on_front: on_front.as_ref().map(|front| front[index]),
            })
            .collect();
        Self { plan: plan.clone(), points }
    }

    /// Writes tables, plots and a page, which links the reports of runs if there are any.
    pub(super) fn write(&self, folder: &Path, has_reports: bool) -> Result<(), SweepError> {
        let table = |name: &str, columns: &[Column<String>], csv: &str| {
            let path = folder.join(name);
            write_whole(&path, csv.as_bytes()).map_err(SweepError::from)?;
            let path = path.with_extension("parquet");
            match parquet_bytes(csv, columns).map_err(SweepError::write(&path))? {
                Some(parquet) => Ok::<_, SweepError>(write_whole(&path, &parquet)?),
                None => Ok(()),
            }
        };
        table("results.csv", &self.run_columns(), &self.runs_csv())?;
        table("points.csv", &self.point_columns(), &self.points_csv())?;
        write_whole(&folder.join("results.json"), pretty(&self.to_json()).as_bytes())?;
        write_whole(&folder.join("report.html"), page(self, has_reports).as_bytes())?;
        for (name, svg) in plot::files(self) {
            write_whole(&folder.join(name), svg.as_bytes())?;
        }
        Ok(())
    }

    /// The number of a point, its name and its fields.
    fn first_columns(&self) -> impl Iterator<Item = Column<String>> {
        let name = self.plan.is_named().then(|| ("name".to_owned(), Kind::Text));
        let fields = self.plan.fields.iter().map(|field| {
            let values = self.plan.points.iter().filter_map(|point| point.fields.get(field));
            (field.clone(), kind_of(values))
        });
        [("point".to_owned(), Kind::Count)].into_iter().chain(name).chain(fields)
    }

    fn run_columns(&self) -> Vec<Column<String>> {
        let rows = || self.points.iter().flat_map(|point| &point.rows);
        let metrics = self.plan.metrics.iter().map(|name| {
            let values = rows().filter_map(|row| match &row.outcome {
                Outcome::Metrics(metrics) => metrics.get(name),
                Outcome::Error(_) => None,
            });
            (name.clone(), kind_of(values))
        });
        let run = [("replication".to_owned(), Kind::Count), ("seed".to_owned(), Kind::Id)];
        let error = ("error".to_owned(), Kind::Text);
        self.first_columns().chain(run).chain(metrics).chain([error]).collect()
    }

    fn point_columns(&self) -> Vec<Column<String>> {
        let kinds = self.kinds_of_metric();
        let of_metric = |name: &String| {
            let column = |kind: &&str| (format!("{name}.{kind}"), Kind::Float);
            kinds.iter().map(column).collect::<Vec<_>>()
        };
        let metrics = self.plan.metrics.iter().flat_map(of_metric);
        let front = self.plan.pareto.is_some().then(|| ("is_on_front".to_owned(), Kind::Bool));
        let runs = ("runs".to_owned(), Kind::Count);
        let error = ("error".to_owned(), Kind::Text);
        self.first_columns().chain([runs]).chain(metrics).chain(front).chain([error]).collect()
    }

    fn kinds_of_metric(&self) -> &'static [&'static str] {
        const KINDS: [&str; 4] = ["mean", "half_width", "difference", "difference_half_width"];
        if self.plan.baseline.is_some() { &KINDS } else { &KINDS[..2] }
    }

    /// A line for each run.
    fn runs_csv(&self) -> String {
        let mut table = Csv::default();
        table.push(self.run_columns().into_iter().map(|(name, _)| name));
        for (index, point) in self.points.iter().enumerate() {
            for row in &point.rows {
                let metrics = self.plan.metrics.iter().map(|name| match &row.outcome {
                    Outcome::Metrics(metrics) => cell(metrics.get(name)),
                    Outcome::Error(_) => String::new(),
                });
                let run =
                    [row.replication.to_string(), row.seed.map(|seed| seed.to_string()).unwrap_or_default()];
                let error = row.error().unwrap_or_default().to_owned();
                table.push(self.begin(index).chain(run).chain(metrics).chain([error]));
            }
        }
        table.text()
    }

    /// A line for each point.
    fn points_csv(&self) -> String {
        let mut table = Csv::default();
        table.push(self.point_columns().into_iter().map(|(name, _)| name));
        let kinds = self.kinds_of_metric();
        for (index, point) in self.points.iter().enumerate() {
            let of_metric = |metric: &Option<MetricResult>| {
                let estimate = metric.map(|metric| metric.estimate);
                let difference = metric.and_then(|metric| metric.difference);
                [estimate, difference]
                    .into_iter()
                    .take(kinds.len() / 2)
                    .flat_map(|estimate| [estimate.map(|it| it.mean), estimate.and_then(|it| it.half_width)])
                    .map(|number| cell(number.map(Value::from).as_ref()))
                    .collect::<Vec<_>>()
            };
            let runs = point.rows.iter().filter(|row| row.error().is_none()).count();
            let front = point.is_on_front.map(|is_on_front| is_on_front.to_string());
            let error = point.error().unwrap_or_default().to_owned();
            let metrics = point.metrics.iter().flat_map(of_metric);
            table
                .push(self.begin(index).chain([runs.to_string()]).chain(metrics).chain(front).chain([error]));
        }
        table.text()
    }

    /// The number of a point, its name and its fields.
    fn begin(&self, index: usize) -> impl Iterator<Item = String> {
        let point = &self.plan.points[index];
        let name = self.plan.is_named().then(|| point.name.clone().unwrap_or_default());
        let fields = self.plan.fields.iter().map(|field| cell(point.fields.get(field)));
        [index.to_string()].into_iter().chain(name).chain(fields)
    }

    /// All of it.
    pub fn to_json(&self) -> Value {
        #[derive(Serialize)]
        struct All<'a> {
            plan: &'a Plan,
            points: Vec<OfPoint<'a>>,
        }
        #[derive(Serialize)]
        struct OfPoint<'a> {
            point: usize,
            #[serde(flatten)]
            planned: &'a PlannedPoint,
            #[serde(skip_serializing_if = "Option::is_none")]
            is_on_front: Option<bool>,
            metrics: Map<String, Value>,
            runs: Vec<Value>,
        }
        let points = self.points.iter().enumerate().map(|(index, point)| OfPoint {
            point: index,
            planned: &self.plan.points[index],
            is_on_front: point.is_on_front,
            metrics: self.plan.metrics.iter().cloned().zip(point.metrics.iter().map(metric_json)).collect(),
            runs: point.rows.iter().map(run_json).collect(),
        });
        let all = All { plan: &self.plan, points: points.collect() };
        // Structs of numbers and texts always are JSON.
        serde_json::to_value(&all).unwrap_or_default()
    }
}

/// What holds all of these.
fn kind_of<'a>(values: impl Iterator<Item = &'a Value>) -> Kind {
    let values: Vec<&Value> = values.filter(|value| !value.is_null()).collect();
    let all = |is: fn(&Value) -> bool| values.iter().all(|value| is(value));
    match () {
        () if values.is_empty() => Kind::Float,
        () if all(Value::is_i64) => Kind::Int,
        () if all(Value::is_u64) => Kind::Id,
        () if all(Value::is_number) => Kind::Float,
        () if all(Value::is_boolean) => Kind::Bool,
        () => Kind::Text,
    }
}

fn metric(name: &str, rows: &[Row], baseline: Option<&[Row]>, confidence: f64) -> Option<MetricResult> {
    let values: Vec<f64> = rows.iter().filter_map(|row| row.metric(name)).collect();
    let difference = baseline.and_then(|baseline| {
        let pairs =
            rows.iter().zip(baseline).filter_map(|(row, base)| Some((row.metric(name)?, base.metric(name)?)));
        let (own, base): (Vec<f64>, Vec<f64>) = pairs.unzip();
        Estimate::of_pairs(&own, &base, confidence)
    });
    Some(MetricResult { estimate: Estimate::of(&values, confidence)?, difference })
}

fn metric_json(metric: &Option<MetricResult>) -> Value {
    let Some(metric) = metric else { return Value::Null };
    let mut json = serde_json::json!({
        "mean": metric.estimate.mean,
        "half_width": metric.estimate.half_width,
    });
    if let Some(difference) = metric.difference {
        json["difference"] = difference.mean.into();
        json["difference_half_width"] = difference.half_width.into();
    }
    json
}

/// A row without what its point says.
fn run_json(row: &Row) -> Value {
    let mut json = serde_json::to_value(row).unwrap_or_default();
    if let Value::Object(entries) = &mut json {
        entries.retain(|name, _| name != "point" && name != "fields");
    }
    json
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A table as text.
struct Csv(csv::Writer<Vec<u8>>);

impl Default for Csv {
    fn default() -> Self {
        Self(csv::Writer::from_writer(Vec::new()))
    }
}

impl Csv {
    fn push(&mut self, cells: impl Iterator<Item = String>) {
        // Writing to memory cannot fail, and all rows are of one length.
        let _ = self.0.write_record(cells);
    }

    fn text(self) -> String {
        String::from_utf8(self.0.into_inner().unwrap_or_default()).unwrap_or_default()
    }
}
