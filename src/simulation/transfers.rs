//! Copies between the GPU and the tiers take time: each tier has a link, each direction of it
//! carries one copy after the other, and a copy takes the latency and its bytes over the bandwidth.
//!
//! A tier that replicas share also has a [`StoreLink`] in common, so a copy waits for its own link and for
//! the store, and goes at the speed of the slower. The store takes copies in the order in which they are
//! ready, so what is ready later waits here, and an [`Event::Land`](super::event_queue::Event::Land) brings
//! it on its way; another one makes what has been written known to the others in time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::observer::TransferRecord;
use super::store_link::StoreLink;
use crate::engine::connector::{Direction, KvConnectorOutput, TieredConnector, Transfer};
use crate::units::SimTime;

/// The link of one rank of a replica to one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub latency: SimTime,
    /// In bytes per second, above 0.
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
}

/// The way to one tier.
#[derive(Clone, Debug)]
pub struct TierLink {
    pub link: Link,
    /// Of a tier that replicas share.
    pub store: Option<StoreLink>,
}

impl From<Link> for TierLink {
    /// To a tier of the replica's own.
    fn from(link: Link) -> Self {
        Self { link, store: None }
    }
}

/// What has gone over the links of a tier: reads, writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Over all ranks.
    pub bytes: [u64; 2],
    pub copies: [u64; 2],
    /// Time of copies on the links, without latency and waiting.
    pub busy: [SimTime; 2],
    /// From the time at which copies were ready to their begin.
    pub waited: [SimTime; 2],
}

impl LinkStats {
    pub(super) fn add(&mut self, other: &Self) {
        for way in 0..2 {
            self.bytes[way] += other.bytes[way];
            self.copies[way] += other.copies[way];
            self.busy[way] += other.busy[way];
            self.waited[way] += other.waited[way];
        }
    }
}

#[derive(Debug)]
pub struct Transfers {
    connector: TieredConnector,
    links: Vec<TierLink>,
    /// Of one block of one group on one rank; the ranks copy at the same time.
    bytes_per_block: u64,
    num_ranks: u32,
    /// Others see what this replica writes.
    is_shared: bool,
    /// When each link's directions are free: reads, writes.
    free_at: Vec<[SimTime; 2]>,
    stats: Vec<LinkStats>,
    /// Not ready yet. By time, then in the order in which they were planned.
    waiting: BinaryHeap<Reverse<(SimTime, u64)>>,
    /// By time, then in the order in which they were planned.
    running: BinaryHeap<Reverse<(SimTime, u64)>>,
    by_number: BTreeMap<u64, Transfer>,
    num_planned: u64,
    /// Done since the last report of the workers.
    reported: KvConnectorOutput,
    /// When something that others see begins or ends.
    landings: Vec<SimTime>,
    /// Begun since they were last told of.
    begun: Vec<TransferRecord>,
}

impl Transfers {
    /// One link for each tier of the connector, in order. `num_ranks` hold a part of each block.
    pub fn new(
        connector: TieredConnector,
        links: Vec<TierLink>,
        bytes_per_block: u64,
        num_ranks: u32,
    ) -> Self {
        Self {
            connector,
            free_at: vec![[SimTime::ZERO; 2]; links.len()],
            stats: vec![LinkStats::default(); links.len()],
            is_shared: links.iter().any(|link| link.store.is_some()),
            links,
            bytes_per_block,
            num_ranks,
            waiting: BinaryHeap::new(),
            running: BinaryHeap::new(),
            by_number: BTreeMap::new(),
            num_planned: 0,
            reported: KvConnectorOutput::default(),
            landings: Vec::new(),
            begun: Vec::new(),
        }
    }

    pub fn connector(&self) -> &TieredConnector {
        &self.connector
    }

    /// Of each tier: what has gone over its links, and the end of them that is shared.
    pub(super) fn links(&self) -> impl Iterator<Item = (&LinkStats, Option<&StoreLink>)> {
        self.stats.iter().zip(self.links.iter().map(|link| link.store.as_ref()))
    }

