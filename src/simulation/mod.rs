//! Simulated time: arrivals, the router, replicas that serve them, and what happens when.
//!
//! Time is integer nanoseconds. Events at equal time leave in the order of their rank
//! ([`Event`]), then of the replicas, then of insertion, so a run depends on nothing but its scenario and seed.

mod data_parallel;
mod disaggregation;
mod engine_times;
mod event_queue;
mod kv_usage;
mod leases;
mod lifecycle;
mod live_request;
mod observer;
mod output_steps;
mod pipeline;
mod pull;
mod replica;
pub mod router;
mod run;
mod serving;
mod store_link;
mod tier_ending;
mod transfers;

#[cfg(test)]
mod abort_tests;
#[cfg(test)]
mod disaggregation_tests;
#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod host_tests;
#[cfg(test)]
mod role_failure_tests;
#[cfg(test)]
mod shared_tier_tests;
#[cfg(test)]
mod tests;

pub use data_parallel::{DataParallelConfig, Endpoints, LockstepConfig, LockstepStats};
pub use disaggregation::{Disaggregation, Role};
pub use lifecycle::{
    Autoscaler, AutoscalerConfig, LifecycleConfig, OnFailure, PoolScaler, ReplicaState, ScalingMetric,
    ScalingRules, SelectPolicy,
};
pub use live_request::DraftAcceptance;
pub use observer::{
    EngineCall, NO_REPLICA, Observer, PullRecord, RequestRecord, ServerLoss, StepRecord, TransferRecord,
};
pub use output_steps::StepSpan;
pub use pull::{PullFailures, PullLink, PullLinks, Puller};
pub use replica::{Replica, ReplicaConfig};
pub use run::{Action, ActionKind, RunEnding, Simulation, SimulationError};
pub use store_link::StoreLink;
pub use tier_ending::{ReplicaTierEnding, TierEnding};
pub use transfers::{Link, LinkStats, TierLink, Transfers};
