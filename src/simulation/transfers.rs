//! Copies between the GPU and the tiers take time: each tier has a link, each direction of it
//! carries one copy after the other, and a copy takes the latency and its bytes over the bandwidth.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::observer::TransferRecord;
use crate::engine::connector::{Direction, KvConnectorOutput, TieredConnector, Transfer};
use crate::units::SimTime;

/// The link to one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub latency: SimTime,
    /// In bytes per second, above 0.
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
}

#[derive(Debug)]
pub struct Transfers {
    connector: TieredConnector,
    links: Vec<Link>,
    /// Of one block of one group on one rank; the ranks copy at the same time.
    bytes_per_block: u64,
    /// When each link's directions are free: reads, writes.
    free_at: Vec<(SimTime, SimTime)>,
    /// By time, then in the order in which they began.
    running: BinaryHeap<Reverse<(SimTime, u64)>>,
    by_number: std::collections::BTreeMap<u64, Transfer>,
    num_started: u64,
    /// Begun since they were last told of.
    begun: Vec<TransferRecord>,
}

impl Transfers {
    /// One link for each tier of the connector, in order.
    pub fn new(connector: TieredConnector, links: Vec<Link>, bytes_per_block: u64) -> Self {
        Self {
            connector,
            free_at: vec![(SimTime::ZERO, SimTime::ZERO); links.len()],
            links,
            bytes_per_block,
            running: BinaryHeap::new(),
            by_number: std::collections::BTreeMap::new(),
            num_started: 0,
            begun: Vec::new(),
        }
    }

    pub fn connector(&self) -> &TieredConnector {
        &self.connector
    }

    /// Begins what the connector has planned: loads at `now`, stores when the step that computes
    /// their blocks is `done`.
    pub(super) fn start(&mut self, now: SimTime, done: SimTime) {
        for transfer in self.connector.take_transfers() {
            let link = self.links[transfer.tier];
            let (read_free, write_free) = &mut self.free_at[transfer.tier];
            let (ready, free_at, bytes_per_s) = match transfer.direction {
                Direction::Read => (now, read_free, link.read_bytes_per_s),
                Direction::Write => (done, write_free, link.write_bytes_per_s),
            };
            let bytes = transfer.blocks.len() as u64 * self.bytes_per_block;
            let begin = ready.max(*free_at);
            let end = begin + link.latency + SimTime::from_secs_f64(bytes as f64 / bytes_per_s);
            *free_at = end;
            self.begun.push(TransferRecord {
                tier: transfer.tier,
                direction: transfer.direction,
                request: transfer.request(),
                started_at: begin,
                finished_at: end,
                num_blocks: transfer.blocks.len() as u32,
                bytes,
            });
            self.running.push(Reverse((end, self.num_started)));
            self.by_number.insert(self.num_started, transfer);
            self.num_started += 1;
        }
    }

    /// The server has gone, and its copies with it.
    pub(super) fn restart(&mut self) {
        self.connector.restart();
        self.running.clear();
        self.by_number.clear();
        self.free_at.fill((SimTime::ZERO, SimTime::ZERO));
    }

    /// The copies that have begun since the last call.
    pub(super) fn take_begun(&mut self) -> impl Iterator<Item = TransferRecord> + '_ {
        self.begun.drain(..)
    }

    /// When the next copy is done.
    pub(super) fn next_done(&self) -> Option<SimTime> {
        self.running.peek().map(|&Reverse((at, _))| at)
    }

    /// What workers report at `now`.
    pub(super) fn worker_output(&mut self, now: SimTime) -> KvConnectorOutput {
        let mut output = KvConnectorOutput::default();
        while let Some(&Reverse((at, number))) = self.running.peek()
            && at <= now
        {
            self.running.pop();
            let Some(transfer) = self.by_number.remove(&number) else { continue };
            let done = self.connector.complete(&transfer);
            output.finished_recving.extend(done.finished_recving);
            output.finished_sending.extend(done.finished_sending);
            // What it pushed out of its tier goes on from here.
            self.start(at, at);
        }
        output
    }
}
