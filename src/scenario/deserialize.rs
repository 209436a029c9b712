//! From the typed tree to structs, with errors that know the field and its place.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use super::error::{FieldError, suggest};
use super::tree::{Key, Node, Value, push_path};

impl Error for FieldError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), "correct it")
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(found(unexpected), format!("give {}", wanted(expected)))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(unexpected, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("there is no `{variant}`"), suggest(variant, expected))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("there is no field `{field}`"), suggest(field, expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is missing"), format!("add `{field}: ...` here"))
    }
}

fn found(unexpected: Unexpected<'_>) -> String {
    match unexpected {
        Unexpected::Bool(value) => format!("found {value}"),
        Unexpected::Unsigned(value) => format!("found {value}"),
        Unexpected::Signed(value) => format!("found {value}"),
        Unexpected::Float(value) => format!("found {value}"),
        Unexpected::Str(text) => format!("found the text `{text}`"),
        Unexpected::Unit | Unexpected::Option => "found nothing".to_owned(),
        Unexpected::Seq => "found a list".to_owned(),
        Unexpected::Map => "found fields".to_owned(),
        other => format!("found {other}"),
    }
}

/// serde's names of Rust types in words.
fn wanted(expected: &dyn Expected) -> String {
    let expected = expected.to_string();
    match expected.as_str() {
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u64" => "a whole number of 0 or more".to_owned(),
        "i32" => "a whole number from -2147483648 to 2147483647".to_owned(),
        "f64" | "f32" => "a number".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a string" => "text, in quotes if it looks like a number".to_owned(),
        "a sequence" => "a list: [a, b], or a line with `- ` for each item".to_owned(),
        "path string" => "the path of a file".to_owned(),
        _ if expected.starts_with("struct ") => "fields below it, each on a line `name: value`".to_owned(),
        _ => expected,
    }
}

/// A node and the path that leads to it.
pub(crate) struct NodeDeserializer<'a> {
    node: &'a Node,
    path: String,
}

impl<'a> NodeDeserializer<'a> {
    pub fn new(node: &'a Node) -> Self {
        Self::at(node, "")
    }

    /// Of a node that lies at a path.
    pub fn at(node: &'a Node, path: &str) -> Self {
        Self { node, path: path.to_owned() }
    }

    fn child(&self, part: &str, node: &'a Node) -> Self {
        let mut path = self.path.clone();
        push_path(&mut path, part);
        Self { node, path }
    }

    /// Gives an error of this value its place.
    fn located(&self, error: FieldError) -> FieldError {
        match error.place {
            Some(_) => error,
            None => FieldError {
                place: Some(self.node.place.clone()),
                field: self.path.clone(),
                hint: self.unit_hint().unwrap_or(error.hint),
                ..error
            },
        }
    }

    /// What to write instead of a number with a unit.
    fn unit_hint(&self) -> Option<String> {
        let Value::String(text) = &self.node.value else { return None };
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '_');
        if unit == text || unit.is_empty() || unit.len() > 8 {
            return None;
        }
        let field = self.path.rsplit(['.']).next().unwrap_or_default();
        let of_parent = self.path.split('.').rev().find_map(unit_of);
        let meaning = match of_parent {
            Some(unit) => format!("in {unit}"),
            None => "a plain number".to_owned(),
        };
        Some(format!("give a number without a unit: `{field}` is {meaning}"))
    }
}

/// The unit that a field's name ends in.
fn unit_of(name: &str) -> Option<&'static str> {
    let units = [
        ("_per_s", "events per second"),
        ("_ns", "nanoseconds"),
        ("_s", "seconds"),
        ("_tokens", "tokens"),
        ("_bytes", "bytes"),
        ("_len", "tokens"),
        ("block_size", "tokens"),
        ("utilization", "a share from 0 to 1"),
    ];
    units.iter().find(|(suffix, _)| name.ends_with(suffix)).map(|(_, unit)| *unit)
}

