//! What a router believes of the replicas' prefix caches.

use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::holders::Holders;
use super::lru::{Lru, Use};
use crate::engine::hash::{BlockHash, PromptHashes, RequestBlockHasher};
use crate::engine::kv_events::CacheChange;
use crate::prompt::PromptExtras;
use crate::units::SimTime;
use crate::workload::{RequestSpec, rng};

/// The group of KV cache whose events count; the others hold parts of the same blocks.
const GROUP: u32 = 0;

/// Prompts as chains of block hashes, and who is believed to hold which.
#[derive(Debug)]
pub struct PrefixIndex {
    hasher: RequestBlockHasher,
    /// No more blocks of a prompt than these are looked at.
    max_blocks: usize,
    holders: Holders,
    source: Source,
    stats: PrefixIndexStats,
    /// Of the request that was looked up last.
    prompt: Option<PromptHashes>,
    matches: Vec<u32>,
}

#[derive(Debug)]
enum Source {
    /// What the router itself sent, in an order of use for each replica.
    Sent(Vec<Lru>),
    Events(Box<Events>),
}

#[derive(Debug)]
struct Events {
    delay: SimTime,
    /// The chance of each message to be lost.
    loss: f64,
    rng: ChaCha8Rng,
    /// By engine core, why its hashes can never equal the router's.
    mismatches: Vec<Option<String>>,
    /// By engine core, the replica behind which it stands, unless each is one.
    replica_of: Option<Vec<usize>>,
    /// On their way to the router.
    pending: VecDeque<(SimTime, u32, CacheChange)>,
}

/// How well a router knew the caches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PrefixIndexStats {
    /// Requests that were looked up.
    pub lookups: u64,
    /// Blocks of their prompts, as far as the router looks.
    pub queried_blocks: u64,
    /// Of these, those that the router believed the chosen replica to hold.
    pub matched_blocks: u64,
    /// Matched over queried blocks; 0 without queries.
    pub match_rate: f64,
    /// Of KV events, where the router reads them: blocks that came and went, and caches that were
    /// emptied.
    pub events: u64,
    /// Events in messages that were lost.
    pub lost_events: u64,
    /// Events of replicas whose hashes can never equal the router's.
    pub foreign_events: u64,
    /// Why nothing was matched, when nothing was.
    pub no_match_because: Option<String>,
}

/// What an index needs to know to read events.
#[derive(Clone, Debug)]
pub struct EventSettings {
    pub delay: SimTime,
    /// 0 to 1.
    pub loss: f64,
    pub seed: u64,
    /// For each engine core, why its hashes can never equal the router's.
    pub mismatches: Vec<Option<String>>,
    /// For each engine core, the replica behind which it stands.
    pub replica_of: Vec<usize>,
}

impl PrefixIndex {
    /// Remembers what the router sends: for each replica the `capacity_blocks` that were sent last.
    ///
    /// # Panics
    /// When `block_size` is 0.
    pub fn of_sent(num_replicas: usize, block_size: u32, max_blocks: usize, capacity_blocks: usize) -> Self {
        let lrus = (0..num_replicas).map(|_| Lru::new(capacity_blocks.max(1))).collect();
        let hasher = RequestBlockHasher::identity(block_size, 0);
        Self::new(num_replicas, hasher, max_blocks, Source::Sent(lrus))
    }

    /// Reads the KV events of the replicas' engine cores. Those without a mismatch must hash with clones of `hasher`.
    pub fn of_events(hasher: RequestBlockHasher, max_blocks: usize, settings: EventSettings) -> Self {
        let EventSettings { delay, loss, seed, mismatches, replica_of } = settings;
        let num_engines = mismatches.len();
        let rng = rng::stream(seed, "lost KV events", 0);
        let are_replicas = replica_of.iter().copied().eq(0..num_engines);
        let replica_of = (!are_replicas).then_some(replica_of);
        let events = Events { delay, loss, rng, mismatches, replica_of, pending: VecDeque::new() };
        Self::new(num_engines, hasher, max_blocks, Source::Events(Box::new(events)))
    }

    fn new(num_replicas: usize, hasher: RequestBlockHasher, max_blocks: usize, source: Source) -> Self {
        Self {
            hasher,
            max_blocks,
            holders: Holders::new(num_replicas),
            source,
            stats: PrefixIndexStats::default(),
            prompt: None,
            matches: Vec::new(),
        }
    }

    pub fn reads_events(&self) -> bool {
        matches!(self.source, Source::Events(_))
    }

