//! Measured runs of real servers against simulations of them.
//!
//! A run is a server's settings, a load and what was measured ([`BenchRun`]). It is read from a
//! table of runs, from a log of single requests, or from what `vllm bench serve` saves. Each is
//! simulated with the load that was measured, and every figure that both sides have is compared.

mod bench_file;
mod bench_run;
mod closed_loop;
mod comparison;
mod csv_rows;
mod error;
mod fit;
mod json;
mod ladder;
mod metric;
mod page;
mod plots;
mod published;
mod published_ladders;
mod ranking;
mod recorded;
mod requests_csv;
mod runs_csv;
mod serve_json;
mod simulate;
mod summary;
mod table;
mod versions;

pub use bench_file::read_bench_file;
pub use bench_run::{BenchRun, Load, Settings};
pub use comparison::{Comparison, Outcome, compare_all};
pub use error::BenchError;
pub use fit::{HostFit, fit_host};
pub use json::write_json;
pub use ladder::{Ladder, Stage};
pub use metric::Metric;
pub use page::write_page;
pub use ranking::{RankedFigure, Ranking, StrategyMeans, rank};
pub use runs_csv::read_runs_csv;
pub use simulate::Profiles;
pub use summary::{Group, summarise};
pub use table::{terminal_table, write_csv};

#[cfg(test)]
mod tests;
