//! Pools that compute prompts and pools that go on from there: from what is typed to the simulation.

use std::cell::RefCell;
use std::rc::Rc;

use super::build::Typed;
use super::cluster_section::{ClusterSection, KvLinkSection};
use super::pool::{Pool, check_count, check_router};
use super::{Scenario, ScenarioError};
use crate::engine::connector::{PullConnector, PullGroup};
use crate::engine::kv_cache::KvCacheSpec;
use crate::simulation::router::{EventSource, RouterConfig};
use crate::simulation::{Disaggregation, PullLink, PullLinks, Puller, Role};
use crate::units::SimTime;
use crate::workload::ConfigError;

/// Positions of the pools with roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    pub prefill: usize,
    pub decode: usize,
}

/// # Errors
/// The first problem, at its place.
pub(super) fn check_roles(
    typed: &Typed,
    cluster: &ClusterSection,
    pools: &[Pool],
) -> Result<(), ScenarioError> {
    let has_roles = pools.iter().any(|pool| pool.role.is_some());
    let (link, router) = (cluster.kv_link.is_some(), cluster.decode_router.is_some());
    for (field, is_given) in [("kv_link", link), ("decode_router", router)] {
        if is_given && !has_roles {
            return Err(typed
                .wrong(&format!("cluster.{field}"), format!("`{field}` without pools that have a role"))
                .hint("give pools with `role: prefill` and `role: decode`, or leave it out"));
        }
    }
    if !has_roles {
        return Ok(());
    }
    for (at, pool) in pools.iter().enumerate() {
        let path = format!("cluster.pools[{at}]");
        if pool.role.is_none() {
            return Err(typed
                .wrong(&path, "a pool without a role beside pools that have one")
                .hint("give it `role: prefill` or `role: decode`"));
        }
        if pool.section.kv_transfer_config.is_some() {
            return Err(typed
                .wrong(&path, "a role and kv_transfer_config: a replica has one connector")
                .hint("leave engine.kv_transfer_config out"));
        }
        let is_read = |spec: &KvCacheSpec| {
            matches!(spec, KvCacheSpec::FullAttention { .. } | KvCacheSpec::SlidingWindow { .. })
        };
        if !pool.engine.kv_cache_groups.iter().all(is_read) {
            return Err(typed
                .wrong(&path, "only blocks of full and sliding-window attention are read from other replicas")
                .hint("leave `role` out, or take a model without other kinds of layers"));
        }
        let first = &pools[0];
        let format = |pool: &Pool| {
            (pool.kv_cache_size.bytes_per_block, pool.engine.block_size, pool.section.tensor_parallel_size)
        };
        if format(pool) != format(first) {
            return Err(typed
                .wrong(&path, "blocks of another size than those of the first pool")
                .hint("give all pools the same block_size, kv_cache_dtype and tensor_parallel_size"));
        }
    }
    for (role, name) in [(Role::Prefill, "prefill"), (Role::Decode, "decode")] {
        if !pools.iter().any(|pool| pool.role == Some(role)) {
            return Err(typed
                .wrong("cluster.pools", format!("there is no pool with `role: {name}`"))
                .hint("give at least one of each role"));
        }
    }
    if let Some(router) = &cluster.decode_router {
        router.validate().map_err(|ConfigError { field, found, expected }| {
            let error =
                typed.wrong(&format!("cluster.decode_router.{field}"), format!("`{field}` is {found}"));
            error.hint(format!("give {expected}"))
        })?;
        if router.endpoints != cluster.router.endpoints {
            return Err(typed
                .wrong("cluster.decode_router.endpoints", "other endpoints than those of `router`")
                .hint("give both routers the same `endpoints`"));
        }
        // Both share the hashes of the replicas.
        if router.reads_events() && *router != cluster.router {
            return Err(typed
                .wrong("cluster.decode_router", "a router that reads KV events unlike `router`")
                .hint("give both routers the same settings: leave decode_router out"));
        }
    }
    let Some(link) = &cluster.kv_link else {
        return Err(typed
            .wrong("cluster", "pools with roles need a link between them")
            .hint("give `kv_link: {gb_per_s: ...}`"));
    };
    for (field, value, range) in [
        ("gb_per_s", link.gb_per_s, 1e-6..=1e6),
        ("latency_us", link.latency_us, 0.0..=1e9),
        ("set_up_us", link.set_up_us, 0.0..=1e9),
        ("kv_lease_duration_s", link.kv_lease_duration_s, 1e-3..=1e6),
    ] {
        if !range.contains(&value) {
            return Err(typed
                .wrong(&format!("cluster.kv_link.{field}"), format!("`{field}` is {value}"))
                .hint(format!("give a number from {} to {}", range.start(), range.end())));
        }
    }
    Ok(())
}

