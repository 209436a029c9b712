//! The formats, and how to tell which one a file is in.

use std::io;

use serde::{Deserialize, Serialize};

use super::head::Head;
use super::input::TraceInput;
use super::kvsim::{self, Kvsim};
use super::mooncake::{self, Mooncake};
use super::{ReadOptions, TraceReader};
use crate::workload::WorkloadError;

/// The names at the beginning of a file must lie within so many bytes.
const HEAD_BYTES: usize = 64 * 1024;

/// A format that can be read. Its name in scenarios is the variant's in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// kvsim's own JSON lines, which can say everything.
    Kvsim,
    /// JSON lines of Mooncake: times, lengths and prefix hash ids.
    Mooncake,
}

impl TraceFormat {
    /// In the order in which a file's beginning is compared with them: the more special before the
    /// more general.
    pub const ALL: [Self; 2] = [Self::Kvsim, Self::Mooncake];

    /// The name that `format` in a scenario takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvsim => "kvsim",
            Self::Mooncake => "mooncake",
        }
    }

    fn matches(self, head: &Head) -> bool {
        match self {
            Self::Kvsim => kvsim::matches(head),
            Self::Mooncake => mooncake::matches(head),
        }
    }

    fn reader(self, input: TraceInput, options: &ReadOptions) -> Result<Box<dyn TraceReader>, WorkloadError> {
        Ok(match self {
            Self::Kvsim => Box::new(Kvsim::new(input)?),
            Self::Mooncake => Box::new(Mooncake::new(input, options)),
        })
    }
}

/// Opens a trace in the format of the options, or else in the one that its beginning looks like.
///
/// # Errors
/// It cannot be read, or its format cannot be told.
pub fn open(
    mut input: TraceInput,
    options: &ReadOptions,
) -> Result<(TraceFormat, Box<dyn TraceReader>), WorkloadError> {
    if let Some(trace) = input.shared() {
        return Ok((trace.format(), Box::new(trace.reader())));
    }
    let format = match options.format {
        Some(format) => format,
        None => detect(&mut input)?,
    };
    Ok((format, format.reader(input, options)?))
}

fn detect(input: &mut TraceInput) -> Result<TraceFormat, WorkloadError> {
    let bytes =
        input.peek(HEAD_BYTES).map_err(|source: io::Error| WorkloadError::Read { line: 1, source })?;
    let head = Head::of(bytes);
    TraceFormat::ALL.into_iter().find(|format| format.matches(&head)).ok_or_else(|| {
        let names: Vec<&str> = TraceFormat::ALL.into_iter().map(TraceFormat::name).collect();
        WorkloadError::UnknownFormat { found: head.describe(), formats: names.join(", ") }
    })
}
