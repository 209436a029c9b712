//! A run's report: follows a simulation, and writes a folder of tables, plots and a summary.

mod blocks_csv;
mod collector;
mod error;
mod fleet;
pub(crate) mod folder;
mod inter_token;
pub(crate) mod json;
pub(crate) mod kv_event_json;
mod kv_events_jsonl;
mod log_histogram;
pub(crate) mod manifest;
mod metric_names;
mod percentiles;
pub(crate) mod plots;
mod replica_tally;
mod requests_csv;
mod run_figures;
mod run_page;
mod run_report;
mod summary;
mod terminal;
mod timeseries;

pub use error::ReportError;
pub use fleet::{FleetInfo, FleetSummary, Imbalance, Spread};
pub(crate) use folder::Folder;
pub(crate) use manifest::MANIFEST;
pub use manifest::TraceInfo;
pub use metric_names::{HEADLINES, metric_names, number_at};
pub use percentiles::LatencyMs;
pub use replica_tally::{ReplicaInfo, ReplicaSummary};
pub(crate) use requests_csv::tpot_ns;
pub use run_figures::RunFigures;
pub use run_report::{RunInfo, RunReport};
pub use summary::RunSummary;
pub use terminal::terminal_table;

#[cfg(test)]
mod tests;
