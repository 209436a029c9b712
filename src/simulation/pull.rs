//! Reads of KV blocks between replicas take time: each replica has a link, each direction of it carries
//! one read after the other, and a read takes its set-up, the latency, and its bytes over the bandwidth.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::observer::PullRecord;
use crate::engine::connector::{KvConnectorOutput, PullConnector};
use crate::units::SimTime;

/// The link of each replica of a kind, for one rank; the ranks read at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PullLink {
    /// Each way, in bytes per second, above 0.
    pub bytes_per_s: f64,
    pub latency: SimTime,
    /// Of each read: descriptors are made, and the other side is told of the end.
    pub set_up: SimTime,
}

/// One replica's ends of reads.
#[derive(Debug, Default)]
struct Port {
    /// When each direction is free.
    in_free_at: SimTime,
    out_free_at: SimTime,
    /// Requests by the time at which what they wait for is there, and whose blocks have been read.
    received: BinaryHeap<Reverse<(SimTime, u64)>>,
    sent: BinaryHeap<Reverse<(SimTime, u64)>>,
}

/// The links of all replicas.
#[derive(Debug)]
pub struct PullLinks {
    link: PullLink,
    ports: Vec<Port>,
    /// Where the prompt of a request was computed.
    sources: FxHashMap<u64, usize>,
    /// When a replica has something to report that it may be idle for.
    wakes: Vec<(SimTime, usize)>,
}

impl PullLinks {
    pub fn new(link: PullLink, num_replicas: usize) -> Self {
        Self {
            link,
            ports: (0..num_replicas).map(|_| Port::default()).collect(),
            sources: FxHashMap::default(),
            wakes: Vec::new(),
        }
    }

    /// The prompt of a request was computed there.
    pub(super) fn set_source(&mut self, request: u64, replica: usize) {
        self.sources.insert(request, replica);
    }

    pub(super) fn take_wakes(&mut self) -> Vec<(SimTime, usize)> {
        std::mem::take(&mut self.wakes)
    }
}

/// A replica's part in reads.
#[derive(Debug)]
pub struct Puller {
    connector: PullConnector,
    links: Rc<RefCell<PullLinks>>,
    /// In [`PullLinks`].
    port: usize,
    /// Of one block of one group on one rank.
    bytes_per_block: u64,
    /// Begun since they were last told of.
    begun: Vec<PullRecord>,
}

impl Puller {
    /// Of replica number `port`.
    pub fn new(
        connector: PullConnector,
        links: Rc<RefCell<PullLinks>>,
        port: usize,
        bytes_per_block: u64,
    ) -> Self {
        Self { connector, links, port, bytes_per_block, begun: Vec::new() }
    }

    pub fn connector(&self) -> &PullConnector {
        &self.connector
    }

    /// Begins what the connector has planned.
    pub(super) fn start(&mut self, now: SimTime) {
        for read in self.connector.take_reads() {
            let links = &mut *self.links.borrow_mut();
            let Some(source) = links.sources.remove(&read.request) else { continue };
            let mut end = now;
            if read.num_blocks > 0 {
                let bytes = u64::from(read.num_blocks) * self.bytes_per_block;
                let begin = now.max(links.ports[self.port].in_free_at).max(links.ports[source].out_free_at);
                end = begin
                    + links.link.set_up
                    + links.link.latency
                    + SimTime::from_secs_f64(bytes as f64 / links.link.bytes_per_s);
                links.ports[self.port].in_free_at = end;
                links.ports[source].out_free_at = end;
                self.begun.push(PullRecord {
                    source: source as u32,
                    request: read.request,
                    planned_at: now,
                    started_at: begin,
                    finished_at: end,
                    num_blocks: read.num_blocks,
                    bytes,
                });
            }
            if read.is_awaited {
                links.ports[self.port].received.push(Reverse((end, read.request)));
            }
            links.ports[source].sent.push(Reverse((end, read.request)));
            links.wakes.push((end, source));
        }
    }

    /// The reads that have begun since the last call.
    pub(super) fn take_begun(&mut self) -> impl Iterator<Item = PullRecord> + '_ {
        self.begun.drain(..)
    }

    /// When something is next to be reported.
    pub(super) fn next_done(&self) -> Option<SimTime> {
        let port = &self.links.borrow().ports[self.port];
        let next = |heap: &BinaryHeap<Reverse<(SimTime, u64)>>| heap.peek().map(|&Reverse((at, _))| at);
        match (next(&port.received), next(&port.sent)) {
            (Some(received), Some(sent)) => Some(received.min(sent)),
            (received, sent) => received.or(sent),
        }
    }

    /// What workers report at `now`.
    pub(super) fn worker_output(&mut self, now: SimTime) -> KvConnectorOutput {
        let port = &mut self.links.borrow_mut().ports[self.port];
        let done = |heap: &mut BinaryHeap<Reverse<(SimTime, u64)>>| {
            let mut ids = Vec::new();
            while heap.peek().is_some_and(|&Reverse((at, _))| at <= now) {
                ids.extend(heap.pop().map(|Reverse((_, id))| id));
            }
            ids
        };
        KvConnectorOutput {
            finished_recving: done(&mut port.received),
            finished_sending: done(&mut port.sent),
            ..KvConnectorOutput::default()
        }
    }
}
