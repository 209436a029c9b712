//! Scenarios: YAML files that say which model, GPU, engine and traffic to simulate.
//!
//! Reading one has three steps: the text becomes a tree of values that know their place, and with
//! the command line's changes a [`ScenarioFile`], which is what was typed; [`Scenario::load`] checks
//! it against the catalogue and the engine's rules, which says what it means; [`Scenario::build`]
//! makes the simulation.

mod build;
mod caveats;
mod check;
mod cluster_section;
mod data_parallel;
mod deserialize;
mod disaggregation;
mod engine_section;
mod error;
mod file;
mod file_kind;
mod kv_cache_groups;
mod lifecycle;
mod pool;
mod replica;
mod run_info;
mod server_size;
mod shared_tiers;
mod template;
mod trace_progress;
mod tree;

pub use build::{Scenario, Source};
pub use cluster_section::{ClusterEventSection, ClusterSection, KvLinkSection, PoolSection};
pub(crate) use deserialize::NodeDeserializer;
pub use disaggregation::Roles;
pub use engine_section::{EngineSection, SpeculativeSection, TierSection, TransferSection};
pub use error::{ErrorKind, ScenarioError};
pub(crate) use error::{FieldError, Place, suggest};
pub use file::{ActionSection, CostSection, ScenarioFile};
pub(crate) use file_kind::FileKind;
pub use pool::Pool;
pub use server_size::{ModelError, ServerSize, find_model};
pub use template::Template;
pub(crate) use trace_progress::CountingReader;
pub(crate) use tree::{Node, Value, split_path};
