//! The traces of Mooncake (FAST '25): JSON lines such as
//!
//! ```text
//! {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}
//! ```
//!
//! `timestamp` is in milliseconds from the start, the lengths are in tokens, and each hash id
//! stands for 512 prompt tokens (`hash_id_tokens`), the last for what remains. Equal ids are equal
//! tokens: id `h` is the run of token ids from `512 * h`. The recording hashed its blocks of 512
//! tokens, so what two prompts share of a partial last block is not known and counts as different.
//!
//! Other fields are ignored.
//!
//! Source of the format: <https://github.com/kvcache-ai/Mooncake>, `FAST25-release/traces`.

use std::fmt;
use std::io::BufRead;

use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::lines::Lines;
use super::{FIRST_OUTPUT_TOKEN, Row, Rows, TraceConfig};
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::WorkloadError;
use crate::workload::distribution::MAX_LENGTH_TOKENS;

const DEFAULT_HASH_ID_TOKENS: u32 = 512;

pub(super) struct MooncakeRows {
    lines: Lines,
    fields: Fields,
}

impl MooncakeRows {
    pub fn new(input: Box<dyn BufRead + Send>, config: &TraceConfig) -> Self {
        let hash_id_tokens = config.hash_id_tokens.unwrap_or(DEFAULT_HASH_ID_TOKENS);
        let fields = Fields { hash_id_tokens, values: [None; 4], hash_ids: Vec::new(), current: None };
        Self { lines: Lines::new(input), fields }
    }
}

impl Rows for MooncakeRows {
    fn time_field(&self) -> &'static str {
        Field::Timestamp.name()
    }

    fn next_row(&mut self) -> Result<Option<Row>, WorkloadError> {
        let Some((line, text)) = self.lines.next_line()? else { return Ok(None) };
        let fields = &mut self.fields;
        let hash_id_tokens = fields.hash_id_tokens;
        let wrong = |field: Option<Field>, found: String, expected: Option<String>| WorkloadError::Row {
            line,
            field: field.map(Field::name),
            found,
            expected: expected.unwrap_or_else(|| match field {
                Some(field) => field.range(hash_id_tokens).to_string(),
                None => "a JSON object with the fields of a Mooncake trace".into(),
            }),
        };
        fields.read(text).map_err(|cause| wrong(fields.current, found(&cause), None))?;
        let get = |field: Field| {
            fields.values[field as usize].ok_or_else(|| wrong(Some(field), "nothing".into(), None))
        };
        let at = SimTime::from_ms(get(Field::Timestamp)?);
        // Their range is within u32.
        let input_tokens = get(Field::InputLength)? as u32;
        let output_tokens = get(Field::OutputLength)? as u32;
        let num_ids = get(Field::HashIds)?;

        let needed = input_tokens.div_ceil(hash_id_tokens);
        if num_ids != u64::from(needed) {
            let found = format!("{num_ids} ids of {hash_id_tokens} tokens each");
            let expected = format!("{needed} to cover `input_length`, {input_tokens}");
            return Err(wrong(Some(Field::HashIds), found, Some(expected)));
        }
        let mut prompt = TokenRuns::new();
        for id in &fields.hash_ids {
            let left = input_tokens - prompt.len();
            prompt.push_run(id * u64::from(hash_id_tokens), left.min(hash_id_tokens));
        }
        Ok(Some(Row { line, at, prompt, output_tokens }))
    }
}

/// What serde found, from its message. That ends in a position whose line is always 1, since serde
/// sees one line at a time: only the column tells something.
fn found(cause: &serde_json::Error) -> String {
    let message = cause.to_string();
    let position = format!(" at line {} column {}", cause.line(), cause.column());
    let message = message.strip_suffix(&position).unwrap_or(&message);
    if !cause.is_data() {
        return format!("invalid JSON ({message}) at column {}", cause.column());
    }
    let found = message.split_once(", expected ").map_or(message, |(found, _)| found);
    found.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ").into()
}

#[derive(Clone, Copy)]
enum Field {
    Timestamp,
    InputLength,
    OutputLength,
    HashIds,
}

impl Field {
    const ALL: [Self; 4] = [Self::Timestamp, Self::InputLength, Self::OutputLength, Self::HashIds];

    const fn name(self) -> &'static str {
        match self {
            Self::Timestamp => "timestamp",
            Self::InputLength => "input_length",
            Self::OutputLength => "output_length",
            Self::HashIds => "hash_ids",
        }
    }

    fn range(self, hash_id_tokens: u32) -> Range {
        match self {
            Self::Timestamp => Range { what: "whole milliseconds", min: 0, max: u64::MAX / 1_000_000 },
            Self::InputLength | Self::OutputLength => {
                Range { what: "a whole number of tokens", min: 1, max: MAX_LENGTH_TOKENS.into() }
            }
            // The token ids of the last hash id still lie below those of the answers.
            Self::HashIds => {
                let max = FIRST_OUTPUT_TOKEN / u64::from(hash_id_tokens) - 1;
                Range { what: "a list of whole numbers", min: 0, max }
            }
        }
    }
}

/// Reads a whole number within bounds, and says what it wants.
#[derive(Clone, Copy)]
struct Range {
    what: &'static str,
    min: u64,
    max: u64,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {}", self.what, self.min, self.max)
    }
}

impl<'de> DeserializeSeed<'de> for Range {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_u64(self)
    }
}

impl Visitor<'_> for Range {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{self}")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<u64, E> {
        if (self.min..=self.max).contains(&value) {
            Ok(value)
        } else {
            Err(E::invalid_value(Unexpected::Unsigned(value), &self))
        }
    }
}

/// Reads the list of hash ids into `ids`.
struct HashIds<'a> {
    ids: &'a mut Vec<u64>,
    range: Range,
}

impl<'de> DeserializeSeed<'de> for HashIds<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for HashIds<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.range)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(id) = list.next_element_seed(self.range)? {
            self.ids.push(id);
        }
        Ok(())
    }
}

/// Reads the name of a field; `None` is one that is not ours.
struct FieldName;

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Option<Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Field>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Option<Field>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<Field>, E> {
        Ok(Field::ALL.into_iter().find(|field| field.name() == name))
    }
}

/// The fields of one row, kept from row to row for the memory of the list.
///
/// Not a derived `Deserialize`: an error has to name its field, which serde does not tell.
struct Fields {
    hash_id_tokens: u32,
    /// By [`Field`]; of the hash ids their number.
    values: [Option<u64>; 4],
    hash_ids: Vec<u64>,
    /// The field being read.
    current: Option<Field>,
}

impl Fields {
    fn read(&mut self, text: &str) -> serde_json::Result<()> {
        self.values = [None; 4];
        self.hash_ids.clear();
        self.current = None;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        deserializer.deserialize_map(self)?;
        deserializer.end()
    }
}

impl<'de> Visitor<'de> for &mut Fields {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(FieldName)? {
            self.current = field;
            let Some(field) = field else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if self.values[field as usize].is_some() {
                return Err(A::Error::custom("a second value"));
            }
            let range = field.range(self.hash_id_tokens);
            let value = if let Field::HashIds = field {
                map.next_value_seed(HashIds { ids: &mut self.hash_ids, range })?;
                self.hash_ids.len() as u64
            } else {
                map.next_value_seed(range)?
            };
            self.values[field as usize] = Some(value);
            self.current = None;
        }
        Ok(())
    }
}
