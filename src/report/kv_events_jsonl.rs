//! `kv_events.jsonl`: what an external router would have been told, a line for each event.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::kv_event_json::push_event;
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::scheduler::Scheduler;
use crate::units::SimTime;

pub(super) struct KvEventsJsonl {
    out: BufWriter<File>,
    line: String,
    is_fleet: bool,
    pub num_events: u64,
}

impl KvEventsJsonl {
    /// `is_fleet` adds the replica to each line.
    pub fn create(path: &Path, is_fleet: bool) -> io::Result<Self> {
        Ok(Self { out: BufWriter::new(File::create(path)?), line: String::new(), is_fleet, num_events: 0 })
    }

    pub fn push(
        &mut self,
        replica: u32,
        at: SimTime,
        events: &[KvCacheEvent],
        scheduler: &Scheduler,
    ) -> io::Result<()> {
        for event in events {
            self.line.clear();
            let _ = write!(self.line, "{{\"at_ns\":{},", at.as_ns());
            if self.is_fleet {
                let _ = write!(self.line, "\"replica\":{replica},");
            }
            self.line.push_str("\"event\":");
            // As VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES has them by default.
            push_event(&mut self.line, event, scheduler, true);
            self.line.push_str("}\n");
            self.out.write_all(self.line.as_bytes())?;
            self.num_events += 1;
        }
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<u64> {
        self.out.flush()?;
        Ok(self.num_events)
    }
}