    /// Begins what the connector has planned: loads at `now`, stores when the step that computes
    /// their blocks is `done`.
    pub(super) fn start(&mut self, now: SimTime, done: SimTime) {
        for transfer in self.connector.take_transfers() {
            let ready = match transfer.direction {
                Direction::Read => now,
                Direction::Write => done,
            };
            let number = self.num_planned;
            self.num_planned += 1;
            if ready > now && self.links[transfer.tier].store.is_some() {
                self.waiting.push(Reverse((ready, number)));
                self.landings.push(ready);
            } else {
                self.begin(&transfer, ready, number);
            }
            self.by_number.insert(number, transfer);
        }
    }

    fn begin(&mut self, transfer: &Transfer, ready: SimTime, number: u64) {
        let way = transfer.direction as usize;
        let TierLink { link, store } = &self.links[transfer.tier];
        let bytes_per_s = [link.read_bytes_per_s, link.write_bytes_per_s][way];
        let bytes = transfer.blocks.len() as u64 * self.bytes_per_block;
        let all_bytes = bytes * u64::from(self.num_ranks);
        let own_lasts = SimTime::from_secs_f64(bytes as f64 / bytes_per_s);
        let own_begin = ready.max(self.free_at[transfer.tier][way]);
        let (begin, store_lasts) = match store {
            Some(store) => store.take(transfer.direction, own_begin, all_bytes),
            None => (own_begin, SimTime::ZERO),
        };
        let lasts = own_lasts.max(store_lasts);
        let end = begin + link.latency + lasts;
        self.free_at[transfer.tier][way] = end;
        let stats = &mut self.stats[transfer.tier];
        stats.bytes[way] += all_bytes;
        stats.copies[way] += 1;
        stats.busy[way] += lasts;
        stats.waited[way] += begin.since(ready);
        self.begun.push(TransferRecord {
            tier: transfer.tier,
            direction: transfer.direction,
            request: transfer.request(),
            started_at: begin,
            finished_at: end,
            num_blocks: transfer.blocks.len() as u32,
            bytes,
        });
        self.running.push(Reverse((end, number)));
        if self.is_shared {
            self.landings.push(end);
        }
    }

    /// The server has gone, and its copies with it.
    pub(super) fn restart(&mut self) {
        self.connector.restart();
        self.waiting.clear();
        self.running.clear();
        self.by_number.clear();
        self.reported = KvConnectorOutput::default();
        self.free_at.fill([SimTime::ZERO; 2]);
    }

    /// The copies that have begun since the last call.
    pub(super) fn take_begun(&mut self) -> impl Iterator<Item = TransferRecord> + '_ {
        self.begun.drain(..)
    }

    /// When [`Self::land`] is to be called, of what has been planned since the last call.
    pub(super) fn take_landings(&mut self) -> impl Iterator<Item = SimTime> + '_ {
        self.landings.drain(..)
    }

    /// When something is next to be reported, or to begin.
    pub(super) fn next_done(&self) -> Option<SimTime> {
        if !self.reported.is_empty() {
            return Some(SimTime::ZERO);
        }
        let next = |heap: &BinaryHeap<Reverse<(SimTime, u64)>>| heap.peek().map(|&Reverse((at, _))| at);
        [next(&self.running), next(&self.waiting)].into_iter().flatten().min()
    }

    /// Ends and begins copies whose time has come.
    pub(super) fn land(&mut self, now: SimTime) {
        let due = |heap: &mut BinaryHeap<Reverse<(SimTime, u64)>>| {
            let at = heap.peek().map(|&Reverse((at, _))| at).filter(|&at| at <= now)?;
            heap.pop().map(|Reverse((_, number))| (at, number))
        };
        while let Some((ready, number)) = due(&mut self.waiting) {
            let Some(transfer) = self.by_number.remove(&number) else { continue };
            self.begin(&transfer, ready, number);
            self.by_number.insert(number, transfer);
        }
        while let Some((at, number)) = due(&mut self.running) {
            let Some(transfer) = self.by_number.remove(&number) else { continue };
            let done = self.connector.complete(&transfer);
            self.reported.finished_recving.extend(done.finished_recving);
            self.reported.finished_sending.extend(done.finished_sending);
            // What it pushed out of its tier goes on from here.
            self.start(at, at);
        }
    }

    /// What workers report at `now`.
    pub(super) fn worker_output(&mut self, now: SimTime) -> KvConnectorOutput {
        self.land(now);
        std::mem::take(&mut self.reported)
    }
}
