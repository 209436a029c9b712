//! Tiers that replicas have in common: from what is typed to their stores.

use std::cell::Cell;
use std::rc::Rc;

use super::build::Typed;
use super::cluster_section::ClusterSection;
use super::engine_section::TierSection;
use super::pool::Pool;
use super::{Scenario, ScenarioError};
use crate::catalog::Dtype;
use crate::engine::connector::{HashSpace, SharedBy, TierConfig, TierKind, TierStore};
use crate::engine::hash::{PrefixCachingHashAlgo, RequestBlockHasher, common_none_hash_seed};
use crate::engine::kv_cache::KvCacheSpec;
use crate::simulation::StoreLink;

/// # Errors
/// The first problem, at its place.
pub(super) fn check_shared_tiers(
    typed: &Typed,
    cluster: &ClusterSection,
    pools: &[Pool],
) -> Result<(), ScenarioError> {
    let counts = cluster.pools.iter().flatten().enumerate();
    let counts = counts.map(|(at, pool)| (format!("cluster.pools[{at}]."), pool.replicas_per_node));
    let of_cluster = ("cluster.".to_owned(), cluster.replicas_per_node);
    if let Some((path, _)) = std::iter::once(of_cluster).chain(counts).find(|(_, count)| *count == Some(0)) {
        return Err(typed
            .wrong(&format!("{path}replicas_per_node"), "`replicas_per_node` is 0")
            .hint("give 1 or more"));
    }
    let has_node_tiers = |pool: &&Pool| pool.tiers().iter().any(|tier| tier.shared == Some(SharedBy::Node));
    if pools.iter().filter(has_node_tiers).any(|pool| pool.replicas_per_node.is_none()) {
        return Err(typed
            .wrong("cluster", "tiers that the replicas of a node share, and nothing says who is on a node")
            .hint("give `replicas_per_node` in `cluster` or in the pool"));
    }
    let of_cluster = |pool: &Pool, at: usize| {
        let tier = pool.tiers().get(at).copied().filter(|tier| tier.shared == Some(SharedBy::Cluster));
        tier.map(|tier| (at, tier, pool.kv_cache_size.bytes_per_block * u64::from(pool.num_ranks())))
    };
    let mut seen: Vec<(TierSection, u64)> = Vec::new();
    for (at, pool) in pools.iter().enumerate() {
        let tiers = (0..pool.tiers().len()).filter_map(|tier| of_cluster(pool, tier));
        for (place, tier, bytes) in tiers {
            let Some((other, other_bytes)) = seen.iter().find(|(other, _)| other.kind == tier.kind) else {
                seen.push((tier, bytes));
                continue;
            };
            let of_store = |tier: &TierSection| {
                (tier.size_gib, tier.eviction, tier.total_read_gb_per_s, tier.total_write_gb_per_s)
            };
            let path = format!("cluster.pools[{at}].engine.kv_transfer_config.tiers[{place}]");
            if of_store(other) != of_store(&tier) {
                return Err(typed
                    .wrong(&path, "a store that all replicas share, unlike in a pool before")
                    .hint("give size_gib, eviction, total_read_gb_per_s and total_write_gb_per_s as there"));
            }
            if *other_bytes != bytes {
                return Err(typed
                    .wrong(&path, "blocks of another size than those of a pool that shares the store")
                    .hint("give these pools the same block_size, kv_cache_dtype and tensor_parallel_size"));
            }
        }
    }
    Ok(())
}

/// Whose blocks in a shared store are the same: equal exactly when the keys of equal blocks are.
#[derive(Clone, Debug, PartialEq)]
struct KeyFormat {
    algo: PrefixCachingHashAlgo,
    /// `None` when each process draws its own.
    seed: Option<String>,
    hash_block_size: u32,
    num_lookahead_tokens: u32,
    weight_dtype: Dtype,
    kv_cache_dtype: Dtype,
    tensor_parallel_size: u32,
    groups: Vec<KvCacheSpec>,
}

impl KeyFormat {
    fn of(pool: &Pool) -> Self {
        let engine = &pool.engine;
        let algo = engine.prefix_caching_hash_algo;
        Self {
            algo,
            seed: common_none_hash_seed(algo, pool.section.python_hash_seed.as_deref()).map(str::to_owned),
            hash_block_size: engine.resolve_kv_cache_block_sizes().1,
            num_lookahead_tokens: engine.num_hash_lookahead_tokens(),
            weight_dtype: pool.model.weight_dtype,
            kv_cache_dtype: pool.model.kv_cache_dtype,
            tensor_parallel_size: pool.section.tensor_parallel_size,
            groups: engine.kv_cache_groups.clone(),
        }
    }

