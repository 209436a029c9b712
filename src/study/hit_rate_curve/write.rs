//! The folder of a curve.

use std::path::Path;

use serde::Serialize;

use super::CurveError;
use super::breakdown::Grouping;
use super::curve::{Curve, Point};
use super::request::{CurveRequest, Options};
use super::{page, plot};
use crate::report::folder::Folder;
use crate::report::json::pretty;
use crate::report::manifest::{MANIFEST, Manifest, TraceInfo};
use crate::report::{Column, Kind};
use crate::scenario::Scenario;

const COLUMNS: [Column<&str>; 13] = [
    ("block_size_tokens", Kind::Count),
    ("kind", Kind::Text),
    ("label", Kind::Text),
    ("cache_blocks", Kind::Count),
    ("cache_tokens", Kind::Count),
    ("cache_gib", Kind::Float),
    ("queries_tokens", Kind::Int),
    ("hits_tokens", Kind::Int),
    ("hit_rate", Kind::Float),
    ("hit_rate_half_width", Kind::Float),
    ("preemptions", Kind::Int),
    ("kv_cache_usage_mean", Kind::Float),
    ("error", Kind::Text),
];

const BREAKDOWN_COLUMNS: [Column<&str>; 9] = [
    ("block_size_tokens", Kind::Count),
    ("by", Kind::Text),
    ("key", Kind::Text),
    ("cache", Kind::Text),
    ("requests", Kind::Count),
    ("queries_tokens", Kind::Count),
    ("hits_tokens", Kind::Count),
    ("hit_rate", Kind::Float),
    ("hit_rate_half_width", Kind::Float),
];

#[derive(Serialize)]
struct CurveManifest<'a> {
    #[serde(flatten)]
    manifest: Manifest<'a>,
    curve: Options<'a>,
}

impl Curve {
    /// Writes `curve.csv`, `breakdown.csv`, both as Parquet too, `curve.json`, `curve.svg`, `report.html` and
    /// `manifest.json`; the folder
    /// changes when all are there.
    ///
    /// # Errors
    /// The folder holds something else, or cannot be written.
    pub fn write(
        &self,
        target: &Path,
        request: &CurveRequest,
        scenario: &Scenario,
        trace: Option<&TraceInfo>,
    ) -> Result<(), CurveError> {
        let folder = Folder::create(target)?;
        let manifest = Manifest::new(&self.name, self.seed, &scenario.resolved(), trace);
        let table = |name: &str, columns: &[Column<&str>], csv: &str| {
            folder.write(name, csv)?;
            folder.parquet_beside(name, columns)
        };
        table("curve.csv", &COLUMNS, &self.csv())?;
        table("breakdown.csv", &BREAKDOWN_COLUMNS, &self.breakdown_csv())?;
        folder.write("curve.json", &self.json())?;
        folder.write("curve.svg", &plot::file(self))?;
        folder.write("report.html", &page::page(self))?;
        folder.write(MANIFEST, &pretty(&CurveManifest { manifest, curve: request.options() }))?;
        Ok(folder.publish()?)
    }

    /// All of it.
    pub fn json(&self) -> String {
        pretty(self)
    }

    /// A row for each size, mark, knee and simulation.
    pub(super) fn csv(&self) -> String {
        let mut csv = csv::Writer::from_writer(Vec::new());
        let mut row = |cells: [String; 13]| {
            // Writing to memory cannot fail, and all rows are of one length.
            let _ = csv.write_record(cells);
        };
        row(COLUMNS.map(|(name, _)| name.to_owned()));
        for curve in &self.block_sizes {
            let block_size = curve.shape.block_size_tokens.to_string();
            let mut of_point = |kind: &str, label: &str, point: &Point| {
                row([
                    block_size.clone(),
                    kind.to_owned(),
                    label.to_owned(),
                    point.cache_blocks.to_string(),
                    point.cache_tokens.to_string(),
                    point.cache_gib.to_string(),
                    curve.queries_tokens.to_string(),
                    point.hits_tokens.to_string(),
                    point.hit_rate.to_string(),
                    point.hit_rate_half_width.map(|it| it.to_string()).unwrap_or_default(),
                    String::new(),
                    String::new(),
                    String::new(),
                ]);
            };
            curve.points.iter().for_each(|point| of_point("one_pass", "", point));
            for (mark, point) in self.marks.iter().zip(&curve.at_marks) {
                of_point("mark", &mark.label, point);
            }
            curve.knee.iter().for_each(|point| of_point("knee", "", point));
            of_point("infinite", "", &curve.infinite);
            for point in &curve.simulated {
                let run = |cell: fn(&super::curve::SimulatedRun) -> String| {
                    point.run.as_ref().map(cell).unwrap_or_default()
                };
                row([
                    block_size.clone(),
                    "simulated".to_owned(),
                    String::new(),
                    point.cache_blocks.to_string(),
                    point.cache_tokens.to_string(),
                    point.cache_gib.to_string(),
                    run(|run| run.queries_tokens.to_string()),
                    run(|run| run.hits_tokens.to_string()),
                    run(|run| run.hit_rate.to_string()),
                    String::new(),
                    run(|run| run.preemptions.to_string()),
                    run(|run| run.usage_mean.to_string()),
                    point.error.clone().unwrap_or_default(),
                ]);
            }
        }
        text(csv)
    }

    /// A row for each group and size.
    fn breakdown_csv(&self) -> String {
        let mut csv = csv::Writer::from_writer(Vec::new());
        let mut row = |cells: [&str; 9]| {
            let _ = csv.write_record(cells);
        };
        row(BREAKDOWN_COLUMNS.map(|(name, _)| name));
        for curve in &self.block_sizes {
            let groups = Grouping::ALL.into_iter().flat_map(|grouping| {
                curve.breakdown.groups(grouping).iter().map(move |group| (grouping, group))
            });
            for (grouping, group) in groups {
                for (index, (size, hits)) in curve.breakdown.sizes.iter().zip(&group.hits_tokens).enumerate()
                {
                    let half_width = group.hit_rate_half_widths.get(index);
                    row([
                        &curve.shape.block_size_tokens.to_string(),
                        grouping.name(),
                        &group.key,
                        size,
                        &group.requests.to_string(),
                        &group.queries_tokens.to_string(),
                        &hits.to_string(),
                        &(*hits as f64 / group.queries_tokens as f64).to_string(),
                        &half_width.map(f64::to_string).unwrap_or_default(),
                    ]);
                }
            }
        }
        text(csv)
    }
}

fn text(csv: csv::Writer<Vec<u8>>) -> String {
    String::from_utf8(csv.into_inner().unwrap_or_default()).unwrap_or_default()
}
