//! kvsim: a discrete-event simulator of LLM serving with vLLM's prefix cache.
//!
//! ```text
//! scenario (YAML) --> workload --> arrivals --+
//!                                             v
//!            +-- simulation: clock, event queue, router --+
//!            |  replica = engine (decides) + cost (time)  |
//!            +----------------------+---------------------+
//!                                   v
//!                  run summary --> report (table, csv, json, svg)
//!
//! trace --> reuse: who touches which block again, and how far back --> trace_tools
//! study = many runs: sweep, plan, comparison
//! ```
//!
//! The rooms, in the order in which they may use each other: a room uses only rooms above it
//! (`tests/rooms.rs` reads this list). The blank lines keep rustfmt from sorting it.

pub mod units;

pub mod text_file;

pub mod whole_file;

pub mod prompt;

pub mod catalog;

pub mod engine;

pub mod cost;

pub mod workload;

pub mod reuse;

pub mod trace_tools;

pub mod simulation;

pub mod chart;

pub mod page;

pub mod report;

pub mod scenario;

pub mod study;

pub mod calibrate;

pub mod conformance;

pub mod validate;

pub mod cli;