    /// The settings that differ, and what to do.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let differences = [
            (
                self.algo != other.algo,
                "they hash with different algorithms; set prefix_caching_hash_algo alike",
            ),
            (self.seed != other.seed, "their hashes begin with different seeds; set python_hash_seed alike"),
            (
                self.hash_block_size != other.hash_block_size,
                "they hash blocks of different sizes; set block_size and prefix_match_unit alike",
            ),
            (
                self.num_lookahead_tokens != other.num_lookahead_tokens,
                "the hashes of one cover the token after each block (EAGLE); set \
                 disable_lookahead_block_hashes",
            ),
            (self.weight_dtype != other.weight_dtype, "their weights differ; set quantization alike"),
            (
                self.kv_cache_dtype != other.kv_cache_dtype,
                "their blocks are of different formats; set kv_cache_dtype alike",
            ),
            (
                self.tensor_parallel_size != other.tensor_parallel_size || self.groups != other.groups,
                "their blocks are cut differently; set tensor_parallel_size and kv_cache_groups alike",
            ),
        ];
        differences.into_iter().find_map(|(differs, text)| differs.then_some(text))
    }
}

/// The stores of one simulation, and who has the same keys in them.
pub(super) struct SharedTiers {
    stores: Vec<(StoreName, TierStore, StoreLink)>,
    formats: Vec<(KeyFormat, RequestBlockHasher)>,
    num_spaces: Rc<Cell<u32>>,
}

/// One store for all, or one for each node of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoreName {
    kind: TierKind,
    node: Option<(usize, u32)>,
}

impl SharedTiers {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let mut formats: Vec<(KeyFormat, RequestBlockHasher)> = Vec::new();
        // Digests for all of a format, if one of them shows them.
        let mut pools: Vec<&Pool> = scenario.pools.iter().filter(|pool| pool.shares_tiers()).collect();
        pools.sort_by_key(|pool| !pool.engine.enable_kv_cache_events);
        for pool in pools {
            let format = KeyFormat::of(pool);
            if format.seed.is_some() && formats.iter().all(|(other, _)| *other != format) {
                formats.push((format, pool.hasher(scenario.seed(), 0)));
            }
        }
        let num_spaces = Rc::new(Cell::new(formats.len() as u32));
        Self { stores: Vec::new(), formats, num_spaces }
    }

    fn format(&self, pool: &Pool) -> Option<usize> {
        let format = KeyFormat::of(pool);
        self.formats.iter().position(|(other, _)| *other == format)
    }

    /// The hasher that a pool's replicas have in common with others.
    pub(super) fn hasher(&self, pool: &Pool) -> Option<&RequestBlockHasher> {
        if !pool.shares_tiers() {
            return None;
        }
        self.format(pool).map(|format| &self.formats[format].1)
    }

    /// Of a new replica of a pool.
    pub(super) fn space(&self, pool: &Pool) -> HashSpace {
        match self.format(pool) {
            Some(format) => HashSpace::agreed(format as u32),
            None => HashSpace::drawn(&self.num_spaces),
        }
    }

    /// The store of a tier for a replica on a node of a pool; `None` for one of its own.
    pub(super) fn store(
        &mut self,
        tier: &TierSection,
        config: TierConfig,
        node: (usize, u32),
    ) -> Option<(TierStore, StoreLink)> {
        let shared = tier.shared?;
        let name = StoreName { kind: tier.kind, node: (shared == SharedBy::Node).then_some(node) };
        if let Some((_, store, link)) = self.stores.iter().find(|(other, ..)| *other == name) {
            return Some((store.clone(), link.clone()));
        }
        let bytes_per_s = |total: Option<f64>| total.unwrap_or(f64::INFINITY) * 1e9;
        let store = TierStore::new(config, Some(shared));
        let link =
            StoreLink::new(bytes_per_s(tier.total_read_gb_per_s), bytes_per_s(tier.total_write_gb_per_s));
        self.stores.push((name, store.clone(), link.clone()));
        Some((store, link))
    }
}

impl Pool {
    pub(super) fn tiers(&self) -> &[TierSection] {
        self.section.kv_transfer_config.as_ref().map(|config| config.tiers.as_slice()).unwrap_or_default()
    }

    pub(super) fn shares_tiers(&self) -> bool {
        self.tiers().iter().any(|tier| tier.shared.is_some())
    }
}

impl Scenario {
    /// Why replicas that share tiers do not hit what others stored there, if that is so.
    pub(super) fn not_shared_because(&self) -> Option<String> {
        let sharing: Vec<&Pool> = self.pools.iter().filter(|pool| pool.shares_tiers()).collect();
        let formats: Vec<KeyFormat> = sharing.iter().map(|pool| KeyFormat::of(pool)).collect();
        if let Some(own) = formats.iter().find(|format| format.seed.is_none()) {
            return Some(format!(
                "with {} each process draws a seed of its own, so no two have the same hashes; set \
                 python_hash_seed",
                own.algo
            ));
        }
        let is_of_cluster =
            |pool: &Pool| pool.tiers().iter().any(|tier| tier.shared == Some(SharedBy::Cluster));
        let mut of_cluster = sharing.iter().zip(&formats).filter(|(pool, _)| is_of_cluster(pool));
        let (first, format) = of_cluster.next()?;
        of_cluster.find_map(|(pool, other)| {
            let name = |pool: &Pool| pool.name.clone().unwrap_or_default();
            let difference = format.difference(other)?;
            Some(format!("pools `{}` and `{}`: {difference}", name(first), name(pool)))
        })
    }
}
