//! Measured requests with the blocks of their prompts: CSV with at least the columns
//!
//! | column | unit | meaning |
//! |---|---|---|
//! | `arrival_s` | seconds from the start | when it was sent |
//! | `input_len`, `output_len` | tokens | prompt and answer |
//! | `prefix_block_ids` | ids with spaces between | blocks of 16 prompt tokens (`hash_id_tokens`): an equal id is an equal block behind equal ones |
//!
//! The ids cover all whole blocks; what is left of a prompt may have an id of its own or none, and then
//! nothing shares it. Other columns, such as measured latencies, are ignored.

use super::csv_rows::{CsvRow, CsvRows, found};
use super::fields::TimeUnit;
use super::hash_ids::HashIds;
use super::head::Head;
use super::input::TraceInput;
use super::mistake::Mistake;
use super::{ReadOptions, TraceReader, TraceRequest, TraceTokens};
use crate::workload::WorkloadError;

const DEFAULT_HASH_ID_TOKENS: u32 = 16;

const COLUMNS: [&str; 4] = ["arrival_s", "input_len", "output_len", "prefix_block_ids"];

pub(super) fn matches(head: &Head) -> bool {
    head.has_columns(&COLUMNS)
}

pub(super) struct PrefixBlocks {
    rows: CsvRows,
    hash_ids: HashIds,
}

impl PrefixBlocks {
    pub fn new(input: TraceInput, options: &ReadOptions) -> Result<Self, WorkloadError> {
        let hash_ids = HashIds::new(options.hash_id_tokens.unwrap_or(DEFAULT_HASH_ID_TOKENS));
        Ok(Self { rows: CsvRows::new(input, &COLUMNS, &[])?, hash_ids })
    }
}

impl TraceReader for PrefixBlocks {
    fn time_field(&self) -> &'static str {
        "arrival_s"
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.hash_ids.id_tokens()
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some(row) = self.rows.next_row()? else { return Ok(None) };
        read(&mut self.hash_ids, &row).map(Some).map_err(|mistake| mistake.at_line(row.line))
    }
}

fn read(hash_ids: &mut HashIds, row: &CsvRow<'_>) -> Result<TraceRequest, Mistake> {
    let at = row.time("arrival_s", TimeUnit::Seconds)?;
    let input_len = row.length_tokens("input_len")?;
    let output_len = row.length_tokens("output_len")?;
    let ids = row.text("prefix_block_ids")?.split_ascii_whitespace().map(|text| {
        text.parse().map_err(|_| Mistake::new(found(text), hash_ids_expected()).within("prefix_block_ids"))
    });
    hash_ids.set(ids)?;
    let prompt =
        hash_ids.prompt_with_rest(input_len).map_err(|mistake| mistake.within("prefix_block_ids"))?;
    Ok(TraceRequest::new(row.line, Some(at), TraceTokens::Known(prompt), TraceTokens::Length(output_len)))
}

fn hash_ids_expected() -> String {
    format!("whole numbers from 0 to {} with spaces between", u64::MAX)
}
