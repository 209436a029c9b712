//! The trace that a command writes: beside its place, and moved there when it is whole.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde::Serialize;

use super::input::{Watched, parse_format};
use crate::cli::console::Console;
use crate::trace_tools::{PromptsKept, Totals, TraceError, TraceWriter, WRITABLE, prompts_kept, read_back};
use crate::whole_file::WholeFile;
use crate::workload::trace::{KvsimHeader, ReadOptions, TraceFormat, TraceRequest};

/// Where a trace is written to, and how.
#[derive(Debug, Args)]
pub(super) struct OutputArguments {
    /// The trace to write; .gz and .zst at the end of its name compress it
    #[arg(id = "OUT")]
    path: PathBuf,
    /// Its format: kvsim, which can say everything, or mooncake, dynamo, aiperf ...
    #[arg(long, value_name = "FORMAT", default_value = "kvsim", value_parser = parse_writable)]
    to: TraceFormat,
}

/// What was written, and what of the trace before could not be.
#[derive(Serialize)]
pub(super) struct Written {
    path: PathBuf,
    format: &'static str,
    requests: u64,
    prompt_tokens: u64,
    output_tokens: u64,
    lost: Vec<String>,
}

fn parse_writable(name: &str) -> Result<TraceFormat, String> {
    let names = WRITABLE.map(TraceFormat::name).join(", ");
    match parse_format(name) {
        Ok(format) if WRITABLE.contains(&format) => Ok(format),
        _ => Err(format!("kvsim writes {names}")),
    }
}

impl OutputArguments {
    /// What a format cannot say is not taken from the only trace that there is: kvsim's own may take the place of
    /// what it was made of.
    pub fn check_keeps(&self, input: &Path) -> Result<(), String> {
        if self.to == TraceFormat::Kvsim {
            return Ok(());
        }
        let place = |path: &Path| std::fs::canonicalize(path).ok();
        match (place(&self.path), place(input)) {
            (Some(output), Some(input)) if output == input => {
                Err(format!("{} is the trace that is read; choose another name", self.path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes the requests that `write` hands to its argument, reads them back, puts the trace in its
    /// place, and tells what was lost.
    pub fn write(
        &self,
        header: &KvsimHeader,
        console: &Console,
        write: impl FnOnce(&mut dyn FnMut(&TraceRequest) -> Result<(), TraceError>) -> Result<(), Box<dyn Error>>,
    ) -> Result<Written, Box<dyn Error>> {
        let (whole, file) = WholeFile::create(&self.path).map_err(|error| cannot(&self.path, &error))?;
        // Everything is kept, or nothing of what prompts share: there is nothing to count.
        let mut totals = Totals::new(matches!(prompts_kept(self.to), Some(PromptsKept::HashIds(_))));
        let text = Named { path: &self.path, text: Compressed::new(&self.path, file) };
        let mut writer = TraceWriter::new(self.to, header, text)?;
        write(&mut |request| {
            totals.add(request)?;
            writer.write(request)
        })?;
        let losses = writer.finish()?;
        let options = ReadOptions { format: Some(self.to), ..ReadOptions::default() };
        let mut reader = Watched::open(whole.read()?, &options, "reading it back", console)?.1;
        let found = read_back(&totals, &mut reader)?;
        drop(reader);
        whole.publish().map_err(|error| cannot(&self.path, &error))?;
        let mut lost = losses.lines();
        if let (Some((rate, hits)), Some((rate_before, hits_before))) = (found.hits(), totals.hits())
            && hits != hits_before
        {
            let (rate, rate_before) = (100.0 * rate, 100.0 * rate_before);
            lost.push(format!(
                "{} tokens that a cache without end would find in blocks of 16: {hits} ({rate:.2} % \
                 of prompt tokens) are left of {hits_before} ({rate_before:.2} %)",
                hits_before - hits,
            ));
        }
        lost.iter().try_for_each(|line| console.note(format_args!("lost: {line}")))?;
        let Totals { requests, prompt_tokens, output_tokens, .. } = totals;
        let format = self.to.name();
        if console.tells_events() {
            console.written("trace", &self.path)?;
        } else {
            console.say(format_args!(
                "{}: {requests} requests, {prompt_tokens} prompt and {output_tokens} output tokens ({format})",
                self.path.display(),
            ))?;
        }
        Ok(Written { path: self.path.clone(), format, requests, prompt_tokens, output_tokens, lost })
    }
}

fn cannot(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// Errors name the trace, and not the file that becomes it.
struct Named<'a> {
    path: &'a Path,
    text: Compressed,
}

impl Named<'_> {
    fn error(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), cannot(self.path, error))
    }
}

impl Write for Named<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.write(bytes).map_err(|error| self.error(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.text.flush().map_err(|error| self.error(&error))
    }
}

/// Compresses by the file's name.
enum Compressed {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
    Zstd(ZstdFrames),
}

impl Compressed {
    fn new(path: &Path, file: File) -> Self {
        let file = BufWriter::with_capacity(1 << 18, file);
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Self::Gzip(Box::new(GzEncoder::new(file, Compression::default()))),
            Some("zst") => Self::Zstd(ZstdFrames { file, text: Vec::new() }),
            _ => Self::Plain(file),
        }
    }
}

impl Write for Compressed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(frames) => frames.write(bytes),
        }
    }

    /// Called once, at the end.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(encoder) => {
                encoder.try_finish()?;
                encoder.get_mut().flush()
            }
            Self::Zstd(frames) => {
                frames.end_frame()?;
                frames.file.flush()
            }
        }
    }
}

/// One frame after the other, since the encoder takes a frame's text as a whole.
struct ZstdFrames {
    file: BufWriter<File>,
    text: Vec<u8>,
}

const FRAME_BYTES: usize = 4 << 20;

impl ZstdFrames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if self.text.len() >= FRAME_BYTES {
            self.end_frame()?;
        }
        Ok(bytes.len())
    }

    fn end_frame(&mut self) -> io::Result<()> {
        let frame = compress_to_vec(self.text.as_slice(), CompressionLevel::Fastest);
        self.text.clear();
        self.file.write_all(&frame)
    }
}
