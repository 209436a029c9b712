//! Writes traces, and counts what a format cannot say.

mod hash_ids;
mod losses;
mod rows;

use std::io::Write;

pub use losses::{Keeps, Losses, PromptsKept};

use super::TraceError;
use crate::workload::trace::{KvsimHeader, KvsimWriter, TraceFormat, TraceRequest};
use rows::Rows;

/// The formats that can be written.
pub const WRITABLE: [TraceFormat; 8] = [
    TraceFormat::Kvsim,
    TraceFormat::Mooncake,
    TraceFormat::QwenBailian,
    TraceFormat::Dynamo,
    TraceFormat::Aiperf,
    TraceFormat::PrefixBlocks,
    TraceFormat::Azure,
    TraceFormat::Burstgpt,
];

/// What a format keeps of prompts; `None` for one that cannot be written.
pub fn prompts_kept(format: TraceFormat) -> Option<PromptsKept> {
    if format == TraceFormat::Kvsim { Some(PromptsKept::Tokens) } else { Some(rows::keeps(format)?.prompts) }
}

/// Writes the rows of one format.
trait RowWriter {
    fn write(&mut self, request: &TraceRequest) -> Result<(), TraceError>;
    fn finish(&mut self) -> Result<(), TraceError>;
}

/// Writes a trace.
pub struct TraceWriter<'a> {
    rows: Box<dyn RowWriter + 'a>,
    losses: Losses,
}

impl<'a> TraceWriter<'a> {
    /// Begins a trace. The names of tenants and the notes are kept where the format has a place for
    /// them.
    ///
    /// # Errors
    /// The format is none of [`WRITABLE`], or `out` fails.
    pub fn new(format: TraceFormat, header: &KvsimHeader, out: impl Write + 'a) -> Result<Self, TraceError> {
        let (rows, keeps): (Box<dyn RowWriter>, Keeps) = match rows::keeps(format) {
            Some(keeps) => (Box::new(Rows::new(format, keeps, out)?), keeps),
            None if format == TraceFormat::Kvsim => {
                (Box::new(KvsimRows(KvsimWriter::new(out, header)?)), Keeps::EVERYTHING)
            }
            None => {
                let name = format.name();
                return Err(TraceError::Unfit(format!(
                    "{name} holds texts or measurements that a trace has not"
                )));
            }
        };
        let mut losses = Losses::new(keeps);
        losses.count_header(header);
        Ok(Self { rows, losses })
    }

    /// Writes a request.
    ///
    /// # Errors
    /// The request lacks what each row of the format has, or the output fails.
    pub fn write(&mut self, request: &TraceRequest) -> Result<(), TraceError> {
        self.rows.write(request)?;
        self.losses.count(request);
        Ok(())
    }

    /// Writes what is left, and tells what was lost.
    ///
    /// # Errors
    /// The output fails.
    pub fn finish(mut self) -> Result<Losses, TraceError> {
        self.rows.finish()?;
        Ok(self.losses)
    }
}

struct KvsimRows<W: Write>(KvsimWriter<W>);

impl<W: Write> RowWriter for KvsimRows<W> {
    fn write(&mut self, request: &TraceRequest) -> Result<(), TraceError> {
        Ok(self.0.write(request)?)
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        Ok(self.0.flush()?)
    }
}
