//! Number formats that have kernels of their own.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::catalog::Dtype;

/// The format of a product's weights and activations, or of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    Bf16,
    /// 8-bit floats with a scale for each tensor, channel or token.
    Fp8,
    /// 8-bit floats with a scale for each block of 128 x 128 weights.
    Fp8Block,
    /// The same through FlashInfer's CUTLASS kernels: experts of Hopper where ranks hold whole ones.
    Fp8BlockCutlass,
    /// 4-bit integers as weights, 16-bit activations.
    Int4,
    Nvfp4,
    /// MXFP4 weights, 16-bit activations, the kernels of gpt-oss.
    Mxfp4,
    /// The same through Marlin's kernels.
    Mxfp4Marlin,
    /// MXFP4 weights, MXFP8 activations.
    Mxfp4Mxfp8,
}

impl Format {
    pub const ALL: [Self; 9] = [
        Self::Bf16,
        Self::Fp8,
        Self::Fp8Block,
        Self::Fp8BlockCutlass,
        Self::Int4,
        Self::Nvfp4,
        Self::Mxfp4,
        Self::Mxfp4Marlin,
        Self::Mxfp4Mxfp8,
    ];

    pub const fn of_kv_cache(dtype: Dtype) -> Self {
        match dtype {
            Dtype::Bf16 | Dtype::Fp32 => Self::Bf16,
            _ => Self::Fp8,
        }
    }

    /// Formats whose dense kernels can stand for `dtype`, the best first.
    pub const fn for_gemm(dtype: Dtype) -> &'static [Self] {
        match dtype {
            Dtype::Fp8 | Dtype::Int8 => &[Self::Fp8, Self::Bf16],
            Dtype::Nvfp4 => &[Self::Nvfp4, Self::Bf16],
            // Expanded to 16 bits on the way.
            Dtype::Bf16 | Dtype::Fp32 | Dtype::Mxfp4 | Dtype::Int4 => &[Self::Bf16],
        }
    }

    /// Formats whose MoE kernels can stand for `dtype`, the best first. 8-bit experts are
    /// block-scaled in the checkpoints that there are. On Hopper vLLM prefers Triton's kernels for slices of
    /// them and FlashInfer's CUTLASS kernels for whole ones, those of expert parallelism
    /// (`fused_moe/oracle/fp8.py`).
    pub const fn for_moe(dtype: Dtype, whole_on_hopper: bool) -> &'static [Self] {
        match dtype {
            Dtype::Bf16 | Dtype::Fp32 => &[Self::Bf16],
            Dtype::Fp8 | Dtype::Int8 if whole_on_hopper => {
                &[Self::Fp8BlockCutlass, Self::Fp8Block, Self::Fp8, Self::Bf16]
            }
            Dtype::Fp8 | Dtype::Int8 => &[Self::Fp8Block, Self::Fp8, Self::Bf16],
            Dtype::Nvfp4 => &[Self::Nvfp4, Self::Bf16],
            Dtype::Mxfp4 => &[Self::Mxfp4, Self::Mxfp4Marlin, Self::Mxfp4Mxfp8, Self::Bf16],
            Dtype::Int4 => &[Self::Int4, Self::Mxfp4Marlin, Self::Mxfp4, Self::Bf16],
        }
    }

    /// How the weights are stored.
    pub const fn weights(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::Bf16,
            Self::Fp8 | Self::Fp8Block | Self::Fp8BlockCutlass => Dtype::Fp8,
            Self::Int4 => Dtype::Int4,
            Self::Nvfp4 => Dtype::Nvfp4,
            Self::Mxfp4 | Self::Mxfp4Marlin | Self::Mxfp4Mxfp8 => Dtype::Mxfp4,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8_block",
            Self::Fp8BlockCutlass => "fp8_block_cutlass",
            Self::Int4 => "int4",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Mxfp4Marlin => "mxfp4_marlin",
            Self::Mxfp4Mxfp8 => "mxfp4_mxfp8",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
