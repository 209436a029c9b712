//! Typed access to the fields of a `config.json`, with errors that name the field.

use serde_json::{Map, Value};

use super::HfConfigError;

/// The object that holds the text model's fields, and the name of the model for messages.
pub(super) struct Fields<'a> {
    model: &'a str,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub fn new(model: &'a str, object: &'a Map<String, Value>) -> Self {
        Self { model, object }
    }

    /// The value of `field`; null is absent, as in Hugging Face's own files.
    fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|value| !value.is_null())
    }

    pub fn invalid(&self, field: &str, found: &Value, expected: impl Into<String>) -> HfConfigError {
        HfConfigError::InvalidField {
            model: self.model.to_owned(),
            field: field.to_owned(),
            found: found.to_string(),
            expected: expected.into(),
        }
    }

    /// A positive integer of at most `limit`, that may be absent. The limits lie far beyond any
    /// model there is; they keep the products of a geometry within 64 bits.
    pub fn optional_u32(&self, field: &str, limit: u32) -> Result<Option<u32>, HfConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if (1..=u64::from(limit)).contains(&number) => Ok(Some(number as u32)),
            _ => Err(self.invalid(field, value, format!("a positive integer of at most {limit}"))),
        }
    }

    pub fn u32(&self, field: &'static str, limit: u32) -> Result<u32, HfConfigError> {
        self.optional_u32(field, limit)?.ok_or_else(|| HfConfigError::MissingField {
            model: self.model.to_owned(),
            field,
            expected: "a positive integer",
        })
    }

    /// A non-negative integer of at most `limit`, 0 when absent.
    pub fn count(&self, field: &str, limit: u32) -> Result<u32, HfConfigError> {
        match self.get(field) {
            Some(value) if value.as_u64() == Some(0) => Ok(0),
            _ => Ok(self.optional_u32(field, limit)?.unwrap_or(0)),
        }
    }

    pub fn bool(&self, field: &str, default: bool) -> Result<bool, HfConfigError> {
        match self.get(field) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(self.invalid(field, other, "true or false")),
        }
    }

    pub fn string(&self, field: &str) -> Result<Option<&'a str>, HfConfigError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(other) => Err(self.invalid(field, other, "a string")),
        }
    }

    pub fn array(&self, field: &str) -> Result<Option<&'a [Value]>, HfConfigError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Array(values)) => Ok(Some(values)),
            Some(other) => Err(self.invalid(field, other, "a list")),
        }
    }

    pub fn object(&self, field: &str) -> Result<Option<Fields<'a>>, HfConfigError> {
        match self.get(field) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Fields { model: self.model, object })),
            Some(other) => Err(self.invalid(field, other, "an object")),
        }
    }

    /// The objects among the values of this object.
    pub fn children(&self) -> impl Iterator<Item = Fields<'a>> {
        let model = self.model;
        self.object.values().filter_map(Value::as_object).map(move |object| Fields { model, object })
    }
}
