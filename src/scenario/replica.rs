//! From a kind of replica to a replica.

use std::cell::RefCell;
use std::rc::Rc;

use super::engine_section::TransferSection;
use super::pool::Pool;
use super::shared_tiers::SharedTiers;
use crate::cost::{BlockHashing, CostModel};
use crate::engine::EngineConfigError;
use crate::engine::connector::{KvConnector, TierConfig, TierGroup, TierPlace, TierStore, TieredConnector};
use crate::engine::hash::{RequestBlockHasher, init_none_hash, resolve_none_hash_seed};
use crate::engine::kv_cache::KvCacheSpec;
use crate::engine::scheduler::Scheduler;
use crate::simulation::{DraftAcceptance, Link, PullLinks, Replica, ReplicaConfig, TierLink, Transfers};
use crate::units::SimTime;

const GIB: f64 = (1_u64 << 30) as f64;

/// What a replica has in common with others, and where it stands among them.
pub(super) struct ReplicaPlace<'a> {
    /// Its number.
    pub index: u64,
    /// Its hasher is a clone of this one.
    pub hasher: Option<&'a RequestBlockHasher>,
    pub links: Option<&'a Rc<RefCell<PullLinks>>>,
    /// Its pool, and the number of its machine in it.
    pub node: (usize, u32),
    pub tiers: &'a mut SharedTiers,
}

impl Pool {
    /// # Errors
    /// Settings that the scheduler refuses.
    pub(super) fn replica(
        &self,
        cost: CostModel,
        seed: u64,
        place: ReplicaPlace<'_>,
    ) -> Result<Replica, EngineConfigError> {
        let ReplicaPlace { index, hasher: shared_hasher, links, node, tiers } = place;
        let config = self.section.kv_transfer_config.as_ref();
        let transfers = config.map(|config| {
            let space = tiers.space(self);
            self.transfers(config, tiers, node, |connector| connector.of_replica(index as u32, space))
        });
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

    /// Each GPU of an engine core has a part of a block.
    pub(super) fn num_ranks(&self) -> u32 {
        self.section.parallelism().num_gpus_per_engine()
    }

    fn transfers(
        &self,
        config: &TransferSection,
        shared: &mut SharedTiers,
        node: (usize, u32),
        of_replica: impl FnOnce(TieredConnector) -> TieredConnector,
    ) -> Transfers {
        let bytes_per_block = self.kv_cache_size.bytes_per_block;
        let all_bytes = (bytes_per_block * u64::from(self.num_ranks())) as f64;
        let (mut tiers, mut links) = (Vec::new(), Vec::new());
        for tier in &config.tiers {
            // Each engine core has a part of what is not shared.
            let share = if tier.shared.is_some() { 1.0 } else { f64::from(self.section.data_parallel_size) };
            let config = TierConfig {
                kind: tier.kind,
                capacity_blocks: (tier.size_gib * GIB / all_bytes / share) as usize,
                eviction: tier.eviction,
            };
            let (store, end) = shared.store(tier, config, node).unzip();
            let store = store.unwrap_or_else(|| TierStore::new(config, None));
            tiers.push(TierPlace { store, write_through: tier.write_through });
            let link = Link {
                latency: SimTime::from_secs_f64(tier.latency_us / 1e6),
                read_bytes_per_s: tier.read_gb_per_s * 1e9,
                write_bytes_per_s: tier.write_gb_per_s * 1e9,
            };
            links.push(TierLink { link, store: end });
        }
        let group = |spec: &KvCacheSpec| TierGroup::new(spec, self.engine.group_block_size(spec));
        let groups: Vec<TierGroup> = self.engine.kv_cache_groups.iter().map(group).collect();
        let (_, hash_block_size) = self.engine.resolve_kv_cache_block_sizes();
        let connector = of_replica(TieredConnector::new(hash_block_size, &groups, tiers));
        Transfers::new(connector, links, bytes_per_block, self.num_ranks())
    }
}
