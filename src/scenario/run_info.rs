//! What a report says of a scenario.

use super::Scenario;
use crate::report::{RunInfo, TraceInfo};
use crate::simulation::Simulation;

impl Scenario {
    /// For the report of a `simulation` of this scenario.
    pub fn run_info(&self, simulation: &Simulation, trace: Option<TraceInfo>) -> RunInfo {
        RunInfo {
            name: self.file.name.clone(),
            seed: self.seed(),
            scenario: self.resolved(),
            trace,
            model: self.model.name.clone(),
            gpu: self.gpu.name.to_owned(),
            tensor_parallel_size: self.file.engine.tensor_parallel_size,
            num_gpu_blocks: self.engine.num_gpu_blocks,
            block_size_tokens: self.engine.block_size,
            enable_prefix_caching: self.engine.enable_prefix_caching,
            num_kv_cache_groups: self.engine.kv_cache_groups.len(),
            shortest_hit: simulation.replica().scheduler().kv_cache_manager().shortest_hit(),
            kv_events: self.engine.enable_kv_cache_events,
            tenants: simulation.tenants().to_vec(),
        }
    }
}
