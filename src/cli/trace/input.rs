//! The trace that a command reads.

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};

use crate::cli::console::Console;
use crate::cli::diagnostic::InFile;
use crate::cli::progress::{Bar, Unit};
use crate::scenario::CountingReader;
use crate::trace_tools::TraceError;
use crate::units::SimTime;
use crate::workload::WorkloadError;
use crate::workload::trace::{
    HfTokenizer, KvsimHeader, ReadOptions, SkippedRows, TextConfig, TraceFormat, TraceInput, TraceReader,
    TraceRequest, open,
};

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
    /// A Hugging Face tokenizer.json for traces that hold texts
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Without a tokenizer, how many characters count as a token
    #[arg(long, value_name = "NUMBER", default_value = "4", value_parser = parse_characters)]
    characters_per_token: f64,
    /// How far rows may be out of order, in seconds, if not the format's own number
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    sort_window_s: Option<f64>,
    /// Leave out rows that cannot be read, and count them
    #[arg(long)]
    skip_bad_rows: bool,
}

impl InputArguments {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the trace; may be called again to read it again.
    pub fn open<'a>(&self, console: &'a Console) -> Result<Opened<'a>, Box<dyn Error>> {
        let cannot = |error| {
            InFile::with_text(&self.path, format!("cannot read {}: {error}", self.path.display()), error)
        };
        let file = File::open(&self.path).map_err(cannot)?;
        let options = ReadOptions {
            format: self.format,
            hash_id_tokens: self.hash_id_tokens,
            text: TextConfig { characters_per_token: self.characters_per_token, ..TextConfig::default() },
            tokenizer: self.tokenizer.as_deref().map(read_tokenizer).transpose()?,
            skip_bad_rows: self.skip_bad_rows,
            sort_window: self.sort_window_s.map(SimTime::from_secs_f64),
        };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let (format, mut reader) = Watched::open(file, &options, &name, console).map_err(|error| {
            let error = error.to_string().replace("`format: ...`", "--format");
            InFile::new(&self.path, error)
        })?;
        let first = Some(reader.next_request());
        Ok(Opened { format, reader, first })
    }

    /// The error with the trace's name in front, where it is about its content.
    pub fn locate(&self, error: TraceError) -> Box<dyn Error> {
        match error {
            TraceError::Write(_) => error.into(),
            error => InFile::new(&self.path, error).into(),
        }
    }
}

/// A trace with a bar of how far it has been read.
pub(super) struct Watched<'a> {
    reader: Box<dyn TraceReader>,
    bar: Bar<'a>,
    requests: u64,
    num_bytes: u64,
    num_bytes_read: Arc<AtomicU64>,
}

impl<'a> Watched<'a> {
    pub fn open(
        file: File,
        options: &ReadOptions,
        name: &str,
        console: &'a Console,
    ) -> Result<(TraceFormat, Self), WorkloadError> {
        // A pipe has no length before its end.
        let num_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        let num_bytes_read = Arc::<AtomicU64>::default();
        let counting = CountingReader { inner: file, num_bytes: Arc::clone(&num_bytes_read) };
        let input = TraceInput::new(counting).map_err(|source| WorkloadError::Read { line: 1, source })?;
        let (format, reader) = open(input, options)?;
        let bar = console.bar(name, Unit::Requests, None);
        Ok((format, Self { reader, bar, requests: 0, num_bytes, num_bytes_read }))
    }
}

impl TraceReader for Watched<'_> {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        self.requests += 1;
        let share = |all: u64| self.num_bytes_read.load(Ordering::Relaxed) as f64 / all as f64;
        self.bar.set(self.requests as f64, (self.num_bytes > 0).then(|| share(self.num_bytes)));
        self.reader.next_request()
    }

    fn time_field(&self) -> &'static str {
        self.reader.time_field()
    }

    fn tenants(&self) -> &[String] {
        self.reader.tenants()
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.reader.hash_id_tokens()
    }

    fn notes(&self) -> Vec<String> {
        self.reader.notes()
    }

    fn skipped(&self) -> SkippedRows {
        self.reader.skipped()
    }
}

/// An open trace whose first request has been read, so that all is known of it that is not known
/// before.
pub(super) struct Opened<'a> {
    pub format: TraceFormat,
    reader: Watched<'a>,
    first: Option<Result<Option<TraceRequest>, WorkloadError>>,
}

impl Opened<'_> {
    /// The first line of a trace that is made of this one; `made` says how, where that is not only to
    /// say the same.
    pub fn header(&self, made: Option<String>) -> KvsimHeader {
        let mut notes = self.notes();
        notes.extend(made);
        KvsimHeader { tenants: self.tenants().to_vec(), notes, hash_id_tokens: self.hash_id_tokens() }
    }
}

impl TraceReader for Opened<'_> {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        self.first.take().unwrap_or_else(|| self.reader.next_request())
    }

    fn time_field(&self) -> &'static str {
        self.reader.time_field()
    }

    fn tenants(&self) -> &[String] {
        self.reader.tenants()
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.reader.hash_id_tokens()
    }

    fn notes(&self) -> Vec<String> {
        self.reader.notes()
    }

    fn skipped(&self) -> SkippedRows {
        self.reader.skipped()
    }
}

fn read_tokenizer(path: &Path) -> Result<HfTokenizer, InFile> {
    let cannot = |error| InFile::with_text(path, format!("cannot read {}: {error}", path.display()), error);
    let json = fs::read(path).map_err(cannot)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    HfTokenizer::new(&name, &json).map_err(|problem| InFile::new(path, problem))
}

fn parse_characters(text: &str) -> Result<f64, String> {
    number_within(text, 0.1, 1000.0)
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 1e9)
}

/// A number within bounds.
pub(in crate::cli) fn number_within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("take a number from {least} to {most}"))
}

/// How sessions are known, behind their number.
pub(super) fn how_known(estimated: usize, all: usize) -> &'static str {
    match estimated {
        0 => "",
        _ if estimated == all => ", told by prompts that go on from earlier ones",
        _ => ", some told by prompts that go on from earlier ones",
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
