//! Models, GPUs and how much KV cache fits: the facts that cost and scenarios build on.
//!
//! A model is read from a Hugging Face `config.json` ([`parse_hf_config`]) or found by name among
//! the built-in ones ([`Model::find`]); a GPU is found by name ([`Gpu::find`]).

mod dtype;
mod geometry;
mod gpu;
mod gpu_table;
mod hf_config;
mod hf_fields;
mod known_models;
mod model;
mod pipeline_stage;
mod sizing;

pub use dtype::Dtype;
pub use geometry::{ParameterGroup, ParameterRole};
pub use gpu::Gpu;
pub use hf_config::{HfConfigError, parse_hf_config};
pub use known_models::repository;
pub use model::{Mla, Model, Moe, SlidingWindow};
pub use pipeline_stage::PipelineStage;
pub use sizing::{KvCacheSize, MemoryConfig, SizingError, extrapolated_because, size_kv_cache};

/// A model or a GPU that the catalogue does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{name}`; use one of: {}", known.join(", "))]
pub struct UnknownName {
    /// `"model"` or `"GPU"`.
    pub kind: &'static str,
    pub name: String,
    pub known: Vec<&'static str>,
}
