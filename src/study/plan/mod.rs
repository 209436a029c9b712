//! Plans: what to rent for a load, so that users are served as promised.
//!
//! [`Planner::load`] understands a plan's file as a load (a scenario), [`Targets`] and candidates. For each
//! candidate [`search`] finds the highest load of one replica whose targets are met, by simulations that
//! [`simulate`] runs and [`verdict`] judges; [`fleet`] says how many replicas the whole load takes and what
//! they cost, [`binding`] what holds a replica back, and [`command`] how to start it. As in a sweep each
//! finished simulation is in a journal, and a plan is a function of its file and the runs alone.

mod binding;
#[cfg(test)]
mod binding_tests;
mod candidate;
mod cluster_line;
mod command;
mod decision;
mod error;
mod file;
mod fleet;
#[cfg(test)]
mod fleet_tests;
mod header;
mod load;
mod measured;
mod meter;
mod offloading;
mod page;
mod plot;
mod recommend;
mod result;
mod run;
mod search;
mod settings;
mod step_figures;
mod table;
mod targets;
#[cfg(test)]
mod tests;
mod verify;
mod write;

pub use binding::Binding;
pub use error::PlanError;
pub use fleet::Fleet;
pub use load::{Overrides, Planner};
pub use result::{CandidateResult, Outcome, PlanResult};
pub use run::{Progress, RunOptions};
pub use table::terminal_text;
pub use targets::{Limit, Metric, Target};
