//! GPUs and their links.

use serde::Serialize;

use super::gpu_table::GPUS;
use super::{Dtype, UnknownName};

/// What a GPU can do according to its vendor. Peaks are dense (no structured sparsity).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    pub name: &'static str,
    #[serde(skip)]
    pub aliases: &'static [&'static str],
    /// CUDA compute capability times ten.
    pub compute_capability: u32,
    /// What `torch.cuda.mem_get_info` calls total: the marketed size less what driver and ECC keep.
    pub memory_bytes: u64,
    /// Memory bandwidth.
    pub hbm_bytes_per_s: f64,
    pub bf16_flops: f64,
    /// None where the tensor cores lack the format.
    pub fp8_flops: Option<f64>,
    pub fp4_flops: Option<f64>,
    pub int8_flops: Option<f64>,
    pub num_sms: u32,
    pub l2_bytes: u64,
    /// NVLink in one direction, None on PCIe cards.
    pub nvlink_bytes_per_s: Option<f64>,
    /// PCIe in one direction.
    pub pcie_bytes_per_s: f64,
}

impl Gpu {
    /// A GPU by name or alias; case, spaces and punctuation do not matter.
    ///
    /// # Errors
    /// [`UnknownName`], which lists the names there are.
    pub fn find(name: &str) -> Result<&'static Self, UnknownName> {
        let wanted = fold(name);
        let matches =
            |gpu: &&Self| fold(gpu.name) == wanted || gpu.aliases.iter().any(|alias| fold(alias) == wanted);
        GPUS.iter().find(matches).ok_or_else(|| UnknownName {
            kind: "GPU",
            name: name.to_owned(),
            known: GPUS.iter().map(|gpu| gpu.name).collect(),
        })
    }

    /// All GPUs of the catalogue.
    pub fn all() -> &'static [Self] {
        &GPUS
    }

    /// Peak of matrix products whose weights are stored as `weights`. Formats that the tensor cores
    /// lack, and 4-bit integers, are expanded to 16 bits first, as vLLM's Marlin kernels do.
    pub fn matmul_flops(&self, weights: Dtype) -> f64 {
        let native = match weights {
            Dtype::Fp8 => self.fp8_flops,
            Dtype::Int8 => self.int8_flops,
            Dtype::Nvfp4 => self.fp4_flops,
            // gpt-oss multiplies MXFP4 weights with 16-bit activations.
            Dtype::Mxfp4 | Dtype::Int4 | Dtype::Bf16 | Dtype::Fp32 => None,
        };
        native.unwrap_or(self.bf16_flops)
    }
}

/// Lower case without separators, so that `H100 SXM`, `h100-sxm` and `H100_SXM` are one name.
fn fold(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_match_however_written() {
        for name in ["H100-SXM", "h100 sxm", "H100", "NVIDIA H100 80GB HBM3"] {
            assert_eq!(Gpu::find(name).unwrap().name, "H100-SXM");
        }
        assert_eq!(Gpu::find("NVIDIA GeForce RTX 4090").unwrap().name, "RTX-4090");
        let error = Gpu::find("H1000").unwrap_err().to_string();
        assert!(error.starts_with("unknown GPU `H1000`; use one of: A100-80G, H100-SXM, "), "{error}");
    }

    #[test]
    fn no_two_gpus_share_a_name() {
        let mut names: Vec<String> =
            GPUS.iter().flat_map(|g| std::iter::once(&g.name).chain(g.aliases).map(|n| fold(n))).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn formats_without_tensor_cores_run_in_sixteen_bits() {
        let a100 = Gpu::find("A100").unwrap();
        assert_eq!(a100.matmul_flops(Dtype::Fp8), 312e12);
        assert_eq!(Gpu::find("B200").unwrap().matmul_flops(Dtype::Nvfp4), 9000e12);
    }
}
