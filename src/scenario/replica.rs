//! From a kind of replica to a replica.

use std::cell::RefCell;
use std::rc::Rc;

use super::engine_section::{TierSection, TransferSection};
use super::pool::Pool;
use crate::cost::{BlockHashing, CostModel};
use crate::engine::EngineConfigError;
use crate::engine::connector::{KvConnector, TierConfig, TierGroup, TieredConnector};
use crate::engine::hash::{RequestBlockHasher, init_none_hash, resolve_none_hash_seed};
use crate::engine::kv_cache::KvCacheSpec;
use crate::engine::scheduler::Scheduler;
use crate::simulation::{DraftAcceptance, Link, PullLinks, Replica, ReplicaConfig, Transfers};
use crate::units::SimTime;

const GIB: f64 = (1_u64 << 30) as f64;

impl Pool {
    /// Replica number `index` of a run with this seed; its hasher is a clone of the shared one, if
    /// there is one.
    ///
    /// # Errors
    /// Settings that the scheduler refuses.
    pub(super) fn replica(
        &self,
        cost: CostModel,
        seed: u64,
        index: u64,
        shared_hasher: Option<&RequestBlockHasher>,
        links: Option<&Rc<RefCell<PullLinks>>>,
    ) -> Result<Replica, EngineConfigError> {
        let transfers = self.section.kv_transfer_config.as_ref().map(|config| self.transfers(config));
        let puller = links.map(|links| self.puller(links, index as usize));
        let of_tiers = transfers.as_ref().map(|transfers| Box::new(transfers.connector().clone()) as _);
        let connector: Option<Box<dyn KvConnector>> =
            of_tiers.or_else(|| puller.as_ref().map(|puller| Box::new(puller.connector().clone()) as _));
        let is_hashed = self.engine.enable_prefix_caching || connector.is_some();
        let hasher = is_hashed.then(|| shared_hasher.cloned().unwrap_or_else(|| self.hasher(seed, index)));
        let scheduler = Scheduler::new(self.engine.clone(), hasher, connector)?;
        let drafts = self
            .section
            .speculative_config
            .map(|spec| DraftAcceptance { acceptance_rate: spec.acceptance_rate, seed });
        let (_, hash_block_size) = self.engine.resolve_kv_cache_block_sizes();
        let hashing = if is_hashed { self.block_hashing(hash_block_size) } else { BlockHashing::FREE };
        Ok(Replica::new(ReplicaConfig { scheduler, cost, transfers, puller, drafts, hashing }))
    }

    /// Digests only where somebody sees them: in KV events, and in the block explorer.
    pub(super) fn hasher(&self, seed: u64, index: u64) -> RequestBlockHasher {
        let (_, hash_block_size) = self.engine.resolve_kv_cache_block_sizes();
        let lookahead = self.engine.num_hash_lookahead_tokens();
        if !self.engine.enable_kv_cache_events && !self.has_digests {
            return RequestBlockHasher::identity(hash_block_size, lookahead);
        }
        let algo = self.engine.prefix_caching_hash_algo;
        // A process draws its own where no seed is set.
        let mut random = [0; 32];
        random[..8].copy_from_slice(&seed.to_le_bytes());
        random[8..16].copy_from_slice(&index.to_le_bytes());
        let python_hash_seed = self.section.python_hash_seed.as_deref();
        let none_hash = init_none_hash(algo, &resolve_none_hash_seed(algo, python_hash_seed, &random));
        RequestBlockHasher::digests(algo, none_hash, hash_block_size, lookahead)
    }

    fn transfers(&self, config: &TransferSection) -> Transfers {
        let num_gpus = self.section.num_gpus();
        let bytes_per_block = self.kv_cache_size.bytes_per_block;
        let tiers: Vec<TierConfig> = config
            .tiers
            .iter()
            .map(|tier| TierConfig {
                kind: tier.kind,
                capacity_blocks: (tier.size_gib * GIB / (bytes_per_block * u64::from(num_gpus)) as f64)
                    as usize,
                eviction: tier.eviction,
            })
            .collect();
        let link = |tier: &TierSection| Link {
            latency: SimTime::from_secs_f64(tier.latency_us / 1e6),
            read_bytes_per_s: tier.read_gb_per_s * 1e9,
            write_bytes_per_s: tier.write_gb_per_s * 1e9,
        };
        let group = |spec: &KvCacheSpec| TierGroup {
            block_size: self.engine.group_block_size(spec),
            sliding_window: match *spec {
                KvCacheSpec::SlidingWindow { sliding_window, .. } => Some(sliding_window),
                _ => None,
            },
        };
        let groups: Vec<TierGroup> = self.engine.kv_cache_groups.iter().map(group).collect();
        let (_, hash_block_size) = self.engine.resolve_kv_cache_block_sizes();
        let connector = TieredConnector::new(hash_block_size, &groups, &tiers);
        Transfers::new(connector, config.tiers.iter().map(link).collect(), bytes_per_block)
    }
}
