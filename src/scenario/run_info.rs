//! What a report says of a scenario.

use super::Scenario;
use crate::report::{FleetInfo, ReplicaInfo, RunInfo, TraceInfo};
use crate::simulation::Simulation;

impl Scenario {
    /// For the report of a `simulation` of this scenario.
    pub fn run_info(&self, simulation: &Simulation, trace: Option<TraceInfo>) -> RunInfo {
        // Of all kinds of replicas that which hits soonest.
        let shortest_hit = simulation
            .replicas()
            .map(|replica| replica.scheduler().kv_cache_manager().shortest_hit())
            .min_by_key(|hit| hit.prompt_tokens);
        RunInfo {
            name: self.file.name.clone(),
            seed: self.seed(),
            scenario: self.resolved(),
            trace,
            model: self.model.name.clone(),
            gpu: self.gpu.name.to_owned(),
            tensor_parallel_size: self.file.engine.tensor_parallel_size,
            gpus_per_replica: self.file.engine.num_gpus(),
            num_gpu_blocks: self.engine.num_gpu_blocks,
            block_size_tokens: self.engine.block_size,
            enable_prefix_caching: self.engine.enable_prefix_caching,
            num_kv_cache_groups: self.engine.kv_cache_groups.len(),
            shortest_hit: shortest_hit.unwrap_or_default(),
            kv_events: self.engine.enable_kv_cache_events,
            blocks: true,
            tenants: simulation.tenants().to_vec(),
            not_shared_because: self.not_shared_because(),
            caveats: self.caveats(),
            goodput: self.file.goodput,
            fleet: self.fleet_info(),
        }
    }

    /// With several replicas or ranks, or a replica that comes and goes.
    fn fleet_info(&self) -> Option<FleetInfo> {
        let has_ranks = self.pools.iter().any(|pool| pool.section.data_parallel_size > 1);
        let mut replicas: Vec<ReplicaInfo> = Vec::new();
        for pool in &self.pools {
            for _ in 0..pool.num_replicas {
                let replica = replicas.last().map_or(0, |last| last.replica + 1);
                replicas.extend((0..pool.section.data_parallel_size).map(|rank| ReplicaInfo {
                    replica,
                    data_parallel_rank: has_ranks.then_some(rank),
                    pool: pool.name.clone(),
                    role: pool.role,
                    gpu: pool.gpu.name.to_owned(),
                    tensor_parallel_size: pool.section.tensor_parallel_size,
                    num_gpus: pool.section.num_gpus() / pool.section.data_parallel_size,
                    num_gpu_blocks: pool.engine.num_gpu_blocks,
                    block_size_tokens: pool.engine.block_size,
                }));
            }
        }
        let router = self.file.cluster.as_ref().map(|cluster| cluster.router.policy).unwrap_or_default();
        let has_lifecycle = self.file.cluster.as_ref().is_some_and(|cluster| cluster.has_lifecycle());
        (replicas.len() > 1 || has_lifecycle).then(|| FleetInfo {
            router: router.name().to_owned(),
            is_there: has_lifecycle.then(|| self.is_there()),
            replicas,
        })
    }
}
