//! Simulated time: arrivals, the router, replicas that serve them, and what happens when.
//!
//! Time is integer nanoseconds. Events at equal time leave in the order of their rank
//! ([`Event`]), then of the replicas, then of insertion, so a run depends on nothing but its scenario and seed.

mod event_queue;
mod kv_usage;
mod lifecycle;
mod observer;
mod output_steps;
mod pipeline;
mod replica;
pub mod router;
mod run;
mod serving;
mod transfers;

#[cfg(test)]
mod abort_tests;
#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod host_tests;
#[cfg(test)]
mod tests;

pub use lifecycle::{
    Autoscaler, AutoscalerConfig, LifecycleConfig, OnFailure, ReplicaState, ScalingMetric, ScalingRules,
};
pub use observer::{EngineCall, NO_REPLICA, Observer, RequestRecord, ServerLoss, StepRecord, TransferRecord};
pub use output_steps::StepSpan;
pub use replica::{DraftAcceptance, Replica, ReplicaConfig};
pub use run::{Action, ActionKind, RunEnding, Simulation, SimulationError};
pub use transfers::{Link, Transfers};
