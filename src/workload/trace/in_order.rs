//! Rows in the order of time, counted from the start of the trace.

use std::collections::BTreeMap;

use super::{TraceReader, TraceRequest};
use crate::units::SimTime;
use crate::workload::WorkloadError;

/// Sorts the rows of a trace that are out of order by no more than a window, and checks the order of
/// the others.
pub(super) struct InOrder {
    reader: Box<dyn TraceReader>,
    /// Rows that are this much older than the newest may leave.
    window: SimTime,
    /// Where times count from the first one: the time of the first row handed out.
    origin: Option<SimTime>,
    counts_from_first: bool,
    /// By time and position in the file. A row without a time stays behind the one before it.
    rows: BTreeMap<(SimTime, u64), TraceRequest>,
    num_rows: u64,
    /// Of the newest row read, and of the last row handed out.
    newest: SimTime,
    oldest: SimTime,
    /// The time of the row before in the file.
    before: SimTime,
    at_end: bool,
}

impl InOrder {
    pub fn new(reader: Box<dyn TraceReader>, window: SimTime, counts_from_first: bool) -> Self {
        Self {
            reader,
            window,
            origin: None,
            counts_from_first,
            rows: BTreeMap::new(),
            num_rows: 0,
            newest: SimTime::ZERO,
            oldest: SimTime::ZERO,
            before: SimTime::ZERO,
            at_end: false,
        }
    }

    /// Without a window rows go through as they come.
    fn next_in_file(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        let mut next = self.reader.next_request()?;
        if let Some(row) = &mut next
            && let Some(at) = row.at
        {
            if at < self.oldest {
                return Err(self.out_of_order(row, at));
            }
            self.newest = at;
            self.hand_out(row, at);
        }
        Ok(next)
    }

    /// Counts the time of a row, whose place is at `at`, from the start.
    fn hand_out(&mut self, row: &mut TraceRequest, at: SimTime) {
        self.oldest = at;
        let origin = *self.origin.get_or_insert(if self.counts_from_first { at } else { SimTime::ZERO });
        row.at = row.at.map(|at| at.since(origin));
    }

    /// Takes a row that is in time.
    fn keep(&mut self, row: TraceRequest) -> Result<(), WorkloadError> {
        if let Some(at) = row.at {
            if at < self.oldest {
                return Err(self.out_of_order(&row, at));
            }
            self.newest = self.newest.max(at);
            self.before = at;
        }
        self.rows.insert((self.before, self.num_rows), row);
        self.num_rows += 1;
        Ok(())
    }

    fn out_of_order(&self, row: &TraceRequest, at: SimTime) -> WorkloadError {
        let origin = self.origin.unwrap_or(SimTime::ZERO);
        let late = self.newest.since(at).as_secs_f64().ceil();
        let found = if at < origin {
            format!("a time {:.3} s before the first", origin.since(at).as_secs_f64())
        } else {
            at.since(origin).to_string()
        };
        WorkloadError::Row {
            line: row.line,
            field: Some(self.reader.time_field()),
            found,
            expected: format!(
                "at least {}, the time of a row before; sort the rows, or set `sort_window_s` to {late} or more",
                self.oldest.since(origin)
            ),
        }
    }
}

impl TraceReader for InOrder {
    fn next_request(&mut self) -> Result<Option<TraceRequest>, WorkloadError> {
        if self.window == SimTime::ZERO {
            return self.next_in_file();
        }
        loop {
            if let Some(entry) = self.rows.first_entry() {
                let at = entry.key().0;
                if self.at_end || self.newest.since(at) >= self.window {
                    let mut row = entry.remove();
                    self.hand_out(&mut row, at);
                    return Ok(Some(row));
                }
            } else if self.at_end {
                return Ok(None);
            }
            match self.reader.next_request()? {
                Some(row) => self.keep(row)?,
                None => self.at_end = true,
            }
        }
    }

    fn time_field(&self) -> &'static str {
        self.reader.time_field()
    }

    fn hash_id_tokens(&self) -> Option<u32> {
        self.reader.hash_id_tokens()
    }

    fn tenants(&self) -> &[String] {
        self.reader.tenants()
    }

    fn notes(&self) -> Vec<String> {
        self.reader.notes()
    }
}
