//! How the ranks of a replica share a model, under vLLM's names.

use serde::{Deserialize, Serialize};

use super::router::RouterKernels;

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

/// Tokens of a step, where several engine cores run theirs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepTokens {
    /// Of the engine core whose step it is, with its padding.
    pub own: u32,
    /// Of that which has most.
    pub most: u32,
    /// Of all.
    pub all: u32,
}

impl StepTokens {
    /// All of so many engine cores have as many.
    pub const fn alike(own: u32, num_engines: u32) -> Self {
        Self { own, most: own, all: own.saturating_mul(num_engines) }
    }
}

/// Ranks that share one model. Each number is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    pub tensor_parallel_size: u32,
    pub pipeline_parallel_size: u32,
    /// Ranks of tensor parallelism that share the KV cache of a sequence between them by tokens.
    pub decode_context_parallel_size: u32,
    /// Engine cores that hold attention and dense layers each for themselves and share the experts.
    pub data_parallel_size: u32,
    /// Ranks hold whole experts, each some of them, instead of a slice of every one.
    pub enable_expert_parallel: bool,
    pub all2all_backend: All2AllBackend,
    /// Small all-reduces and the norms behind them are one kernel (`pass_config.fuse_allreduce_rms`).
    pub fuse_allreduce_rms: bool,
    pub router: RouterKernels,
}

impl All2AllBackend {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllgatherReducescatter => "allgather_reducescatter",
            Self::DeepepHighThroughput => "deepep_high_throughput",
            Self::DeepepLowLatency => "deepep_low_latency",
        }
    }

    /// vLLM runs without CUDA graphs with it (`CompilationConfig.set_splitting_ops_for_v1`).
    pub const fn has_cuda_graphs(self) -> bool {
        !matches!(self, Self::DeepepHighThroughput)
    }
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
            fuse_allreduce_rms: true,
            router: RouterKernels { plain_product: false, separate_choice: false },
        }
    }

    /// Of a replica, over all its ranks.
    pub fn num_gpus(&self) -> u32 {
        self.num_gpus_per_engine().saturating_mul(self.data_parallel_size)
    }

    /// Of one engine core.
    pub fn num_gpus_per_engine(&self) -> u32 {
        self.tensor_parallel_size.saturating_mul(self.pipeline_parallel_size)
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
