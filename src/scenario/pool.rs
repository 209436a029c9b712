//! Kinds of replicas: what the scenario says, with what a pool changes in it.

use serde::Deserialize;

use super::ScenarioError;
use super::build::Typed;
use super::check::check;
use super::cluster_section::PoolSection;
use super::deserialize::NodeDeserializer;
use super::disaggregation::check_roles;
use super::engine_section::EngineSection;
use super::file::{CostSection, ScenarioFile};
use super::lifecycle::check_lifecycle;
use super::shared_tiers::check_shared_tiers;
use super::tree::{Node, Value};
use crate::catalog::{Gpu, KvCacheSize, Model};
use crate::cost::{BlockHashing, ConstantCost, CostModel, HashingLaw, Profile, Roofline};
use crate::engine::EngineConfig;
use crate::simulation::router::RouterConfig;
use crate::simulation::{AutoscalerConfig, Role};
use crate::workload::ConfigError;

/// The most replicas of a simulation.
const MAX_REPLICAS: u32 = 10_000;

/// Replicas of one kind, which has been understood and checked.
#[derive(Clone, Debug)]
pub struct Pool {
    /// `None` when the scenario names no kinds.
    pub name: Option<String>,
    /// All that there can be.
    pub num_replicas: u32,
    /// Those that are there from the start.
    pub num_first: u32,
    pub autoscaler: Option<AutoscalerConfig>,
    /// What its replicas do, if not everything.
    pub role: Option<Role>,
    /// So many, in order, are on one machine.
    pub replicas_per_node: Option<u32>,
    pub section: EngineSection,
    pub cost: Option<CostSection>,
    /// As it is served.
    pub model: Model,
    pub gpu: &'static Gpu,
    pub engine: EngineConfig,
    /// How the GPU's memory is used, if nothing overrides the number of blocks.
    pub kv_cache_size: KvCacheSize,
    /// How fast the GPU is, unless the cost is constant.
    pub profile: Profile,
    /// Hash blocks as vLLM does, although no KV event shows it.
    pub(super) has_digests: bool,
    /// How fast the host hashes blocks.
    pub hashing: HashingLaw,
}

impl Pool {
    fn new(
        name: Option<String>,
        num_replicas: u32,
        typed: &Typed,
        file: &ScenarioFile,
    ) -> Result<Self, ScenarioError> {
        let checked = check(typed, file)?;
        Ok(Self {
            name,
            num_replicas,
            num_first: num_replicas,
            autoscaler: None,
            role: None,
            replicas_per_node: None,
            section: file.engine.clone(),
            cost: file.cost.clone(),
            model: checked.model,
            gpu: checked.gpu,
            engine: checked.engine,
            kv_cache_size: checked.kv_cache_size,
            profile: checked.profile,
            has_digests: false,
            hashing: checked.hashing,
        })
    }

    pub(super) fn block_hashing(&self, hash_block_size: u32) -> BlockHashing {
        BlockHashing::new(&self.hashing, hash_block_size)
    }

    /// The cost that the scenario asks for.
    pub fn cost(&self) -> CostModel {
        match &self.cost {
            Some(CostSection::Constant(constant)) => CostModel::Constant(ConstantCost {
                step_ns: constant.step_ns,
                per_token_ns: constant.per_token_ns,
            }),
            Some(CostSection::Profile(_)) | None => self.cost_with(self.profile.clone()),
        }
    }

    /// The cost with a profile of its GPU.
    pub fn cost_with(&self, mut profile: Profile) -> CostModel {
        if !self.engine.async_scheduling {
            profile.host = profile.host.synchronous();
        }
        let (parallelism, drafts) = (self.section.parallelism(), self.section.drafts());
        let graphs = self.cuda_graphs();
        CostModel::Roofline(Box::new(Roofline::new(
            &self.model,
            self.gpu,
            &parallelism,
            graphs,
            drafts,
            profile,
        )))
    }
}

/// The scenario's own kind of replica, and those that it has: one or more.
///
/// # Errors
/// The first problem, at its place.
pub(super) fn pools(typed: &Typed, file: &ScenarioFile) -> Result<(Pool, Vec<Pool>), ScenarioError> {
    let own = Pool::new(None, 1, typed, file)?;
    let Some(cluster) = &file.cluster else { return Ok((own.clone(), vec![own])) };
    check_router(typed, &cluster.router)?;
    let pools = match (&cluster.pools, cluster.replicas) {
        (Some(_), Some(_)) => {
            return Err(typed
                .wrong("cluster.replicas", "there are both `replicas` and `pools`")
                .hint("leave `replicas` out, and give it in each pool"));
        }
        (None, replicas) => {
            let num_replicas = match &cluster.autoscaler {
                Some(autoscaler) => {
                    check_count(typed, "cluster.autoscaler.max_replicas", autoscaler.max_replicas)?
                }
                None => check_count(typed, "cluster.replicas", replicas.unwrap_or(1))?,
            };
            let autoscaler = cluster.autoscaler.clone();
            let least = autoscaler.as_ref().map(|autoscaler| autoscaler.min_replicas);
            vec![Pool {
                num_replicas,
                num_first: replicas.or(least).unwrap_or(num_replicas),
                autoscaler,
                replicas_per_node: cluster.replicas_per_node,
                ..own.clone()
            }]
        }
        (Some(sections), None) => {
            if sections.is_empty() {
                let error = typed.wrong("cluster.pools", "there is no pool");
                return Err(error.hint("give at least one, or `replicas` instead"));
            }
            let pools = sections.iter().enumerate();
            let mut pools: Vec<Pool> =
                pools.map(|(at, section)| pool(typed, sections, at, section)).collect::<Result<_, _>>()?;
            let failure_policy = cluster.kv_link.map(|link| link.kv_load_failure_policy).unwrap_or_default();
            for pool in &mut pools {
                pool.replicas_per_node = pool.replicas_per_node.or(cluster.replicas_per_node);
                if pool.role.is_some() && pool.engine.kv_connector.is_none() {
                    pool.engine.kv_connector = Some(failure_policy);
                }
            }
            pools
        }
    };
    let sum = pools.iter().map(|pool| u64::from(pool.num_replicas)).sum::<u64>();
    let engines = |pool: &Pool| u64::from(pool.num_replicas) * u64::from(pool.section.data_parallel_size);
    let num_engines = pools.iter().map(engines).sum::<u64>();
    if num_engines > u64::from(MAX_REPLICAS) {
        let of = if num_engines > sum { " with their data-parallel ranks" } else { "" };
        return Err(typed
            .wrong("cluster.pools", format!("the pools have {num_engines} replicas{of}"))
            .hint(format!("give at most {MAX_REPLICAS} in all")));
    }
    check_shared_tiers(typed, cluster, &pools)?;
    check_lifecycle(typed, cluster, &pools)?;
    check_roles(typed, cluster, &pools)?;
    Ok((own, pools))
}

