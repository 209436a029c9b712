//! `report.html`: the run as one page.
//!
//! Each part is a [`Section`] made in a file of its own from a [`RunView`]; [`sections`] puts them in
//! order.

mod cache;
mod fleet;
mod latency;
mod lifecycle;
mod memory;
mod overview;
mod residency;
mod roles;
mod steps;
mod tiers;
mod time_axis;
mod timeline;

use maud::html;

use super::lifecycle::LifecycleTally;
use super::manifest::TraceInfo;
use super::pulls::PullTally;
use super::run_report::RunInfo;
use super::spreads::Spreads;
use super::step_timeline::StepTimeline;
use super::summary::RunSummary;
use super::timeseries::Timeseries;
use crate::chart::sheet;
use crate::page::{Page, Section};

/// All that a section can draw from.
pub(super) struct RunView<'a> {
    pub info: &'a RunInfo,
    pub summary: &'a RunSummary,
    /// Of fewer bins than `timeseries.csv`, as many as can be seen.
    pub series: &'a Timeseries,
    pub spreads: &'a Spreads,
    pub timeline: &'a StepTimeline,
    /// If replicas come and go.
    pub lifecycle: Option<&'a LifecycleTally>,
    /// Reads between replicas.
    pub pulls: &'a PullTally,
    /// What was asked for beside the usual files, and what it holds.
    pub more_files: Vec<(&'static str, &'static str)>,
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
        fleet::section(view),
        lifecycle::section(view),
        roles::section(view),
        Some(cache::section(view)),
        Some(memory::section(view)),
        tiers::section(view),
        residency::section(view),
        latency::section(view),
        steps::section(view),
        timeline::section(view),
        Some(overview::files(view)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `hit_rate.svg`.
pub(super) fn hit_rate_svg(view: &RunView<'_>) -> String {
    sheet(&format!("{}: prefix cache hit rate", view.info.name), &[vec![cache::over_time(view)]])
}

/// `kv_usage.svg`.
pub(super) fn kv_usage_svg(view: &RunView<'_>) -> String {
    let blocks: u32 = view.info.usable_blocks().iter().map(|blocks| blocks + 1).sum();
    let title = format!("{}: KV cache in use, of {blocks} blocks", view.info.name);
    sheet(&title, &[vec![memory::usage(view)], vec![memory::queues(view)]])
}

pub(super) fn run_page(view: &RunView<'_>) -> String {
    let page = Page {
        kind: "run",
        title: view.info.name.clone(),
        about: html! { p { (overview::about(view)) } },
        notice: overview::notice(view.summary),
        headlines: overview::headlines(view),
        sections: sections(view),
    };
    page.html()
}
