//! Writes Mooncake's format; its reader in `workload/trace` describes it.

use std::fmt::Write as _;
use std::io::Write;

use super::hash_ids::HashIdMaker;
use super::{Keeps, PromptsKept, RowWriter};
use crate::trace_tools::TraceError;
use crate::workload::trace::{TraceRequest, TraceTokens};

const ID_TOKENS: u32 = 512;
const MS: u64 = 1_000_000;

pub(super) const KEEPS: Keeps =
    Keeps { time_unit_ns: MS, prompts: PromptsKept::HashIds(ID_TOKENS), sessions: false, rest: false };

pub(super) struct MooncakeWriter<W> {
    out: W,
    hash_ids: HashIdMaker,
    row: String,
}

impl<W: Write> MooncakeWriter<W> {
    pub fn new(out: W) -> Self {
        Self { out, hash_ids: HashIdMaker::new(ID_TOKENS), row: String::new() }
    }
}

impl<W: Write> RowWriter for MooncakeWriter<W> {
    fn write(&mut self, request: &TraceRequest) -> Result<(), TraceError> {
        let lacks = |problem: &str, instead: &str| TraceError::Lacks {
            line: request.line,
            problem: problem.to_owned(),
            instead: instead.to_owned(),
        };
        let at = request.at.ok_or_else(|| {
            lacks(
                "a request without a time, which each row of mooncake has",
                "take `--to kvsim`, or a trace with times",
            )
        })?;
        let TraceTokens::Known(prompt) = &request.prompt else {
            return Err(lacks(
                "a prompt of which only the length is known, while mooncake tells what prompts share",
                "take `--to kvsim`",
            ));
        };
        let ms = at.as_ns() / MS + u64::from(at.as_ns() % MS >= MS / 2);
        self.row.clear();
        // Writing to a string cannot fail.
        let _ = write!(
            self.row,
            "{{\"timestamp\": {ms}, \"input_length\": {}, \"output_length\": {}, \"hash_ids\": {:?}}}\n",
            prompt.len(),
            request.output.len(),
            self.hash_ids.ids(prompt, &request.extras)?
        );
        self.out.write_all(self.row.as_bytes())?;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        Ok(self.out.flush()?)
    }
}