impl<'de> Deserializer<'de> for NodeDeserializer<'de> {
    type Error = FieldError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Unsigned(value) => visitor.visit_u64(*value),
            Value::Signed(value) => visitor.visit_i64(*value),
            Value::Float(value) => visitor.visit_f64(*value),
            Value::String(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items { parent: &self, items, next: 0 }),
            Value::Map(entries) => visitor.visit_map(Entries { parent: &self, entries, next: 0 }),
        }
        .map_err(|error| self.located(error))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        if self.node.value == Value::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant is its name, or its name with its content: `fixed` or `{fixed: 3}`.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        let result = match &self.node.value {
            Value::String(name) => visitor.visit_enum(Variant { parent: &self, name, content: None }),
            Value::Map(entries) => match entries.as_slice() {
                [(key, content)] => visitor.visit_enum(Variant {
                    parent: &self,
                    name: &key.name,
                    content: Some((key, content)),
                }),
                [] => Err(FieldError::new("found nothing", suggest("", variants))),
                [(first, _), .., (last, _)] => Err(FieldError {
                    place: Some(last.place.clone()),
                    field: self.path.clone(),
                    problem: format!("found both `{}` and `{}`", first.name, last.name),
                    hint: "keep one of them".to_owned(),
                }),
            },
            Value::Null => Err(FieldError::new("found nothing", suggest("", variants))),
            _ => Err(FieldError::new("found a value without a name", suggest("", variants))),
        };
        result.map_err(|error| self.located(error))
    }

    /// A whole number will do where text is wanted: `python_hash_seed: 0`.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldError> {
        match self.node.value {
            Value::Unsigned(value) => {
                visitor.visit_string(value.to_string()).map_err(|error| self.located(error))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a, 'de> {
    parent: &'a NodeDeserializer<'de>,
    items: &'de [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = FieldError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, FieldError> {
        let Some(item) = self.items.get(self.next) else { return Ok(None) };
        let child = self.parent.child(&self.next.to_string(), item);
        self.next += 1;
        seed.deserialize(child).map(Some)
    }
}

struct Entries<'a, 'de> {
    parent: &'a NodeDeserializer<'de>,
    entries: &'de [(Key, Node)],
    next: usize,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = FieldError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FieldError> {
        let Some((key, _)) = self.entries.get(self.next) else { return Ok(None) };
        let at_key = |error: FieldError| FieldError {
            place: Some(key.place.clone()),
            field: self.parent.path.clone(),
            ..error
        };
        seed.deserialize(key.name.as_str().into_deserializer()).map(Some).map_err(at_key)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, FieldError> {
        let (key, node) = &self.entries[self.next];
        self.next += 1;
        seed.deserialize(self.parent.child(&key.name, node))
    }
}

struct Variant<'a, 'de> {
    parent: &'a NodeDeserializer<'de>,
    name: &'de str,
    content: Option<(&'de Key, &'de Node)>,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = FieldError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), FieldError> {
        let variant = seed.deserialize(self.name.into_deserializer()).map_err(|error: FieldError| {
            let place = self.content.map_or(&self.parent.node.place, |(key, _)| &key.place);
            FieldError { place: Some(place.clone()), field: self.parent.path.clone(), ..error }
        })?;
        Ok((variant, self))
    }
}

impl<'de> Variant<'_, 'de> {
    fn content(&self) -> Result<NodeDeserializer<'de>, FieldError> {
        match self.content {
            Some((key, node)) => Ok(self.parent.child(&key.name, node)),
            None => Err(FieldError::new(
                format!("`{}` has no value", self.name),
                format!("write {{{}: ...}}", self.name),
            )),
        }
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = FieldError;

    fn unit_variant(self) -> Result<(), FieldError> {
        match self.content {
            None | Some((_, Node { value: Value::Null, .. })) => Ok(()),
            Some((key, _)) => Err(FieldError::new(
                format!("`{}` takes no value", key.name),
                format!("write `{}`", key.name),
            )),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, FieldError> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, FieldError> {
        self.content()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldError> {
        self.content()?.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn a_number_is_text_where_text_is_wanted() {
        let read = |text: &str| {
            let node = Node::parse(text).unwrap();
            Option::<String>::deserialize(NodeDeserializer::new(&node))
        };
        assert_eq!(read("0").unwrap().as_deref(), Some("0"));
        assert_eq!(read("'07'").unwrap().as_deref(), Some("07"));
        assert_eq!(read("~").unwrap(), None);
        assert_eq!(read("1.5").unwrap_err().problem, "found 1.5");
    }
}
