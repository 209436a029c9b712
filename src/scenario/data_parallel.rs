//! Replicas of several engine cores: from what is typed to what the simulation is told.

use super::Scenario;
use super::ScenarioError;
use super::build::Typed;
use super::engine_section::EngineSection;
use super::pool::Pool;
use crate::catalog::Model;
use crate::simulation::{DataParallelConfig, Endpoints};

/// The most ranks of a replica, and its API servers.
const MAX_RANKS: u32 = 1_024;

/// # Errors
/// The first problem, at its place.
pub(super) fn check_data_parallel(
    typed: &Typed,
    section: &EngineSection,
    model: &Model,
) -> Result<(), ScenarioError> {
    for (field, count) in [
        ("data_parallel_size", section.data_parallel_size),
        ("api_server_count", section.api_server_count.unwrap_or(1)),
    ] {
        if !(1..=MAX_RANKS).contains(&count) {
            return Err(typed
                .wrong(&format!("engine.{field}"), format!("`{field}` is {count}"))
                .hint(format!("give 1 to {MAX_RANKS}")));
        }
    }
    if section.data_parallel_size > 1 && model.moe.is_some() {
        return Err(typed
            .wrong("engine.data_parallel_size", "ranks of a mixture-of-experts model are not simulated")
            .hint("give tensor_parallel_size instead"));
    }
    Ok(())
}

impl Pool {
    /// Engine cores of all its replicas.
    pub(super) fn num_engines(&self) -> u32 {
        self.num_replicas * self.section.data_parallel_size
    }
}

impl Scenario {
    /// Engine cores of all kinds.
    pub fn num_engines(&self) -> usize {
        self.pools.iter().map(|pool| pool.num_engines() as usize).sum()
    }

    /// For each replica.
    pub(super) fn data_parallel(&self) -> Vec<DataParallelConfig> {
        let of_pool =
            |pool: &Pool| std::iter::repeat_n(pool.section.data_parallel(), pool.num_replicas as usize);
        self.pools.iter().flat_map(of_pool).collect()
    }

    /// For each engine core what the router knows it as.
    pub(super) fn endpoint_of(&self) -> Vec<usize> {
        match self.router().endpoints {
            Endpoints::Ranks => (0..self.num_engines()).collect(),
            Endpoints::Replicas => {
                let replicas = self.data_parallel().into_iter().enumerate();
                let ranks = replicas.flat_map(|(replica, config)| {
                    std::iter::repeat_n(replica, config.data_parallel_size as usize)
                });
                ranks.collect()
            }
        }
    }

    pub(super) fn num_endpoints(&self) -> usize {
        self.endpoint_of().last().map_or(0, |last| last + 1)
    }
}