fn pool(
    typed: &Typed,
    sections: &[PoolSection],
    at: usize,
    section: &PoolSection,
) -> Result<Pool, ScenarioError> {
    let path = format!("cluster.pools[{at}]");
    if section.name.is_empty() {
        return Err(typed.wrong(&format!("{path}.name"), "a pool without a name").hint("give it one"));
    }
    if sections[..at].iter().any(|other| other.name == section.name) {
        return Err(typed
            .wrong(&format!("{path}.name"), format!("there are two pools `{}`", section.name))
            .hint("give each a name of its own"));
    }
    let num_replicas = match (&section.autoscaler, section.replicas) {
        (Some(autoscaler), _) => {
            check_count(typed, &format!("{path}.autoscaler.max_replicas"), autoscaler.max_replicas)?
        }
        (None, Some(replicas)) => check_count(typed, &format!("{path}.replicas"), replicas)?,
        (None, None) => {
            return Err(typed
                .wrong(&path, "a pool without `replicas`")
                .hint("say how many there are, or give it an autoscaler"));
        }
    };
    let in_file = |error: super::FieldError| error.in_file(&typed.source.path);
    let tree = changed(&typed.tree, at);
    let file = ScenarioFile::deserialize(NodeDeserializer::new(&tree)).map_err(in_file)?;
    let typed = Typed { source: typed.source.clone(), tree };
    let mut pool = Pool::new(Some(section.name.clone()), num_replicas, &typed, &file)?;
    (pool.role, pool.replicas_per_node) = (section.role, section.replicas_per_node);
    if let Some(autoscaler) = &section.autoscaler {
        pool.num_first = section.replicas.unwrap_or(autoscaler.min_replicas);
        pool.autoscaler = Some(autoscaler.clone());
    }
    Ok(pool)
}

/// The settings of a router, wherever they come from.
pub(super) fn check_router(typed: &Typed, router: &RouterConfig) -> Result<(), ScenarioError> {
    router.validate().map_err(|ConfigError { field, found, expected }| {
        let error = typed.wrong(&format!("cluster.router.{field}"), format!("`{field}` is {found}"));
        error.hint(format!("give {expected}"))
    })
}

pub(super) fn check_count(typed: &Typed, field: &str, count: u32) -> Result<u32, ScenarioError> {
    if (1..=MAX_REPLICAS).contains(&count) {
        return Ok(count);
    }
    Err(typed.wrong(field, format!("`replicas` is {count}")).hint(format!("give 1 to {MAX_REPLICAS}")))
}

/// The scenario with what a pool changes in it. Values keep the place where they were typed, so a
/// mistake in a pool is reported there.
fn changed(scenario: &Node, pool: usize) -> Node {
    let mut tree = scenario.clone();
    let sections = tree.get("cluster").and_then(|cluster| cluster.get("pools"));
    let Some(Value::List(pools)) = sections.map(|node| &node.value) else { return tree };
    let pool = pools[pool].clone();
    for name in ["gpu", "engine", "cost"] {
        if let Some(node) = pool.get(name)
            && node.value != Value::Null
        {
            // A cost is replaced as a whole: it is one kind or another.
            tree.overlay(name, node, name == "engine");
        }
    }
    tree.remove("cluster");
    tree
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::scenario::{Scenario, Source};

    #[test]
    fn a_synchronous_step_waits_for_all_that_the_host_does() {
        for (async_scheduling, expected_ns) in
            [(true, 100_000 + 10 * 2_000), (false, 3_000_000 + 10 * 50_000)]
        {
            let text = format!(
                "{{name: sync, model: Qwen/Qwen3-8B, gpu: H100, engine: {{async_scheduling: {async_scheduling}}}, \
                 workload: {{trace: {{path: unused, format: mooncake}}}}}}"
            );
            let scenario =
                Scenario::load(Source { path: PathBuf::from("sync.yaml"), text, ..Source::default() })
                    .unwrap();
            let pool = &scenario.pools[0];
            let mut profile = pool.profile.clone();
            let host = &mut profile.host;
            (host.host_step_us, host.host_request_us) = (100.0, 2.0);
            (host.sync_step_us, host.sync_request_us) = (3_000.0, 50.0);
            assert_eq!(pool.cost_with(profile).host_ns(10), expected_ns);
        }
    }
}
