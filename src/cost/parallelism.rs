//! How the ranks of a replica share a model, under vLLM's names.

use serde::{Deserialize, Serialize};

/// How tokens travel between data-parallel ranks to their experts and back (`all2all_backend`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum All2AllBackend {
    /// Everybody's tokens to everybody, vLLM's default.
    #[default]
    AllgatherReducescatter,
    /// Each token to the ranks of its experts alone; DeepEP's kernels were not measured, NCCL's
    /// all-to-all stands in.
    DeepepHighThroughput,
    DeepepLowLatency,
}

/// Ranks that share one model. Each number is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    pub tensor_parallel_size: u32,
    pub pipeline_parallel_size: u32,
    /// Ranks of tensor parallelism that share the KV cache of a sequence between them by tokens.
    pub decode_context_parallel_size: u32,
    /// Engines that hold attention and dense layers each for themselves and share the experts. A
    /// step's tokens are those of one of them; the others have as many, for vLLM pads them to the
    /// largest (`coordinate_batch_across_dp` in `v1/worker/dp_utils.py`).
    pub data_parallel_size: u32,
    /// Ranks hold whole experts, each some of them, instead of a slice of every one.
    pub enable_expert_parallel: bool,
    pub all2all_backend: All2AllBackend,
}

impl Parallelism {
    /// Tensor parallelism alone.
    pub const fn tensor(tensor_parallel_size: u32) -> Self {
        Self {
            tensor_parallel_size,
            pipeline_parallel_size: 1,
            decode_context_parallel_size: 1,
            data_parallel_size: 1,
            enable_expert_parallel: false,
            all2all_backend: All2AllBackend::AllgatherReducescatter,
        }
    }

    /// Ranks that share a layer's experts, whole or in slices (`FusedMoEParallelConfig.make`).
    pub fn num_expert_ranks(&self) -> u32 {
        self.tensor_parallel_size.saturating_mul(self.data_parallel_size)
    }

    /// Whether the ranks of an engine split the tokens between attention and experts
    /// (`ParallelConfig.use_sequence_parallel_moe`).
    pub fn uses_sequence_parallel_moe(&self) -> bool {
        self.enable_expert_parallel && self.tensor_parallel_size > 1 && self.data_parallel_size > 1
    }
}
