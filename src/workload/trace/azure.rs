//! The traces of Azure's LLM inference, 2023 and 2024: CSV with the columns
//!
//! ```text
//! TIMESTAMP,ContextTokens,GeneratedTokens
//! 2023-11-16 18:17:03.9799600,4808,10
//! ```
//!
//! `TIMESTAMP` is a date and time, in UTC unless it says otherwise (2024: `...+00:00`), of which the
//! first counts as the start; the others are tokens. Vidur's extract of them is read too: the columns
//! `arrived_at` (seconds from the start), `num_prefill_tokens` and `num_decode_tokens`.
//!
//! Which prompts share what is not known: the scenario's `reuse` has to say.
//!
//! Source of the format: <https://github.com/Azure/AzurePublicDataset>,
//! `AzureLLMInferenceDataset2023.md` and `AzureLLMInferenceDataset2024.md`; of the extract:
//! <https://github.com/microsoft/vidur>, `data/processed_traces`.

use super::csv_rows::{CsvRow, CsvRows, found};
use super::date_time::parse_date_time;
use super::fields::TimeUnit;
use super::head::Head;
use super::input::TraceInput;
use super::mistake::Mistake;
use super::{TraceReader, TraceRequest, TraceTokens};
use crate::workload::WorkloadError;

/// Time, prompt and answer.
const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];
const VIDUR_COLUMNS: [&str; 3] = ["arrived_at", "num_prefill_tokens", "num_decode_tokens"];

pub(super) fn matches(head: &Head) -> bool {
    head.has_columns(&COLUMNS) || head.has_columns(&VIDUR_COLUMNS)
}

pub(super) struct Azure {
    rows: CsvRows,
    columns: [&'static str; 3],
}

impl Azure {
    pub fn new(mut input: TraceInput) -> Result<Self, WorkloadError> {
        let head = input.head()?;
        let is_vidur = head.is_some_and(|head| head.has_columns(&VIDUR_COLUMNS));
        let columns = if is_vidur { VIDUR_COLUMNS } else { COLUMNS };
        Ok(Self { rows: CsvRows::new(input, &columns, &[])?, columns })
    }
}

impl TraceReader for Azure {
    fn time_field(&self) -> &'static str {
        self.columns[0]
    }

    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let Some(row) = self.rows.next_row()? else { return Ok(None) };
        read(&row, self.columns).map(Some).map_err(|mistake| mistake.at_line(row.line))
    }
}

fn read(row: &CsvRow<'_>, [time, prompt, output]: [&'static str; 3]) -> Result<TraceRequest, Mistake> {
    let at = if time == COLUMNS[0] {
        let text = row.text(time)?;
        parse_date_time(text).ok_or_else(|| {
            Mistake::new(found(text), "a date and time such as 2023-11-16 18:17:03.9799600").within(time)
        })?
    } else {
        row.time(time, TimeUnit::Seconds)?
    };
    let prompt = TraceTokens::Length(row.length_tokens(prompt)?);
    let output = TraceTokens::Length(row.length_tokens(output)?);
    Ok(TraceRequest::new(row.line, Some(at), prompt, output))
}
