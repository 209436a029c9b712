//! What the tiers of all replicas came to.

use super::replica::Replica;
use super::store_link::StoreLink;
use super::transfers::LinkStats;
use crate::engine::connector::{SharedBy, TierKind, TierStats, TierStore};
use crate::units::SimTime;

/// The tiers of one kind, over all replicas that have one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierEnding {
    pub kind: TierKind,
    /// `None` when each replica has its own.
    pub shared: Option<SharedBy>,
    pub num_stores: u64,
    /// Of all stores.
    pub capacity_blocks: u64,
    pub held_blocks: u64,
    /// The most that each held at any time, added up.
    pub peak_held_blocks: u64,
    pub stats: TierStats,
    pub links: LinkStats,
    /// How long each direction of the stores was busy, added up: of a shared store its own end, else the
    /// replica's link.
    pub store_busy: [SimTime; 2],
    pub replicas: Vec<ReplicaTierEnding>,
}

/// A replica's part in a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaTierEnding {
    pub replica: u32,
    /// Of the stores of this tier, counted from 0.
    pub store: u64,
    pub stats: TierStats,
    /// Tokens that other replicas have hit of what this one stored.
    pub given_tokens: u64,
}

/// In the order of the first replica's tiers. Tiers of one kind in a list are told apart by their order.
pub(super) fn tier_endings<'a>(replicas: impl Iterator<Item = &'a Replica>) -> Vec<TierEnding> {
    let mut endings: Vec<(usize, TierEnding, Vec<TierStore>)> = Vec::new();
    for replica in replicas {
        let Some(transfers) = replica.transfers() else { continue };
        let tiers = transfers.connector().stats();
        for (place, ((store, stats), (links, end))) in tiers.iter().zip(transfers.links()).enumerate() {
            let (kind, shared) = (store.kind(), store.shared());
            let is_like = |other: &TierStore| (other.kind(), other.shared()) == (kind, shared);
            let nth = tiers[..place].iter().filter(|(other, _)| is_like(other)).count();
            let known =
                endings.iter().position(|(at, tier, _)| (*at, tier.kind, tier.shared) == (nth, kind, shared));
            let index = match known {
                Some(index) => index,
                None => {
                    endings.push((nth, TierEnding::empty(kind, shared), Vec::new()));
                    endings.len() - 1
                }
            };
            let (_, ending, stores) = &mut endings[index];
            let number = match stores.iter().position(|other| other.is_same(store)) {
                Some(number) => number,
                None => {
                    let busy = end.map_or(links.busy, StoreLink::busy);
                    ending.add_store(store, busy);
                    stores.push(store.clone());
                    stores.len() - 1
                }
            };
            ending.stats.add(stats);
            ending.links.add(links);
            ending.replicas.push(ReplicaTierEnding {
                replica: replica.index(),
                store: number as u64,
                stats: *stats,
                given_tokens: store.given_tokens(replica.index()),
            });
        }
    }
    endings.into_iter().map(|(_, ending, _)| ending).collect()
}

impl TierEnding {
    /// Of no replica.
    pub fn empty(kind: TierKind, shared: Option<SharedBy>) -> Self {
        Self {
            kind,
            shared,
            num_stores: 0,
            capacity_blocks: 0,
            held_blocks: 0,
            peak_held_blocks: 0,
            stats: TierStats::default(),
            links: LinkStats::default(),
            store_busy: [SimTime::ZERO; 2],
            replicas: Vec::new(),
        }
    }

    fn add_store(&mut self, store: &TierStore, busy: [SimTime; 2]) {
        self.num_stores += 1;
        self.capacity_blocks += store.capacity_blocks();
        self.held_blocks += store.held_blocks();
        self.peak_held_blocks += store.peak_held_blocks();
        self.store_busy[0] += busy[0];
        self.store_busy[1] += busy[1];
    }
}
