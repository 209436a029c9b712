//! The fitted numbers of the cost model: one set per GPU, replaced by what `calibrate` measures.

use serde::{Deserialize, Serialize};

pub use super::host::HostCoefficients;
use crate::catalog::{Dtype, Gpu};

/// How the cost model deviates from one GPU's datasheet. Times are in microseconds, efficiencies are
/// fractions of the vendor's peak.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// A name of the catalogue.
    pub gpu: String,
    /// Where the timings behind the numbers come from, and which numbers were borrowed.
    pub source: String,
    /// The largest step that was measured.
    pub max_num_tokens: u32,
    /// The longest context that was measured.
    pub max_context_tokens: u32,
    pub gemm: PerFormat<GemmCoefficients>,
    pub decode_attention: PerFormat<DecodeAttentionCoefficients>,
    pub prefill_attention: PrefillAttentionCoefficients,
    /// For kernels that give up packing query heads when a batch holds a prefill (FlashAttention 2).
    /// Without it a mixed batch costs the sum of its parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_attention: Option<MixedAttentionCoefficients>,
    pub moe: PerFormat<MoeCoefficients>,
    pub all_reduce: AllReduceCoefficients,
    pub elementwise: ElementwiseCoefficients,
    pub sampler: SamplerCoefficients,
    pub host: HostCoefficients,
}

/// One fit per number format that has its own kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerFormat<T> {
    pub bf16: T,
    /// 8-bit floats and integers.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub fp8: Option<T>,
    /// 4-bit floats that tensor cores multiply as they are.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub fp4: Option<T>,
    /// 4-bit weights, 16-bit activations.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub w4a16: Option<T>,
}

fn none<T>() -> Option<T> {
    None
}

impl<T> PerFormat<T> {
    /// The fit for `dtype`, or the 16-bit one where none was measured.
    pub fn get(&self, dtype: Dtype) -> &T {
        self.measured(dtype).unwrap_or(&self.bf16)
    }

    /// The fit for `dtype` if it was measured.
    pub fn measured(&self, dtype: Dtype) -> Option<&T> {
        match dtype {
            Dtype::Bf16 | Dtype::Fp32 => Some(&self.bf16),
            Dtype::Fp8 | Dtype::Int8 => self.fp8.as_ref(),
            Dtype::Nvfp4 => self.fp4.as_ref(),
            Dtype::Mxfp4 | Dtype::Int4 => self.w4a16.as_ref(),
        }
    }
}

/// Error against timings: of held-out rows for what was fitted elsewhere, of all rows for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitError {
    pub median_percent: f64,
    pub p90_percent: f64,
}

/// `t0 + pnorm(compute, memory) + quantisation` (see `gemm`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GemmCoefficients {
    pub t0_us: f64,
    pub compute_efficiency: f64,
    pub memory_efficiency: f64,
    pub p: f64,
    /// Tile padding and pipeline fill, in rows, columns and inner steps.
    pub pad_m: f64,
    pub pad_n: f64,
    pub pad_k: f64,
    pub fixed_bytes: f64,
    /// Efficiency of the kernel that quantises activations, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantisation_efficiency: Option<f64>,
    pub fit_error: Option<FitError>,
}

/// See `decode_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeAttentionCoefficients {
    /// Cache write, attention and combination of the splits.
    pub t0_us: f64,
    pub memory_efficiency: f64,
    /// Per sequence and KV head on one SM.
    pub head_us: f64,
    pub p: f64,
    /// Loss of bandwidth while there are few splits to share.
    pub split_penalty: f64,
    /// Per 1000 tokens of context, up to 4096.
    pub length_us: f64,
    pub fit_error: Option<FitError>,
}

/// See `prefill_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefillAttentionCoefficients {
    Tiles128(TilesCoefficients),
    Waves64(WavesCoefficients),
}

/// 128-row tiles that keep every SM busy (FlashAttention 3 and newer, and 2 on A100 and L40S).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TilesCoefficients {
    pub t0_us: f64,
    pub compute_efficiency: f64,
    pub memory_efficiency: f64,
    pub p: f64,
    /// Share of the longest tile that nothing overlaps.
    pub tail: f64,
    pub pad_tokens: f64,
    pub tile_us: f64,
    pub memory_p: f64,
    pub fit_error: Option<FitError>,
}

/// 64-row tiles in whole waves (FlashAttention 2 on consumer Ada and Blackwell).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WavesCoefficients {
    pub t0_us: f64,
    /// Nanoseconds per token of context for a head of 128.
    pub token_ns: f64,
    pub tile_us: f64,
    pub memory_efficiency: f64,
    pub p: f64,
    pub fit_error: Option<FitError>,
}

