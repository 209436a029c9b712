//! What a report says of a scenario.

use super::Scenario;
use crate::report::{RunInfo, TraceInfo};

impl Scenario {
    /// For the report of a simulation of this scenario, whose workload has these `tenants`.
    pub fn run_info(&self, tenants: &[String], trace: Option<TraceInfo>) -> RunInfo {
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
            kv_events: self.engine.enable_kv_cache_events,
            tenants: tenants.to_vec(),
        }
    }
}
