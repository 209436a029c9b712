//! A scenario as text, of which variants are made.

use serde::Deserialize;

use super::build::{Scenario, Source, Typed};
use super::deserialize::NodeDeserializer;
use super::error::{FieldError, ScenarioError};
use super::file::ScenarioFile;
use super::file_kind::FileKind;
use super::tree::{Node, Value};
use crate::workload::WorkloadConfig;

/// The text with the command line's changes, read as far as a tree of values: fields may still be
/// missing.
#[derive(Clone, Debug)]
pub struct Template {
    source: Source,
    tree: Node,
}

impl Template {
    /// # Errors
    /// The text is no YAML, or an override does not fit it.
    pub fn read(source: Source) -> Result<Self, ScenarioError> {
        let tree = read(&source).map_err(|error| error.in_file(&source.path))?;
        Ok(Self { source, tree })
    }

    /// The same of a tree that was read as a part of another file.
    pub(crate) fn of_tree(source: Source, tree: Node) -> Self {
        Self { source, tree }
    }

    /// Changes the field at a path for all variants.
    pub(crate) fn set(&mut self, path: &str, value: Node) -> Result<(), ScenarioError> {
        self.tree.set(path, value).map_err(|error| error.in_file(&self.source.path))
    }

    /// Changes a field for all variants: `path=value`.
    pub(crate) fn apply_override(&mut self, text: &str) -> Result<(), ScenarioError> {
        self.tree.apply_override(text).map_err(|error| error.in_file(&self.source.path))
    }

    /// A value for the field at a path, from text.
    pub(crate) fn value(&self, path: &str, text: &str) -> Result<Node, ScenarioError> {
        let value = Node::parse_override(&format!("{path}={text}"), text);
        value.map_err(|error| error.in_file(&self.source.path))
    }

    /// What was typed, with the changes.
    pub fn to_json(&self) -> serde_json::Value {
        self.tree.to_json()
    }

    /// The scenario with these fields, checked.
    ///
    /// # Errors
    /// The first problem, with the line to change.
    pub(crate) fn scenario(&self, fields: &[(String, Node)]) -> Result<Scenario, ScenarioError> {
        let mut tree = self.tree.clone();
        let in_file = |error: FieldError| error.in_file(&self.source.path);
        for (path, value) in fields {
            tree.set(path, value.clone()).map_err(in_file)?;
        }
        let mut file = ScenarioFile::deserialize(NodeDeserializer::new(&tree)).map_err(in_file)?;
        file.seed = self.source.seed.unwrap_or(file.seed);
        match &mut file.workload {
            WorkloadConfig::Trace(trace) => trace.skip_bad_rows |= self.source.skip_bad_rows,
            _ if self.source.skip_bad_rows => {
                return Err(ScenarioError::new("--skip-bad-rows", "the scenario's workload is no trace").hint(
                    "leave --skip-bad-rows out, or give `skip_bad_rows: true` to the traces inside the workload",
                ));
            }
            _ => {}
        }
        Scenario::new(Typed { source: self.source.clone(), tree }, file)
    }
}

fn read(source: &Source) -> Result<Node, FieldError> {
    let mut tree = Node::parse(&source.text)?;
    if !matches!(tree.value, Value::Map(_)) {
        return Err(FieldError {
            place: Some(tree.place),
            ..FieldError::new("found no fields", "write YAML, each field on a line `name: value`")
        });
    }
    FileKind::Scenario.check(&tree)?;
    for text in &source.overrides {
        tree.apply_override(text)?;
    }
    Ok(tree)
}
