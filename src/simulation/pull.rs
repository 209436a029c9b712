//! Reads of KV blocks between replicas take time: each replica has a link, each direction of it carries
//! one read after the other, and a read takes its set-up, the latency, and its bytes over the bandwidth.
//!
//! Who computed a prompt keeps its blocks until they have been read, as long as somebody is there who will
//! read them: a server that has the request renews the lease (`_send_heartbeats` in vLLM's
//! `nixl/pull_worker.py`). Else it runs out ([`leases`](super::leases)). Reads from a server that has gone
//! fail.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::leases::Leases;
use super::observer::PullRecord;
use crate::engine::connector::{KvConnectorOutput, PullConnector, PullRead};
use crate::units::SimTime;

/// The link of each replica of a kind, for one rank; the ranks read at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PullLink {
    /// Each way, in bytes per second, above 0.
    pub bytes_per_s: f64,
    pub latency: SimTime,
    /// Of each read: descriptors are made, and the other side is told of the end.
    pub set_up: SimTime,
    /// Blocks that nobody renews the lease of are kept so long.
    pub lease: SimTime,
}

/// What went wrong with reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullFailures {
    /// Reads whose source had gone, or went while they were under way.
    pub failed_reads: u64,
    /// Prompts whose blocks were given up before they had been read.
    pub expired_leases: u64,
    /// Reads of such blocks: vLLM reads what is there by then.
    pub reads_after_expiry: u64,
}

/// By time, then by request.
type Agenda = BinaryHeap<Reverse<(SimTime, u64)>>;

/// One replica's ends of reads.
#[derive(Debug, Default)]
struct Port {
    /// When each direction is free.
    in_free_at: SimTime,
    out_free_at: SimTime,
    /// Requests by the time at which what they wait for is there, or is known not to come, and whose blocks
    /// have been read.
    received: Agenda,
    failed: Agenda,
    sent: Agenda,
}

/// A read under way.
#[derive(Clone, Copy, Debug)]
struct Reading {
    request: u64,
    reader: usize,
    source: usize,
    end: SimTime,
    is_awaited: bool,
}

/// The links of all replicas.
#[derive(Debug)]
pub struct PullLinks {
    link: PullLink,
    ports: Vec<Port>,
    leases: Leases,
    /// Where the prompt of a request was computed.
    sources: FxHashMap<u64, usize>,
    /// Reads that a failure could break off, if replicas can fail.
    reading: Option<Vec<Reading>>,
    /// When a replica has something to report that it may be idle for.
    wakes: Vec<(SimTime, usize)>,
    failures: PullFailures,
}

impl PullLinks {
    pub fn new(link: PullLink, num_replicas: usize) -> Self {
        Self {
            link,
            ports: (0..num_replicas).map(|_| Port::default()).collect(),
            leases: Leases::new(link.lease, num_replicas),
            sources: FxHashMap::default(),
            reading: None,
            wakes: Vec::new(),
            failures: PullFailures::default(),
        }
    }

    /// Replicas can fail.
    pub(super) fn expect_failures(&mut self) {
        self.reading.get_or_insert_default();
    }

    pub(super) fn failures(&self) -> PullFailures {
        PullFailures { expired_leases: self.leases.num_expired(), ..self.failures }
    }

    /// The prompt of a request was computed there, and is kept for who reads it.
    pub(super) fn set_source(&mut self, request: u64, replica: usize) {
        self.sources.insert(request, replica);
        self.leases.hold(replica, request);
    }

    /// A replica has a request whose blocks it will read: it renews the lease.
    pub(super) fn expect_read(&mut self, request: u64) {
        if let Some(&source) = self.sources.get(&request) {
            self.leases.renew(source, request);
        }
    }

    /// Nobody has the request: its lease runs out, if its blocks have not been read.
    pub(super) fn lose_reader(&mut self, request: u64, now: SimTime) {
        if let Some(&source) = self.sources.get(&request)
            && let Some(at) = self.leases.run_out(source, request, now)
        {
            self.wakes.push((at, source));
        }
    }

    /// Whether a replica keeps the blocks of a request; if it does, it need not any more.
    pub(super) fn give_up(&mut self, replica: usize, request: u64) -> bool {
        if self.reading.is_none() {
            return false;
        }
        // They may have been read, and the replica does not know yet.
        let sent = &mut self.ports[replica].sent;
        let num_sent = sent.len();
        sent.retain(|&Reverse((_, other))| other != request);
        sent.len() < num_sent || self.leases.end(replica, request) == Some(true)
    }

