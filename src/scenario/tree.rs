//! A scenario as it was typed: a tree of values that know their place.
//!
//! Overrides are applied here, before anything is given a meaning, so that a mistake is reported in
//! the same way wherever it was typed.

use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{DuplicateKeyPolicy, Location, Spanned};

use super::error::{FieldError, Place};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub value: Value,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    String(String),
    List(Vec<Node>),
    /// In the order of the text; after [`Node::parse`] no key is there twice.
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub name: String,
    pub place: Place,
}

impl Node {
    /// Reads YAML; places are those of a file.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        // Twice the same key is found below, in words of ours.
        let options = serde_yaml::options! { duplicate_keys: DuplicateKeyPolicy::PassThrough };
        let node: Self = serde_yaml::from_str_with_options(text, options).map_err(|error| {
            let error = error.without_snippet();
            let place = error.location().map(|location| file_place(&location));
            // The message repeats the place, which has its own field here.
            let message = error.to_string();
            let message = message.lines().next().unwrap_or_default();
            let message = message.split(" at line ").next().unwrap_or_default();
            let message = message
                .split_once("column ")
                .map_or(message, |(_, rest)| rest.split_once(": ").map_or(message, |(_, problem)| problem));
            // `.nan` and `.inf`, which YAML has for numbers.
            let (message, hint) = match message.strip_prefix("non-finite float ") {
                Some(rest) => {
                    let number = rest.split(" rejected").next().unwrap_or_default();
                    (format!("found {number}"), "give a finite number")
                }
                None => (message.to_owned(), "write YAML, each field on a line `name: value`"),
            };
            FieldError { place, ..FieldError::new(message, hint) }
        })?;
        match node.twice() {
            Some(key) => Err(FieldError {
                place: Some(key.place.clone()),
                ..FieldError::new(format!("`{}` is there twice", key.name), "leave one of them out")
            }),
            None => Ok(node),
        }
    }

    /// The first key that another one of the same map has the name of.
    fn twice(&self) -> Option<&Key> {
        match &self.value {
            Value::List(items) => items.iter().find_map(Self::twice),
            Value::Map(entries) => entries.iter().enumerate().find_map(|(index, (key, node))| {
                let is_known = entries[..index].iter().any(|(known, _)| known.name == key.name);
                if is_known { Some(key) } else { node.twice() }
            }),
            _ => None,
        }
    }

    /// Reads `path=value`, whose places are all the override itself.
    pub fn parse_override(text: &str, value: &str) -> Result<Self, FieldError> {
        let place = Place::Override(text.to_owned());
        match Self::parse(value) {
            Ok(mut node) => {
                node.set_place(&place);
                Ok(node)
            }
            Err(error) => Err(FieldError { place: Some(place), ..error }),
        }
    }

    pub fn set_place(&mut self, place: &Place) {
        self.place = place.clone();
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.set_place(place)),
            Value::Map(entries) => {
                for (key, node) in entries {
                    key.place = place.clone();
                    node.set_place(place);
                }
            }
            _ => {}
        }
    }

    /// Says of all places in this file that they lie in `file`, for a value that goes elsewhere.
    pub fn out_of(mut self, file: &Path) -> Self {
        self.leave(file);
        self
    }

    fn leave(&mut self, file: &Path) {
        let leave = |place: &mut Place| {
            if let Place::File { line, column } = *place {
                *place = Place::OtherFile { file: file.to_owned(), line, column };
            }
        };
        leave(&mut self.place);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.leave(file)),
            Value::Map(entries) => {
                for (key, node) in entries {
                    leave(&mut key.place);
                    node.leave(file);
                }
            }
            _ => {}
        }
    }

    /// Applies an override: `path=value`, where the path's parts are the names of fields and the
    /// positions in lists, counted from 0, with dots between them.
    pub fn apply_override(&mut self, text: &str) -> Result<(), FieldError> {
        let Some((path, value)) = text.split_once('=').filter(|(path, _)| !path.trim().is_empty()) else {
            let hint = "write path=value, such as engine.block_size=32";
            return Err(FieldError {
                place: Some(Place::Override(text.to_owned())),
                ..FieldError::new("no `=` between a field and its value", hint)
            });
        };
        self.set(path.trim(), Self::parse_override(text, value)?)
    }

    /// Puts a value at a path; what was there goes, and what is missing on the way is made.
    ///
    /// # Errors
    /// A list on the way has no such position.
    pub fn set(&mut self, path: &str, value: Self) -> Result<(), FieldError> {
        let place = value.place.clone();
        let error = |field: &str, problem: String, hint: String| FieldError {
            place: Some(place.clone()),
            field: field.to_owned(),
            problem,
            hint,
        };
        let mut node = self;
        let mut so_far = String::new();
        for part in split_path(path) {
            let parent = so_far.clone();
            push_path(&mut so_far, part);
            if !matches!(node.value, Value::Map(_) | Value::List(_)) {
                *node = Self { value: Value::Map(Vec::new()), place: place.clone() };
            }
            node = match &mut node.value {
                Value::List(items) => {
                    let len = items.len();
                    let item = part.parse::<usize>().ok().and_then(|index| items.get_mut(index));
                    item.ok_or_else(|| {
                        let hint = match len {
                            0 => "the list is empty: give it as a whole".to_owned(),
                            1 => "use 0, the only position".to_owned(),
                            _ => format!("use a position from 0 to {}", len - 1),
                        };
                        error(&parent, format!("the list has no `{part}`"), hint)
                    })?
                }
                Value::Map(entries) => {
                    let index = entries.iter().position(|(key, _)| key.name == part).unwrap_or_else(|| {
                        let key = Key { name: part.to_owned(), place: place.clone() };
                        entries.push((key, Self { value: Value::Null, place: place.clone() }));
                        entries.len() - 1
                    });
                    &mut entries[index].1
                }
                // It was made a map above.
                _ => return Ok(()),
            };
        }
        *node = value;
        Ok(())
    }

    /// The value of a key of this map.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// Takes a key out of this map.
    pub fn remove(&mut self, name: &str) {
        if let Value::Map(entries) = &mut self.value {
            entries.retain(|(key, _)| key.name != name);
        }
    }

    /// Puts a value at a key of this map; with `merge`, a map over the map that is there, key by key.
    pub fn overlay(&mut self, name: &str, over: &Self, merge: bool) {
        let Value::Map(entries) = &mut self.value else { return };
        let Some((_, under)) = entries.iter_mut().find(|(key, _)| key.name == name) else {
            entries.push((Key { name: name.to_owned(), place: over.place.clone() }, over.clone()));
            return;
        };
        match (&over.value, &under.value) {
            (Value::Map(over), Value::Map(_)) if merge => {
                over.iter().for_each(|(key, node)| under.overlay(&key.name, node, true));
            }
            _ => *under = over.clone(),
        }
    }

    /// The values without their places.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Unsigned(value) => (*value).into(),
            Value::Signed(value) => (*value).into(),
            Value::Float(value) => (*value).into(),
            Value::String(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                entries.iter().map(|(key, node)| (key.name.clone(), node.to_json())).collect()
            }
        }
    }

    /// The place of the field at `path`, or if it was not typed, of the nearest one around it.
    pub fn locate(&self, path: &str) -> Option<&Place> {
        let mut node = self;
        let mut place = None;
        for part in split_path(path) {
            match &node.value {
                Value::Map(entries) => {
                    let Some((key, value)) = entries.iter().find(|(key, _)| key.name == part) else { break };
                    let is_scalar = !matches!(value.value, Value::Map(_) | Value::List(_));
                    place = Some(if is_scalar { &value.place } else { &key.place });
                    node = value;
                }
                Value::List(items) => {
                    let item = part.parse::<usize>().ok().and_then(|index| items.get(index));
                    let Some(item) = item else { break };
                    place = Some(&item.place);
                    node = item;
                }
                _ => break,
            }
        }
        place
    }
}