    /// Looks a prompt up at `now`: how many blocks it has, and how many of them from the first on
    /// each replica is believed to hold.
    pub fn look_up(&mut self, now: SimTime, request: &RequestSpec) -> (u32, &[u32]) {
        if let Source::Events(events) = &mut self.source {
            while let Some(&(at, engine, change)) = events.pending.front()
                && at <= now
            {
                events.pending.pop_front();
                apply(&mut self.holders, engine as usize, change);
            }
        }
        let extras = (request.extras != PromptExtras::default()).then_some(&request.extras);
        let prompt = self.prompt.insert(self.hasher.hash_prompt(&request.prompt, extras));
        let hashes = first_blocks(prompt, self.max_blocks);
        self.holders.match_prefix(hashes, &mut self.matches);
        if let Source::Events(events) = &self.source
            && let Some(replica_of) = &events.replica_of
        {
            longest_by_replica(replica_of, &mut self.matches);
        }
        (hashes.len() as u32, &self.matches)
    }

    /// The blocks of the prompt that was looked up last, as far as they are looked at.
    pub fn hashes(&self) -> &[BlockHash] {
        self.prompt.as_ref().map_or(&[], |prompt| first_blocks(prompt, self.max_blocks))
    }

    /// All hashes of that prompt, for the engine that it goes to.
    pub fn take_prompt(&mut self) -> Option<PromptHashes> {
        self.prompt.take()
    }

    /// How many of them from the first on each replica is believed to hold.
    pub fn matches(&self) -> &[u32] {
        &self.matches
    }

    /// The request that was looked up last goes to that replica.
    pub fn sent(&mut self, replica: usize) {
        self.stats.lookups += 1;
        let hashes = self.prompt.as_ref().map_or(&[][..], |prompt| first_blocks(prompt, self.max_blocks));
        self.stats.queried_blocks += hashes.len() as u64;
        self.stats.matched_blocks += u64::from(self.matches[replica]);
        if let Source::Sent(lrus) = &mut self.source {
            for &hash in hashes {
                match lrus[replica].touch(hash) {
                    Use::Known => continue,
                    Use::New => {}
                    Use::Replaced(left) => self.holders.remove(left, replica),
                }
                self.holders.insert(hash, replica);
            }
        }
    }

    /// An engine core publishes what changed in its cache, as one message.
    pub fn on_events(&mut self, now: SimTime, engine: usize, changes: &[CacheChange]) {
        let Source::Events(events) = &mut self.source else { return };
        let count = changes.len() as u64;
        self.stats.events += count;
        if events.mismatches[engine].is_some() {
            self.stats.foreign_events += count;
        } else if events.loss > 0.0 && events.rng.random_bool(events.loss) {
            self.stats.lost_events += count;
        } else if events.delay == SimTime::ZERO {
            changes.iter().for_each(|&change| apply(&mut self.holders, engine, change));
        } else {
            let at = now + events.delay;
            events.pending.extend(changes.iter().map(|&change| (at, engine as u32, change)));
        }
    }

    pub fn stats(&self) -> PrefixIndexStats {
        let mut stats = self.stats.clone();
        if stats.queried_blocks > 0 {
            stats.match_rate = stats.matched_blocks as f64 / stats.queried_blocks as f64;
        }
        if stats.matched_blocks == 0 {
            stats.no_match_because = Some(self.no_match_because());
        }
        stats
    }

    fn no_match_because(&self) -> String {
        if self.stats.queried_blocks == 0 {
            return "no prompt has a whole block".to_owned();
        }
        let Source::Events(events) = &self.source else {
            return "no prompt begins as one that was sent before".to_owned();
        };
        let foreign = events.mismatches.iter().flatten();
        match foreign.clone().next() {
            Some(first) if foreign.count() == events.mismatches.len() => first.clone(),
            _ if self.stats.events == 0 => "the replicas sent no KV events".to_owned(),
            _ if self.stats.lost_events == self.stats.events => "all KV events were lost".to_owned(),
            Some(first) => {
                format!("nothing shared with the replicas whose hashes match; of the others, {first}")
            }
            None => "no prompt begins as one that was in a cache when it came".to_owned(),
        }
    }
}

fn first_blocks(prompt: &PromptHashes, max_blocks: usize) -> &[BlockHash] {
    &prompt.hashes()[..prompt.hashes().len().min(max_blocks)]
}

/// A replica holds as much of the prompt as that of its engine cores that holds most. Replicas' engine
/// cores follow each other, so the place of each replica has been read before it is written.
fn longest_by_replica(replica_of: &[usize], matches: &mut Vec<u32>) {
    let mut num_replicas = 0;
    for (engine, &replica) in replica_of.iter().enumerate() {
        let length = matches[engine];
        if replica < num_replicas {
            matches[replica] = matches[replica].max(length);
        } else {
            matches[replica] = length;
            num_replicas = replica + 1;
        }
    }
    matches.truncate(num_replicas);
}

fn apply(holders: &mut Holders, engine: usize, change: CacheChange) {
    match change {
        CacheChange::Stored { hash, group_id: GROUP } => holders.insert(hash, engine),
        CacheChange::Removed { hash, group_id: GROUP } => holders.remove(hash, engine),
        CacheChange::Cleared => holders.clear(engine),
        CacheChange::Stored { .. } | CacheChange::Removed { .. } => {}
    }
}
