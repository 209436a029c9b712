//! Sweeps: a scenario at many points, each with several seeds.
//!
//! [`Sweep::load`] understands a sweep's file as a [`Plan`] and the scenario of each point;
//! [`Sweep::run`] runs them in parallel and writes a journal as they finish, so that a killed sweep
//! goes on where it was; [`merge`] joins the journals of shards. The [`Results`] are a function of
//! the plan and the rows alone: how often a sweep was killed, on how many threads or machines it
//! ran cannot be seen in them.

mod each_field;
mod error;
mod file;
mod header;
mod labels;
mod lines;
mod load;
mod merge;
mod page;
mod pareto;
mod plan;
mod plot;
mod points;
mod results;
mod run;
mod table;
mod values;

pub use error::SweepError;
pub use file::Pareto;
pub(in crate::study) use file::{Field, check_apart, check_name, fields_of};
pub(in crate::study) use labels::{labels, shorten, value};
pub use load::{Overrides, Sweep};
pub use merge::merge;
pub use plan::{Outcome, Plan, PlannedPoint, Row, Shard};
pub(in crate::study) use points::{Point, grid, listed};
pub use results::{MetricResult, PointResult, Results};
pub use run::{Progress, RunOptions};
pub use table::terminal_table;
