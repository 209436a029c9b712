//! A tier as an engine has it: for itself, or together with others.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::EvictionOrder;
use super::tier::{Tier, TierKey};

/// Where a tier lies; vLLM's `CacheHitSource`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TierKind {
    Host,
    Disk,
    /// Another machine (`p2p` in vLLM's metrics).
    Remote,
}

/// Who has a tier in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharedBy {
    /// The replicas of one machine.
    Node,
    /// All replicas.
    Cluster,
}

/// What a tier is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierConfig {
    pub kind: TierKind,
    pub capacity_blocks: usize,
    pub eviction: EvictionOrder,
}

/// The store of a tier. Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct TierStore {
    kind: TierKind,
    shared: Option<SharedBy>,
    tier: Rc<RefCell<Tier>>,
    /// Tokens that other replicas have hit of what each replica stored.
    given_tokens: Rc<RefCell<Vec<u64>>>,
}

impl TierStore {
    /// `shared` is `None` for a store that only one engine has.
    pub fn new(config: TierConfig, shared: Option<SharedBy>) -> Self {
        Self {
            kind: config.kind,
            shared,
            tier: Rc::new(RefCell::new(Tier::new(config.capacity_blocks, config.eviction))),
            given_tokens: Rc::default(),
        }
    }

    pub fn kind(&self) -> TierKind {
        self.kind
    }

    pub fn shared(&self) -> Option<SharedBy> {
        self.shared
    }

    /// Both are handles of one store.
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.tier, &other.tier)
    }

    pub fn capacity_blocks(&self) -> u64 {
        self.tier.borrow().capacity_blocks() as u64
    }

    pub fn held_blocks(&self) -> u64 {
        self.tier.borrow().len() as u64
    }

    /// The most blocks held at any time.
    pub fn peak_held_blocks(&self) -> u64 {
        self.tier.borrow().peak_blocks() as u64
    }

    /// Tokens that others have hit of what a replica stored.
    pub fn given_tokens(&self, replica: u32) -> u64 {
        self.given_tokens.borrow().get(replica as usize).copied().unwrap_or(0)
    }

    pub(super) fn contains(&self, key: TierKey) -> bool {
        self.tier.borrow().contains(key)
    }

    /// A replica hits a block of so many tokens. True if another stored it.
    pub(super) fn hit(&self, key: TierKey, by: u32, num_tokens: u64) -> bool {
        let stored_by = self.tier.borrow_mut().touch(key);
        let Some(other) = stored_by.filter(|&replica| replica != by) else { return false };
        let given = &mut *self.given_tokens.borrow_mut();
        if given.len() <= other as usize {
            given.resize(other as usize + 1, 0);
        }
        given[other as usize] += num_tokens;
        true
    }

    pub(super) fn insert(&self, key: TierKey, by: u32) -> Option<TierKey> {
        self.tier.borrow_mut().insert(key, by)
    }

    pub(super) fn clear(&self) {
        self.tier.borrow_mut().clear();
    }
}

/// A tier in an engine's list of them.
#[derive(Clone, Debug)]
pub struct TierPlace {
    pub store: TierStore,
    /// What comes into the first tier is copied here at once, as vLLM does with all of its secondary tiers
    /// (`v1/kv_offload/tiering/manager.py`). Else only what the tier before evicts comes here. Without
    /// meaning for the first tier.
    pub write_through: bool,
}

impl From<TierConfig> for TierPlace {
    /// The engine's own.
    fn from(config: TierConfig) -> Self {
        Self { store: TierStore::new(config, None), write_through: false }
    }
}

/// Whose hashes a replica's keys are: equal blocks have equal hashes only within one space. vLLM hashes
/// from a seed on; where `PYTHONHASHSEED` is not set and the algorithm is not cryptographic, each process
/// draws one (`resolve_none_hash_seed` in `v1/core/kv_cache_utils.py`), so it is alone in its space.
#[derive(Clone, Debug, Default)]
pub struct HashSpace {
    number: u32,
    /// Spaces so far, where each process has one of its own.
    drawn: Option<Rc<Cell<u32>>>,
}

impl HashSpace {
    /// That of all replicas with this number.
    pub fn agreed(number: u32) -> Self {
        Self { number, drawn: None }
    }

    /// One of its own for each process. `num_spaces` counts all that there are.
    pub fn drawn(num_spaces: &Rc<Cell<u32>>) -> Self {
        let mut space = Self { number: 0, drawn: Some(Rc::clone(num_spaces)) };
        space.begin_anew();
        space
    }

    /// Another process begins.
    pub(super) fn begin_anew(&mut self) {
        if let Some(num_spaces) = &self.drawn {
            self.number = num_spaces.get();
            num_spaces.set(self.number + 1);
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }
}