/// See `mixed_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixedAttentionCoefficients {
    /// Nanoseconds per token of context for a head of 128.
    pub token_ns: f64,
    pub tile_us: f64,
    pub memory_efficiency: f64,
    pub p: f64,
    pub fit_error: Option<FitError>,
}

/// See `moe`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoeCoefficients {
    pub t0_us: f64,
    pub compute_efficiency: f64,
    /// Above 1 where fewer experts are hit than independent choices would.
    pub memory_efficiency: f64,
    pub p: f64,
    pub fit_error: Option<FitError>,
}

/// See `all_reduce`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllReduceCoefficients {
    Nvlink(NvlinkCoefficients),
    /// One law per number of GPUs: over PCIe path and algorithm change with it.
    Pcie(Vec<PcieCoefficients>),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvlinkCoefficients {
    pub t0_us: f64,
    /// Per rank beyond the first.
    pub rank_us: f64,
    pub efficiency: f64,
    pub fit_error: Option<FitError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcieCoefficients {
    pub num_gpus: u32,
    pub t0_us: f64,
    /// Message bytes over time.
    pub gigabytes_per_s: f64,
}

/// See `elementwise`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElementwiseCoefficients {
    pub t0_us: f64,
    pub memory_efficiency: f64,
    /// How much faster than memory the L2 is.
    pub l2_speedup: f64,
}

/// `t0` and so many passes over the logits in 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SamplerCoefficients {
    pub t0_us: f64,
    pub passes: f64,
}

/// No or unreadable coefficients.
#[derive(Debug, thiserror::Error)]
pub enum CoefficientsError {
    #[error("no cost coefficients for the GPU {gpu}; calibrate it, or use one of: {}", known.join(", "))]
    UnknownGpu { gpu: String, known: Vec<&'static str> },
    #[error("cost coefficients: line {line}, column {column}: {source}")]
    Json { line: usize, column: usize, source: serde_json::Error },
}

static BUILT_IN: [(&str, &str); 7] = [
    ("A100-80G", include_str!("coefficients/a100-80g.json")),
    ("H100-SXM", include_str!("coefficients/h100-sxm.json")),
    ("H200", include_str!("coefficients/h200.json")),
    ("B200", include_str!("coefficients/b200.json")),
    ("L40S", include_str!("coefficients/l40s.json")),
    ("RTX-4090", include_str!("coefficients/rtx-4090.json")),
    ("RTX-PRO-6000", include_str!("coefficients/rtx-pro-6000.json")),
];

/// GPUs without timings, and the measured one of the same architecture.
static RELATIVES: [(&str, &str); 1] = [("B300", "B200")];

impl Coefficients {
    /// The built-in set of a GPU, fitted to timings that others published; for a GPU that nobody
    /// measured, the efficiencies of its nearest relative, which its own datasheet scales.
    ///
    /// # Errors
    /// [`CoefficientsError::UnknownGpu`].
    pub fn built_in(gpu: &Gpu) -> Result<Self, CoefficientsError> {
        let relative = RELATIVES.iter().find(|(name, _)| *name == gpu.name).map(|(_, relative)| *relative);
        let measured = relative.unwrap_or(gpu.name);
        match BUILT_IN.iter().find(|(name, _)| *name == measured) {
            Some((_, text)) => {
                let mut coefficients = Self::from_json(text)?;
                if relative.is_some() {
                    coefficients.source =
                        format!("datasheet alone, with the efficiencies of {measured}: {}", coefficients.source);
                }
                coefficients.gpu = gpu.name.to_owned();
                Ok(coefficients)
            }
            None => Err(CoefficientsError::UnknownGpu {
                gpu: gpu.name.to_owned(),
                known: BUILT_IN.iter().map(|(name, _)| *name).collect(),
            }),
        }
    }

    /// Reads a set as `calibrate` writes it.
    ///
    /// # Errors
    /// [`CoefficientsError::Json`] with the place.
    pub fn from_json(text: &str) -> Result<Self, CoefficientsError> {
        serde_json::from_str(text).map_err(|source| CoefficientsError::Json {
            line: source.line(),
            column: source.column(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gpu_of_the_catalogue_has_a_set() {
        for gpu in Gpu::all() {
            let coefficients = Coefficients::built_in(gpu).unwrap();
            assert_eq!(coefficients.gpu, gpu.name);
            let text = serde_json::to_string(&coefficients).unwrap();
            assert_eq!(Coefficients::from_json(&text).unwrap(), coefficients);
        }
    }

    #[test]
    fn errors_give_the_place() {
        let error = Coefficients::from_json("{\"gpu\": 3}").unwrap_err().to_string();
        assert!(error.starts_with("cost coefficients: line 1, column 9"), "{error}");
    }
}
