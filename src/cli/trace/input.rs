//! The trace that a command reads.

use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};

use crate::trace_tools::TraceError;
use crate::workload::trace::{KvsimHeader, ReadOptions, TraceFormat, TraceInput, TraceReader, open};

/// Which trace, and how to read it.
#[derive(Debug, Args)]
pub(super) struct InputArguments {
    /// The trace: plain, gzip or zstd
    #[arg(id = "IN")]
    path: PathBuf,
    /// Its format, if its beginning does not tell
    #[arg(long, value_parser = parse_format)]
    format: Option<TraceFormat>,
    /// The prompt tokens that one hash id stands for, if not the format's own number
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    hash_id_tokens: Option<u32>,
}

impl InputArguments {
    /// Opens the trace; may be called again to read it again.
    pub fn open(&self) -> Result<(TraceFormat, Box<dyn TraceReader>), String> {
        let cannot = |error| format!("cannot read {}: {error}", self.path.display());
        let input = File::open(&self.path).and_then(TraceInput::new).map_err(cannot)?;
        let options = ReadOptions { format: self.format, hash_id_tokens: self.hash_id_tokens };
        open(input, &options).map_err(|error| {
            let error = error.to_string().replace("`format: ...`", "--format");
            format!("{}: {error}", self.path.display())
        })
    }

    /// The first line of a trace that is made of this one: its tenants, and what a reader should know.
    pub fn header(reader: &dyn TraceReader, made: Option<String>) -> KvsimHeader {
        let mut notes = reader.notes();
        if let Some(tokens) = reader.hash_id_tokens() {
            notes.push(format!(
                "prompts were lists of hash ids of {tokens} tokens: what prompts share of less is not known"
            ));
        }
        notes.extend(made);
        KvsimHeader { tenants: reader.tenants().to_vec(), notes }
    }

    /// The error with the trace's name in front, where it is about its content.
    pub fn locate(&self, error: TraceError) -> String {
        match error {
            TraceError::Write(error) => TraceError::Write(error).to_string(),
            error => format!("{}: {error}", self.path.display()),
        }
    }
}

/// The format of this name.
pub(super) fn parse_format(name: &str) -> Result<TraceFormat, String> {
    let deserializer: StrDeserializer<'_, NameError> = name.into_deserializer();
    TraceFormat::deserialize(deserializer).map_err(|_| {
        let names: Vec<&str> = TraceFormat::ALL.into_iter().map(TraceFormat::name).collect();
        format!("take one of {}", names.join(", "))
    })
}
