//! Number formats of weights and KV cache.

use serde::{Deserialize, Serialize};

/// A number format as it is stored in GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    #[serde(alias = "float32")]
    Fp32,
    #[serde(alias = "bfloat16", alias = "float16", alias = "fp16")]
    Bf16,
    #[serde(alias = "fp8_e4m3", alias = "fp8_e5m2")]
    Fp8,
    Int8,
    /// 4 bits and one 8-bit scale per 32 values (OCP microscaling, gpt-oss).
    Mxfp4,
    /// 4 bits and one 8-bit scale per 16 values (NVIDIA Blackwell).
    Nvfp4,
    /// 4 bits and one 16-bit scale per 128 values (the usual GPTQ and AWQ group).
    Int4,
}

impl Dtype {
    /// Storage per value in 1/64 bits, scales included; an integer for every format.
    const fn bits_x64(self) -> u64 {
        match self {
            Self::Fp32 => 32 * 64,
            Self::Bf16 => 16 * 64,
            Self::Fp8 | Self::Int8 => 8 * 64,
            Self::Mxfp4 => 4 * 64 + 8 * 64 / 32,
            Self::Nvfp4 => 4 * 64 + 8 * 64 / 16,
            Self::Int4 => 4 * 64 + 16 * 64 / 128,
        }
    }

    /// Bytes that `count` values take, scales included, rounded up.
    pub const fn bytes(self, count: u64) -> u64 {
        (count as u128 * self.bits_x64() as u128).div_ceil(8 * 64) as u64
    }

    /// Bytes per value, scales included.
    pub fn bytes_per_value(self) -> f64 {
        self.bits_x64() as f64 / 512.0
    }
}

#[cfg(test)]
mod tests {
    use super::Dtype;

    #[test]
    fn bytes_count_the_scales() {
        assert_eq!(Dtype::Bf16.bytes(10), 20);
        assert_eq!(Dtype::Fp8.bytes(10), 10);
        // 32 values: 16 bytes of mantissa and one scale byte.
        assert_eq!(Dtype::Mxfp4.bytes(32), 17);
        assert_eq!(Dtype::Nvfp4.bytes(32), 18);
        assert_eq!(Dtype::Int4.bytes(128), 66);
    }
}
