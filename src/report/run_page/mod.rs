//! `report.html`: the run as one page.
//!
//! Each part is a [`Section`] made in a file of its own from a [`RunView`]; [`sections`] puts them in
//! order.

mod cache;
mod memory;
mod overview;
mod time_axis;

use maud::html;

use super::manifest::TraceInfo;
use super::run_report::RunInfo;
use super::summary::RunSummary;
use super::timeseries::Timeseries;
use crate::page::{Page, Section};

/// All that a section can draw from.
pub(super) struct RunView<'a> {
    pub info: &'a RunInfo,
    pub summary: &'a RunSummary,
    /// Of fewer bins than `timeseries.csv`, as many as can be seen.
    pub series: &'a Timeseries,
}

impl RunView<'_> {
    /// The scenario with its defaults and overrides.
    pub fn scenario(&self) -> serde_json::Value {
        serde_json::from_str(&self.info.scenario).unwrap_or_default()
    }

    pub fn trace(&self) -> Option<&TraceInfo> {
        self.info.trace.as_ref()
    }
}

/// The parts of the page in their order.
fn sections(view: &RunView<'_>) -> Vec<Section> {
    [
        Some(overview::section(view)),
        Some(cache::section(view)),
        Some(memory::section(view)),
        Some(overview::files(view)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

pub(super) fn run_page(view: &RunView<'_>) -> String {
    let page = Page {
        kind: "run",
        title: view.info.name.clone(),
        about: html! { p { (overview::about(view)) } },
        notice: view
            .summary
            .prefix_cache
            .zero_hits_because
            .as_ref()
            .map(|reason| format!("Nothing was hit: {reason}.")),
        headlines: overview::headlines(view),
        sections: sections(view),
    };
    page.html()
}
