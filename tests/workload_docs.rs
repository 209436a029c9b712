//! docs/workloads.md is true: its examples are valid, and it has every field.

use std::collections::BTreeSet;

use kvsim::workload::WorkloadConfig;
use serde_json::Value;

const TEXT: &str = include_str!("../docs/workloads.md");

fn examples() -> Vec<WorkloadConfig> {
    let blocks = TEXT.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(|yaml| serde_yaml::from_str(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"))).collect()
}

fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                into.insert(name.clone());
                keys(value, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
        _ => {}
    }
}

#[test]
fn its_examples_are_valid_and_show_every_kind() {
    let mut kinds: Vec<&str> = Vec::new();
    for example in examples() {
        example.validate().unwrap_or_else(|error| panic!("{}: {error}", example.kind()));
        kinds.push(example.kind());
    }
    assert_eq!(kinds, ["random", "prefix_repetition", "shared_prefix", "chat", "agents", "rag", "mix"]);
}

#[test]
fn it_has_every_field() {
    let mut fields = BTreeSet::new();
    for example in examples() {
        keys(&serde_json::to_value(example).unwrap(), &mut fields);
    }
    let words: BTreeSet<&str> = TEXT.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let missing: Vec<_> = fields.iter().filter(|field| !words.contains(field.as_str())).collect();
    assert!(missing.is_empty() && fields.len() > 50, "{missing:?}");
}