impl Scenario {
    /// The pools that prefill and decode, by their positions, where there is one of each.
    pub fn roles(&self) -> Option<Roles> {
        let of = |role| self.pools.iter().position(|pool| pool.role == Some(role));
        Some(Roles { prefill: of(Role::Prefill)?, decode: of(Role::Decode)? })
    }

    /// An error unless there is just one replica, or just one pool that prefills and one that decodes, of
    /// replicas that stay.
    ///
    /// # Errors
    /// There are others.
    pub(crate) fn check_fleet_of_one_kind(&self, what: &str) -> Result<(), ScenarioError> {
        if self.roles().is_none() {
            return self.check_one_replica(what, "");
        }
        let comes_and_goes = self.file.cluster.as_ref().is_some_and(ClusterSection::has_lifecycle);
        if self.pools.len() == 2 && !comes_and_goes {
            return Ok(());
        }
        Err(self
            .typed
            .wrong("cluster", format!("{what} has one pool that prefills and one that decodes, and no more"))
            .hint("leave other pools, `events` and `autoscaler` out"))
    }

    /// So many replicas that prefill, and so many that decode.
    ///
    /// # Errors
    /// As of a scenario with these pools, and without pools that have roles.
    pub(crate) fn with_roles(
        &self,
        num_prefill: u32,
        num_decode: u32,
        router: &RouterConfig,
    ) -> Result<Self, ScenarioError> {
        let mut fleet = self.clone();
        let roles = self.roles();
        check_router(&self.typed, router)?;
        for (role, count) in
            [(roles.map(|it| it.prefill), num_prefill), (roles.map(|it| it.decode), num_decode)]
        {
            let Some(at) = role else {
                return Err(self.typed.wrong("cluster.pools", "there are no pools with roles"));
            };
            check_count(&self.typed, &format!("cluster.pools[{at}].replicas"), count)?;
            let pool = &mut fleet.pools[at];
            (pool.num_replicas, pool.num_first) = (count, count);
            if let Some(cluster) = &mut fleet.file.cluster {
                cluster.router = router.clone();
                if let Some(section) = cluster.pools.as_mut().and_then(|pools| pools.get_mut(at)) {
                    section.replicas = Some(count);
                }
            }
        }
        Ok(fleet)
    }

    /// The links between the replicas, if they have roles.
    pub(super) fn pull_links(&self) -> Option<Rc<RefCell<PullLinks>>> {
        let KvLinkSection { gb_per_s, latency_us, set_up_us, kv_lease_duration_s, .. } =
            self.file.cluster.as_ref().and_then(|cluster| cluster.kv_link)?;
        let link = PullLink {
            bytes_per_s: gb_per_s * 1e9,
            latency: SimTime::from_secs_f64(latency_us / 1e6),
            set_up: SimTime::from_secs_f64(set_up_us / 1e6),
            lease: SimTime::from_secs_f64(kv_lease_duration_s),
        };
        Some(Rc::new(RefCell::new(PullLinks::new(link, self.num_engines()))))
    }

    /// Who computes prompts and who goes on.
    pub(super) fn disaggregation(
        &self,
        links: Rc<RefCell<PullLinks>>,
        events: Option<EventSource>,
    ) -> Disaggregation {
        let roles = self.pools.iter().flat_map(|pool| {
            std::iter::repeat_n(pool.role.unwrap_or(Role::Decode), pool.num_replicas as usize)
        });
        let cluster = self.file.cluster.as_ref();
        let router =
            cluster.and_then(|cluster| cluster.decode_router.clone()).unwrap_or_else(|| self.router());
        // A stream of its own.
        let events = events.filter(|_| router.reads_events());
        let policy = router.build(self.seed().wrapping_add(1), self.num_endpoints(), events);
        Disaggregation::new(roles.collect(), policy, links)
    }
}

impl Pool {
    /// Of replica number `index`.
    pub(super) fn puller(&self, links: &Rc<RefCell<PullLinks>>, index: usize) -> Puller {
        let connector = PullConnector::new(PullGroup::of(&self.engine));
        Puller::new(connector, Rc::clone(links), index, self.kv_cache_size.bytes_per_block)
    }
}
