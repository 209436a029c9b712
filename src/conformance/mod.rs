//! vLLM's decision log against ours.
//!
//! A case describes an engine, the requests that arrive and what the model samples; the log says
//! what the scheduler decided, step by step. Logs recorded from the real vLLM are the judge.

mod case;
mod compare;
mod connector;
mod digests;
mod log;
mod model;
mod pull;
mod run;

pub use case::{Case, CaseError, CaseRequest};
pub use compare::{Difference, first_difference};
pub use run::{run_case, run_case_without_log};

#[cfg(test)]
mod offload_tests;
