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

    /// Peak of matrix products in `dtype` if the tensor cores multiply it as it is. Others, and
    /// weight-only formats, are expanded to 16 bits first, as vLLM's Marlin kernels do.
    pub fn native_matmul_flops(&self, dtype: Dtype) -> Option<f64> {
        match dtype {
            Dtype::Bf16 | Dtype::Fp32 => Some(self.bf16_flops),
            Dtype::Fp8 => self.fp8_flops,
            Dtype::Int8 => self.int8_flops,
            Dtype::Nvfp4 => self.fp4_flops,
            // gpt-oss multiplies its MXFP4 weights with 16-bit activations.
            Dtype::Mxfp4 | Dtype::Int4 => None,
        }
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
    fn formats_are_native_where_tensor_cores_have_them() {
        assert_eq!(Gpu::find("A100").unwrap().native_matmul_flops(Dtype::Fp8), None);
        assert_eq!(Gpu::find("B200").unwrap().native_matmul_flops(Dtype::Nvfp4), Some(9000e12));
    }
}
