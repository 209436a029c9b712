//! A run's report: follows a simulation, and writes a folder of tables, plots and a summary.

mod backlog;
mod blocks_csv;
mod collector;
mod distribution;
mod error;
mod explorer;
mod fleet;
pub(crate) mod folder;
mod followers;
mod goodput;
mod inter_token;
pub(crate) mod json;
pub(crate) mod kv_event_json;
mod kv_events_jsonl;
mod lifecycle;
mod log_histogram;
pub(crate) mod manifest;
mod metric_names;
#[cfg(not(feature = "parquet"))]
#[path = "no_parquet.rs"]
mod parquet;
#[cfg(feature = "parquet")]
mod parquet;
mod percentiles;
mod pulls;
mod replica_tally;
mod requests_csv;
mod run_figures;
mod run_page;
mod run_report;
mod spreads;
mod step_timeline;
mod summary;
mod table_column;
mod tenants;
mod terminal;
mod tiers;
mod timeseries;
mod trace_events;
mod write_page;

pub use error::ReportError;
pub use explorer::{DEFAULT_STEPS, ExploreOptions};
pub use fleet::{FleetInfo, FleetSummary, Imbalance, Spread};
pub(crate) use folder::Folder;
pub use goodput::{Goodput, GoodputLimits, TenantGoodput};
pub use lifecycle::LifecycleSummary;
pub(crate) use manifest::MANIFEST;
pub use manifest::TraceInfo;
pub use metric_names::{HEADLINES, metric_names, number_at};
pub(crate) use parquet::parquet_bytes;
pub use percentiles::LatencyMs;
pub use pulls::PullSummary;
pub use replica_tally::{ReplicaInfo, ReplicaSummary};
pub(crate) use requests_csv::tpot_ns;
pub use run_figures::RunFigures;
pub use run_report::{RunInfo, RunReport};
pub use summary::RunSummary;
pub(crate) use table_column::{Column, Kind};
pub use tenants::{Fairness, TenantSummary};
pub use terminal::terminal_table;
pub use trace_events::{TRACE_EVENTS, TraceEventsOptions};
pub(crate) use write_page::write_page;

#[cfg(test)]
mod tests;
