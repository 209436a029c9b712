//! Reads of prompts' KV blocks from the replicas that computed them.

use serde::Serialize;

use super::percentiles::LatencyMs;
use crate::simulation::{PullFailures, PullRecord};
use crate::units::SimTime;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PullSummary {
    pub blocks: u64,
    /// Of one rank.
    pub bytes: u64,
    /// From the time at which a request had its blocks until they were filled; a value for each read.
    pub latency: LatencyMs,
    /// Of that, while links were busy with other reads.
    pub queue: LatencyMs,
    /// Their source had gone, or went while they were under way.
    pub failed_reads: u64,
    /// Prompts whose blocks were given up before they had been read.
    pub expired_leases: u64,
    /// Reads of such blocks, which vLLM makes nevertheless.
    pub reads_after_expiry: u64,
}

#[derive(Debug, Default)]
pub(super) struct PullTally {
    blocks: u64,
    bytes: u64,
    latency_ns: Vec<u64>,
    queue_ns: Vec<u64>,
    reads: Vec<Read>,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    finished_at: SimTime,
    bytes: u64,
    latency_ns: u64,
    queue_ns: u64,
}

/// Reads that ended in a bin of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ReadBin {
    pub reads: u64,
    pub bytes: u64,
    pub latency_ns: u64,
    pub queue_ns: u64,
}

impl PullTally {
    pub fn on_pull(&mut self, pull: &PullRecord) {
        self.blocks += u64::from(pull.num_blocks);
        self.bytes += pull.bytes;
        let latency_ns = pull.finished_at.since(pull.planned_at).as_ns();
        let queue_ns = pull.started_at.since(pull.planned_at).as_ns();
        self.latency_ns.push(latency_ns);
        self.queue_ns.push(queue_ns);
        self.reads.push(Read { finished_at: pull.finished_at, bytes: pull.bytes, latency_ns, queue_ns });
    }

    /// So many bins of a width; what ends later counts nowhere.
    pub fn bins(&self, width_s: f64, num_bins: usize) -> Vec<ReadBin> {
        let mut bins = vec![ReadBin::default(); num_bins];
        for read in &self.reads {
            let at = (read.finished_at.as_secs_f64() / width_s) as usize;
            let Some(bin) = bins.get_mut(at) else { continue };
            bin.reads += 1;
            bin.bytes += read.bytes;
            bin.latency_ns += read.latency_ns;
            bin.queue_ns += read.queue_ns;
        }
        bins
    }

    /// `None` without reads.
    pub fn summary(&mut self, failures: PullFailures) -> Option<PullSummary> {
        (!self.latency_ns.is_empty()).then(|| PullSummary {
            blocks: self.blocks,
            bytes: self.bytes,
            latency: LatencyMs::of_ns(&mut self.latency_ns),
            queue: LatencyMs::of_ns(&mut self.queue_ns),
            failed_reads: failures.failed_reads,
            expired_leases: failures.expired_leases,
            reads_after_expiry: failures.reads_after_expiry,
        })
    }
}
