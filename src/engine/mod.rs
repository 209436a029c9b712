//! vLLM's engine core for one replica: pure and deterministic.
//!
//! Mirrors vLLM 0.33.0. Names are vLLM's; a comment names the file and function whose behaviour is
//! mirrored. The engine knows nothing of cost, files or threads; the time with which it stamps
//! blocks is the caller's.

pub mod config;
pub mod connector;
pub mod hash;
pub mod kv_cache;
pub mod kv_events;
pub mod prefix_cache_stats;
mod python_set;
mod request;
mod request_table;
pub mod scheduler;

pub use config::{EngineConfig, EngineConfigError, SchedulingPolicy, SpecMethod, SpeculativeConfig};
pub use request::{FinishReason, NewRequest, PrefillStats, Request, RequestStatus};
pub use request_table::RequestSlot;
