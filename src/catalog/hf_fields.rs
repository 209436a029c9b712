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

    pub fn invalid(&self, field: &str, found: &Value, expected: &'static str) -> HfConfigError {
        HfConfigError::InvalidField {
            model: self.model.to_owned(),
            field: field.to_owned(),
            found: found.to_string(),
            expected,
        }
    }

    /// A positive integer that may be absent.
    pub fn optional_u32(&self, field: &str) -> Result<Option<u32>, HfConfigError> {
        let Some(value) = self.get(field) else { return Ok(None) };
        match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            // Far beyond any model there is; sums and products of geometry stay within 64 bits.
            Some(number) if (1..=1 << 24).contains(&number) => Ok(Some(number)),
            _ => Err(self.invalid(field, value, "a positive integer of at most 16777216")),
        }
    }

    pub fn u32(&self, field: &'static str) -> Result<u32, HfConfigError> {
        self.optional_u32(field)?.ok_or_else(|| HfConfigError::MissingField {
            model: self.model.to_owned(),
            field,
            expected: "a positive integer",
        })
    }

    /// A non-negative integer, 0 when absent.
    pub fn count(&self, field: &str) -> Result<u32, HfConfigError> {
        match self.get(field) {
            Some(Value::Number(number)) if number.as_u64() == Some(0) => Ok(0),
            _ => Ok(self.optional_u32(field)?.unwrap_or(0)),
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
