//! `--set path.to.field=value`: changes a field of a scenario before it is checked.

use serde_json::Value;

use super::ScenarioError;

/// Sets each field in turn. A field that was not typed is made; a list is entered by index.
///
/// # Errors
/// A text without `=`, a value that is no YAML, a path through something that has no fields.
pub(super) fn apply(document: &mut Value, overrides: &[String]) -> Result<(), ScenarioError> {
    for text in overrides {
        let wrong = |message: String| ScenarioError::new(format!("--set {text}"), message);
        let Some((path, value)) = text.split_once('=') else {
            return Err(wrong("there is no `=`".into()).hint("write --set engine.block_size=32"));
        };
        let value: Value =
            serde_yaml::from_str(value).map_err(|error| wrong(format!("the value is not YAML: {error}")))?;
        let mut at = &mut *document;
        for part in path.split('.') {
            if at.is_null() {
                *at = Value::Object(serde_json::Map::new());
            }
            at = match at {
                Value::Object(fields) => fields.entry(part).or_insert(Value::Null),
                Value::Array(items) => {
                    let len = items.len();
                    let item = part.parse::<usize>().ok().and_then(|index| items.get_mut(index));
                    item.ok_or_else(|| {
                        wrong(format!("`{part}` is no item of a list of {len}"))
                            .hint("items are numbered from 0")
                    })?
                }
                other => return Err(wrong(format!("there is nothing below {other} for `{part}`"))),
            };
        }
        *at = value;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_set_made_and_indexed() {
        let mut document = json!({"engine": {"block_size": 16}, "list": [1, {"a": 2}]});
        let set = |text: &str| text.to_owned();
        let overrides =
            [set("engine.block_size=32"), set("engine.new.deep=word"), set("list.1.a=[3, x]"), set("seed=7")];
        apply(&mut document, &overrides).unwrap();
        assert_eq!(
            document,
            json!({"engine": {"block_size": 32, "new": {"deep": "word"}}, "list": [1, {"a": [3, "x"]}], "seed": 7})
        );
        assert!(apply(&mut document, &[set("engine.block_size")]).is_err());
        assert!(apply(&mut document, &[set("list.9=1")]).is_err());
        assert!(apply(&mut document, &[set("seed.below=1")]).is_err());
    }
}
