//! The rows of a sweep in order, what they say of each point, and the files that hold it.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::SweepError;
use super::header::RunKey;
use super::pareto::front;
use super::plan::{Plan, PlannedPoint, Row};
use super::plot;
use crate::report::json::pretty;
use crate::study::journal::write_whole;
use crate::study::statistics::Estimate;

/// Files that a finished sweep may have written.
pub(super) const RESULTS: [&str; 5] =
    ["results.csv", "points.csv", "results.json", "sweep.svg", "pareto.svg"];

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

    /// Writes tables and plots.
    pub(super) fn write(&self, folder: &Path) -> Result<(), SweepError> {
        write_whole(&folder.join("results.csv"), &self.runs_csv())?;
        write_whole(&folder.join("points.csv"), &self.points_csv())?;
        write_whole(&folder.join("results.json"), &pretty(&self.to_json()))?;
        for (name, svg) in plot::plots(self)? {
            write_whole(&folder.join(name), &svg)?;
        }
        Ok(())
    }

    /// A line for each run.
    fn runs_csv(&self) -> String {
        let mut table = Csv::default();
        let names = self.plan.is_named().then(|| "name".to_owned());
        let fields = &self.plan.fields;
        let begin = ["point".to_owned()].into_iter().chain(names);
        let end = ["replication", "seed"].map(str::to_owned).into_iter().chain(self.plan.metrics.clone());
        table.push(begin.chain(fields.clone()).chain(end).chain(["error".to_owned()]));
        for (index, point) in self.points.iter().enumerate() {
            for row in &point.rows {
                let metrics = self.plan.metrics.iter().map(|name| match &row.outcome {
                    super::plan::Outcome::Metrics(metrics) => cell(metrics.get(name)),
                    super::plan::Outcome::Error(_) => String::new(),
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
        let names = self.plan.is_named().then(|| "name".to_owned());
        let begin = ["point".to_owned()].into_iter().chain(names).chain(self.plan.fields.clone());
        let mut kinds = vec!["mean", "half_width"];
        if self.plan.baseline.is_some() {
            kinds.extend(["difference", "difference_half_width"]);
        }
        let of_metric = |name: &String| kinds.iter().map(|kind| format!("{name}.{kind}")).collect::<Vec<_>>();
        let metrics = self.plan.metrics.iter().flat_map(of_metric);
        let front = self.plan.pareto.is_some().then(|| "is_on_front".to_owned());
        table.push(begin.chain(["runs".to_owned()]).chain(metrics).chain(front).chain(["error".to_owned()]));
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