    /// A replica has gone, with what it kept and what it was doing.
    pub(super) fn fail(&mut self, replica: usize, now: SimTime) {
        self.ports[replica] = Port::default();
        self.leases.fail(replica);
        let Some(reading) = &mut self.reading else { return };
        let broken: Vec<Reading> =
            reading.extract_if(.., |read| read.reader == replica || read.source == replica).collect();
        for read in broken.into_iter().filter(|read| read.end > now) {
            if read.reader == replica {
                // It does not say any more that it is through.
                if read.source != replica {
                    let free_at = &mut self.ports[read.source].out_free_at;
                    *free_at = if *free_at == read.end { now } else { *free_at };
                    self.sources.insert(read.request, read.source);
                    self.leases.hold(read.source, read.request);
                    self.lose_reader(read.request, now);
                    self.ports[read.source].sent.retain(|&Reverse((_, request))| request != read.request);
                }
                continue;
            }
            self.failures.failed_reads += 1;
            let port = &mut self.ports[read.reader];
            // Reads that were to follow keep their times.
            port.in_free_at = if port.in_free_at == read.end { now } else { port.in_free_at };
            port.received.retain(|&Reverse((_, request))| request != read.request);
            if read.is_awaited {
                port.failed.push(Reverse((now, read.request)));
            }
            self.wakes.push((now, read.reader));
        }
    }

    pub(super) fn take_wakes(&mut self) -> Vec<(SimTime, usize)> {
        std::mem::take(&mut self.wakes)
    }

    /// Begins a read; what is told of it, unless there are no blocks to be read.
    fn begin(&mut self, read: PullRead, reader: usize, bytes: u64, now: SimTime) -> Option<PullRecord> {
        let source = self.sources.remove(&read.request)?;
        let Some(is_held) = self.leases.end(source, read.request) else {
            // The source has gone.
            if read.is_awaited {
                self.failures.failed_reads += 1;
                self.ports[reader].failed.push(Reverse((now, read.request)));
            }
            return None;
        };
        self.failures.reads_after_expiry += u64::from(!is_held && read.num_blocks > 0);
        let (mut begin, mut end) = (now, now);
        if read.num_blocks > 0 {
            begin = now.max(self.ports[reader].in_free_at).max(self.ports[source].out_free_at);
            end = begin
                + self.link.set_up
                + self.link.latency
                + SimTime::from_secs_f64(bytes as f64 / self.link.bytes_per_s);
            self.ports[reader].in_free_at = end;
            self.ports[source].out_free_at = end;
        }
        if read.is_awaited {
            self.ports[reader].received.push(Reverse((end, read.request)));
        }
        if is_held {
            self.ports[source].sent.push(Reverse((end, read.request)));
            self.wakes.push((end, source));
        }
        if let Some(reading) = &mut self.reading {
            reading.retain(|read| read.end > now);
            let PullRead { request, is_awaited, .. } = read;
            reading.push(Reading { request, reader, source, end, is_awaited });
        }
        (read.num_blocks > 0).then_some(PullRecord {
            source: source as u32,
            request: read.request,
            planned_at: now,
            started_at: begin,
            finished_at: end,
            num_blocks: read.num_blocks,
            bytes,
        })
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

    /// Whether this replica keeps the blocks of a request; if it does, it need not any more.
    pub(super) fn give_up(&self, request: u64) -> bool {
        self.links.borrow_mut().give_up(self.port, request)
    }

    /// Begins what the connector has planned.
    pub(super) fn start(&mut self, now: SimTime) {
        for read in self.connector.take_reads() {
            let bytes = u64::from(read.num_blocks) * self.bytes_per_block;
            self.begun.extend(self.links.borrow_mut().begin(read, self.port, bytes, now));
        }
    }

    /// The reads that have begun since the last call.
    pub(super) fn take_begun(&mut self) -> impl Iterator<Item = PullRecord> + '_ {
        self.begun.drain(..)
    }

    /// When something is next to be reported.
    pub(super) fn next_done(&self) -> Option<SimTime> {
        let links = self.links.borrow();
        let port = &links.ports[self.port];
        let next = |heap: &Agenda| heap.peek().map(|&Reverse((at, _))| at);
        let done = [next(&port.received), next(&port.failed), next(&port.sent)];
        done.into_iter().chain([links.leases.next_end(self.port)]).flatten().min()
    }

    /// What workers report at `now`.
    pub(super) fn worker_output(&mut self, now: SimTime) -> KvConnectorOutput {
        let links = &mut *self.links.borrow_mut();
        let port = &mut links.ports[self.port];
        let done = |heap: &mut Agenda| {
            let mut ids = Vec::new();
            while heap.peek().is_some_and(|&Reverse((at, _))| at <= now) {
                ids.extend(heap.pop().map(|Reverse((_, id))| id));
            }
            ids
        };
        let failed_recving = done(&mut port.failed);
        let finished_recving = [done(&mut port.received), failed_recving.clone()].concat();
        let mut finished_sending = done(&mut port.sent);
        links.leases.take_expired(self.port, now, &mut finished_sending);
        KvConnectorOutput {
            finished_recving,
            finished_sending,
            failed_recving,
            ..KvConnectorOutput::default()
        }
    }
}
