//! `kv_events.jsonl`: what an external router would have been told, a line for each event.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::kv_event_json::push_event;
use super::replica_tally::ReplicaInfo;
use crate::engine::kv_events::KvCacheEvent;
use crate::engine::scheduler::Scheduler;
use crate::units::SimTime;

pub(super) struct KvEventsJsonl {
    out: BufWriter<File>,
    line: String,
    pub num_events: u64,
}

impl KvEventsJsonl {
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { out: BufWriter::new(File::create(path)?), line: String::new(), num_events: 0 })
    }

    /// `sender` if there are several: with the replica, and the data-parallel rank, in each line.
    pub fn push(
        &mut self,
        sender: Option<&ReplicaInfo>,
        at: SimTime,
        events: &[KvCacheEvent],
        scheduler: &Scheduler,
    ) -> io::Result<()> {
        for event in events {
            self.line.clear();
            let _ = write!(self.line, "{{\"at_ns\":{},", at.as_ns());
            if let Some(ReplicaInfo { replica, data_parallel_rank, .. }) = sender {
                let _ = write!(self.line, "\"replica\":{replica},");
                if let Some(rank) = data_parallel_rank {
                    let _ = write!(self.line, "\"data_parallel_rank\":{rank},");
                }
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
