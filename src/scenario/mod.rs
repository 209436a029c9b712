//! Scenarios: a YAML file with defaults below it and overrides above it, checked and made into a
//! simulation.
//!
//! What was typed is a tree of values that know their place (`tree`) and from it a [`ScenarioFile`];
//! what it means is a [`Scenario`]. Every default is in `defaults.yaml`, and the configuration of
//! each room is nested under the names that it has there.

mod deserialize;
mod engine_args;
mod error;
mod file;
mod kv_cache_groups;
mod resolve;
mod run;
mod tree;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use error::{Place, ScenarioError};
pub use run::{ScenarioRun, TraceProgress};

use crate::catalog::{Gpu, KvCacheSize, Model};
use crate::engine::EngineConfig;
use crate::simulation::Action;
use deserialize::NodeDeserializer;
use error::FieldError;
use file::{CostArgs, ScenarioFile, WorkloadArgs};
use tree::Node;

/// The text of the defaults, for whoever wants to read them.
pub const DEFAULTS: &str = include_str!("defaults.yaml");

/// A scenario that was read and checked: it can run, as long as its trace is what it says.
#[derive(Debug)]
pub struct Scenario {
    source: Source,
    name: String,
    seed: u64,
    model: Model,
    gpu: &'static Gpu,
    tensor_parallel_size: u32,
    engine: EngineConfig,
    kv_cache_size: KvCacheSize,
    workload: WorkloadArgs,
    cost: CostArgs,
    actions: Vec<Action>,
}

/// The file and the tree made of it, to which errors point.
#[derive(Debug)]
struct Source {
    path: PathBuf,
    text: String,
    tree: Node,
}

impl Scenario {
    /// Reads the file at `path` and applies `overrides`, such as `engine.block_size=32`, in order.
    ///
    /// # Errors
    /// [`ScenarioError`], the first mistake, with its place and what to type instead.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Self, ScenarioError> {
        let bytes =
            std::fs::read(path).map_err(|source| ScenarioError::Read { path: path.to_owned(), source })?;
        let text = String::from_utf8(bytes).map_err(|error| ScenarioError::NotUtf8 {
            path: path.to_owned(),
            valid_up_to: error.utf8_error().valid_up_to(),
        })?;
        Self::parse(path, text, overrides)
    }

    /// The same from a text; `path` is what it is called, and what its relative paths count from.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(path: &Path, text: String, overrides: &[String]) -> Result<Self, ScenarioError> {
        let mut source = Source { path: path.to_owned(), text, tree: default_tree() };
        match read_file(&mut source, overrides) {
            Ok(file) => resolve::resolve(source, file),
            Err(error) => Err(source.error(error)),
        }
    }

    /// The name of the report's folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    pub fn tensor_parallel_size(&self) -> u32 {
        self.tensor_parallel_size
    }

    pub fn engine(&self) -> &EngineConfig {
        &self.engine
    }

    /// What fits into the GPU's memory; an override of the number of blocks does not change it.
    pub fn kv_cache_size(&self) -> &KvCacheSize {
        &self.kv_cache_size
    }

    /// Defaults, file and overrides together as JSON with sorted fields: equal scenarios have equal
    /// text, however they were typed.
    pub fn canonical_json(&self) -> String {
        self.source.tree.to_json().to_string()
    }
}

fn default_tree() -> Node {
    let mut tree = Node::parse(DEFAULTS).expect("the embedded defaults are read by a test");
    tree.set_place(&Place::Default);
    tree
}

fn read_file(source: &mut Source, overrides: &[String]) -> Result<ScenarioFile, FieldError> {
    let typed = Node::parse(&source.text)?;
    if !matches!(typed.value, tree::Value::Map(_)) {
        let error = FieldError::new("found no fields", "write YAML, one `field: value` to a line");
        return Err(FieldError { place: Some(typed.place), ..error });
    }
    source.tree.overlay(typed);
    for text in overrides {
        source.tree.apply_override(text)?;
    }
    ScenarioFile::deserialize(NodeDeserializer::new(&source.tree))
}

impl Source {
    fn error(&self, error: FieldError) -> ScenarioError {
        ScenarioError::Field {
            file: self.path.clone(),
            text: self.text.clone(),
            place: error.place.unwrap_or(Place::Default),
            field: error.field,
            problem: error.problem,
            hint: error.hint,
        }
    }

    /// An error of the field at a path, at the place where it was typed.
    fn field_error(&self, field: &str, problem: impl Into<String>, hint: impl Into<String>) -> ScenarioError {
        let error = FieldError::new(problem, hint);
        self.error(FieldError { place: Some(self.tree.locate(field)), field: field.to_owned(), ..error })
    }

    /// The same from a message whose second half, after a semicolon, says what to do.
    fn field_message(&self, field: &str, message: &str) -> ScenarioError {
        let (problem, hint) = message.split_once("; ").unwrap_or((message, "change it"));
        self.field_error(field, problem, hint)
    }

    /// A path as it was typed: in the file relative to the file's folder, in an override relative to
    /// the working folder.
    fn resolve_path(&self, field: &str, typed: &Path) -> PathBuf {
        match self.path.parent() {
            Some(folder) if !self.tree.is_override(field) => folder.join(typed),
            _ => typed.to_owned(),
        }
    }
}
