//! Replicas of several engine cores: from what is typed to what the simulation is told.

use super::Scenario;
use super::ScenarioError;
use super::build::Typed;
use super::engine_section::EngineSection;
use super::pool::Pool;
use crate::cost::{CudaGraphs, CudagraphMode};
use crate::simulation::{DataParallelConfig, Endpoints, LockstepConfig};

/// The most ranks of a replica, and its API servers.
const MAX_RANKS: u32 = 1_024;

/// # Errors
/// The first problem, at its place.
pub(super) fn check_data_parallel(typed: &Typed, section: &EngineSection) -> Result<(), ScenarioError> {
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
    if section.dp_sync_interval == 0 {
        return Err(typed
            .wrong("engine.dp_sync_interval", "`dp_sync_interval` is 0")
            .hint("give a number of steps of 1 or more"));
    }
    Ok(())
}

impl Pool {
    /// Engine cores of all its replicas.
    pub fn num_engines(&self) -> u32 {
        self.num_replicas * self.section.data_parallel_size
    }

    /// The engine cores of a replica, and what shares requests out to them.
    fn data_parallel(&self) -> DataParallelConfig {
        let EngineSection { data_parallel_size, api_server_count, .. } = self.section;
        DataParallelConfig {
            data_parallel_size,
            api_server_count: api_server_count.unwrap_or(data_parallel_size),
            lockstep: self.lockstep(),
        }
    }

    /// Ranks of a mixture-of-experts model run their steps together.
    pub(super) fn lockstep(&self) -> Option<LockstepConfig> {
        let EngineSection { data_parallel_size, dp_sync_interval, .. } = self.section;
        let graphs = self.cuda_graphs();
        (data_parallel_size > 1 && self.model.moe.is_some()).then_some(LockstepConfig {
            dp_sync_interval,
            max_cudagraph_capture_size: graphs.max_capture_size,
            pipeline_parallel_size: self.engine.pipeline_parallel_size,
        })
    }

    /// Which steps are replayed from CUDA graphs; the most tokens are `_set_cudagraph_sizes`' in
    /// `config/vllm.py`.
    pub(super) fn cuda_graphs(&self) -> CudaGraphs {
        let section = &self.section;
        let has_graphs = !section.enforce_eager
            && (section.data_parallel_size == 1 || section.all2all_backend.has_cuda_graphs());
        let mode = if has_graphs { section.cudagraph_mode } else { CudagraphMode::None };
        if mode == CudagraphMode::None {
            return CudaGraphs { mode, max_capture_size: 0 };
        }
        let is_blackwell = self.gpu.compute_capability / 10 == 10;
        let query_len = 1 + self.engine.num_speculative_tokens();
        let of_decodes = self.engine.max_num_seqs.saturating_mul(2 * query_len);
        let max_capture_size = section
            .max_cudagraph_capture_size
            .unwrap_or_else(|| of_decodes.min(if is_blackwell { 1_024 } else { 512 }))
            .min(self.engine.max_num_batched_tokens);
        CudaGraphs { mode, max_capture_size }
    }
}

impl Scenario {
    /// Engine cores of all kinds.
    pub fn num_engines(&self) -> usize {
        self.pools.iter().map(|pool| pool.num_engines() as usize).sum()
    }

    /// For each replica.
    pub(super) fn data_parallel(&self) -> Vec<DataParallelConfig> {
        let of_pool = |pool: &Pool| std::iter::repeat_n(pool.data_parallel(), pool.num_replicas as usize);
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