/// Parts of a path: `tenants[0].name` and `tenants.0.name` are the same.
pub(crate) fn split_path(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|part| part.trim_end_matches(']')).filter(|part| !part.is_empty())
}

/// Appends a part to a path, a position in brackets.
pub(super) fn push_path(path: &mut String, part: &str) {
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        path.push_str(&format!("[{part}]"));
    } else {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(part);
    }
}

fn file_place(location: &Location) -> Place {
    Place::File { line: location.line() as usize, column: location.column() as usize }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, place: file_place(&spanned.referenced) })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Signed(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let key = Key { place: file_place(&key.referenced), name: key.value };
            entries.push((key, map.next_value()?));
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_place() {
        let node = Node::parse("a: 1\nb:\n  - {c: -2}\n  - x\n").unwrap();
        let at = |path: &str, line, column| {
            assert_eq!(node.locate(path), Some(&Place::File { line, column }), "{path}");
        };
        at("a", 1, 4);
        at("b[0].c", 3, 9);
        at("b.1", 4, 5);
        // Of what is not there, what is around it.
        at("b", 2, 1);
        at("b.2", 2, 1);
        at("b.0.d", 3, 5);
        assert_eq!(node.locate("d"), None);
    }

    #[test]
    fn overrides_reach_into_lists_and_make_what_is_not_there() {
        let mut node = Node::parse("a: [{b: 1}, {b: 2}]\n").unwrap();
        for text in ["a[1].b=5", "a.0.c=[x, 1.5]", "d.e=-1", "a.0.b=null"] {
            node.apply_override(text).unwrap();
        }
        assert_eq!(node.locate("d.e"), Some(&Place::Override("d.e=-1".into())));
        let anywhere = Place::File { line: 1, column: 1 };
        node.set_place(&anywhere);
        let mut expected = Node::parse("a: [{b: null, c: [x, 1.5]}, {b: 5}]\nd: {e: -1}\n").unwrap();
        expected.set_place(&anywhere);
        assert_eq!(node, expected);
    }

    #[test]
    fn a_map_is_laid_over_another() {
        let mut node = Node::parse("a: {b: 1, c: {d: 2, e: 3}}\n").unwrap();
        let over = Node::parse("b: 5\nc: {d: 6, f: 7}\n").unwrap();
        node.overlay("a", &over, true);
        assert_eq!(node.to_json(), serde_json::json!({"a": {"b": 5, "c": {"d": 6, "e": 3, "f": 7}}}));
        node.overlay("a", &over, false);
        node.overlay("g", &over, true);
        node.remove("a");
        assert_eq!(node.to_json(), serde_json::json!({"g": {"b": 5, "c": {"d": 6, "f": 7}}}));
        // Values keep their place.
        assert_eq!(node.locate("g.c.d"), Some(&Place::File { line: 2, column: 8 }));
    }

    #[test]
    fn a_bad_override_says_what_there_is() {
        let mut node = Node::parse("a: [{b: 1}, {b: 2}]\n").unwrap();
        let error = node.apply_override("a.2.b=5").unwrap_err();
        assert_eq!((error.field.as_str(), error.problem.as_str()), ("a", "the list has no `2`"));
        assert_eq!(error.hint, "use a position from 0 to 1");
        assert!(node.apply_override("a").is_err());
        assert!(node.apply_override("=1").is_err());
        assert!(node.apply_override("a=[1").is_err());
        assert!(node.apply_override("a={b: 1, b: 2}").is_err());
    }
}
