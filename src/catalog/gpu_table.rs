//! The figures of each GPU, with their source.
//!
//! Memory is what CUDA reports as total on such cards (it differs by some tenths of a per cent
//! between drivers); everything else is from the vendor's documents named above each entry. NVLink
//! and PCIe figures there are for both directions together; here they are halved.

use super::Gpu;

const MIB: u64 = 1 << 20;
const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;
const PCIE_4_X16: f64 = 32.0 * GIGA;
const PCIE_5_X16: f64 = 64.0 * GIGA;

pub(super) static GPUS: [Gpu; 8] = [
    // NVIDIA A100 Tensor Core GPU datasheet (80 GB SXM) and Ampere architecture whitepaper (L2, SMs).
    Gpu {
        name: "A100-80G",
        aliases: &["A100", "A100-SXM", "A100-80GB", "A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"],
        compute_capability: 80,
        memory_bytes: 81_050 * MIB,
        hbm_bytes_per_s: 2039.0 * GIGA,
        bf16_flops: 312.0 * TERA,
        fp8_flops: None,
        fp4_flops: None,
        int8_flops: Some(624.0 * TERA),
        num_sms: 108,
        l2_bytes: 40 * MIB,
        nvlink_bytes_per_s: Some(300.0 * GIGA),
        pcie_bytes_per_s: PCIE_4_X16,
    },
    // NVIDIA H100 datasheet (SXM) and Hopper architecture whitepaper (L2, SMs).
    Gpu {
        name: "H100-SXM",
        aliases: &["H100", "H100-80GB", "H100-SXM5", "NVIDIA H100 80GB HBM3"],
        compute_capability: 90,
        memory_bytes: 81_008 * MIB,
        hbm_bytes_per_s: 3350.0 * GIGA,
        bf16_flops: 989.0 * TERA,
        fp8_flops: Some(1979.0 * TERA),
        fp4_flops: None,
        int8_flops: Some(1979.0 * TERA),
        num_sms: 132,
        l2_bytes: 50 * MIB,
        nvlink_bytes_per_s: Some(450.0 * GIGA),
        pcie_bytes_per_s: PCIE_5_X16,
    },
    // NVIDIA H200 datasheet (SXM); the chip is the H100's.
    Gpu {
        name: "H200",
        aliases: &["H200-SXM", "H200-141GB", "NVIDIA H200"],
        compute_capability: 90,
        memory_bytes: 143_155 * MIB,
        hbm_bytes_per_s: 4800.0 * GIGA,
        bf16_flops: 989.0 * TERA,
        fp8_flops: Some(1979.0 * TERA),
        fp4_flops: None,
        int8_flops: Some(1979.0 * TERA),
        num_sms: 132,
        l2_bytes: 50 * MIB,
        nvlink_bytes_per_s: Some(450.0 * GIGA),
        pcie_bytes_per_s: PCIE_5_X16,
    },
    // NVIDIA DGX B200 datasheet (per GPU, dense) and Blackwell tuning guide (L2, SMs).
    Gpu {
        name: "B200",
        aliases: &["B200-SXM", "B200-180GB", "NVIDIA B200"],
        compute_capability: 100,
        memory_bytes: 182_630 * MIB,
        hbm_bytes_per_s: 8000.0 * GIGA,
        bf16_flops: 2250.0 * TERA,
        fp8_flops: Some(4500.0 * TERA),
        fp4_flops: Some(9000.0 * TERA),
        int8_flops: Some(4500.0 * TERA),
        num_sms: 148,
        l2_bytes: 126 * MIB,
        nvlink_bytes_per_s: Some(900.0 * GIGA),
        pcie_bytes_per_s: PCIE_5_X16,
    },
    // NVIDIA DGX B300 and HGX B300 datasheets (per GPU, dense); 8-bit and 16-bit rates are the B200's.
    Gpu {
        name: "B300",
        aliases: &["B300-SXM", "B300-288GB", "NVIDIA B300", "NVIDIA B300 SXM6 AC"],
        compute_capability: 103,
        memory_bytes: 275_040 * MIB,
        hbm_bytes_per_s: 8000.0 * GIGA,
        bf16_flops: 2250.0 * TERA,
        fp8_flops: Some(4500.0 * TERA),
        fp4_flops: Some(14_000.0 * TERA),
        // The tensor cores of this chip keep 8-bit integers at a small fraction of the B200's rate.
        int8_flops: Some(150.0 * TERA),
        num_sms: 148,
        l2_bytes: 126 * MIB,
        nvlink_bytes_per_s: Some(900.0 * GIGA),
        pcie_bytes_per_s: 2.0 * PCIE_5_X16,
    },
    // NVIDIA L40S datasheet and Ada architecture whitepaper (L2, SMs).
    Gpu {
        name: "L40S",
        aliases: &["L40S-48GB", "NVIDIA L40S"],
        compute_capability: 89,
        memory_bytes: 45_458 * MIB,
        hbm_bytes_per_s: 864.0 * GIGA,
        bf16_flops: 362.0 * TERA,
        fp8_flops: Some(733.0 * TERA),
        fp4_flops: None,
        int8_flops: Some(733.0 * TERA),
        num_sms: 142,
        l2_bytes: 96 * MIB,
        nvlink_bytes_per_s: None,
        pcie_bytes_per_s: PCIE_4_X16,
    },
    // Ada architecture whitepaper, rates with 32-bit accumulation, which is what libraries use.
    Gpu {
        name: "RTX-4090",
        aliases: &["4090", "GeForce RTX 4090", "NVIDIA GeForce RTX 4090"],
        compute_capability: 89,
        memory_bytes: 25_250_627_584,
        hbm_bytes_per_s: 1008.0 * GIGA,
        bf16_flops: 165.0 * TERA,
        fp8_flops: Some(330.0 * TERA),
        fp4_flops: None,
        int8_flops: Some(661.0 * TERA),
        num_sms: 128,
        l2_bytes: 72 * MIB,
        nvlink_bytes_per_s: None,
        pcie_bytes_per_s: PCIE_4_X16,
    },
    // RTX PRO 6000 Blackwell Server Edition datasheet and RTX Blackwell architecture whitepaper.
    Gpu {
        name: "RTX-PRO-6000",
        aliases: &["RTX-PRO-6000-Server", "NVIDIA RTX PRO 6000 Blackwell Server Edition"],
        compute_capability: 120,
        memory_bytes: 97_250 * MIB,
        hbm_bytes_per_s: 1597.0 * GIGA,
        bf16_flops: 503.0 * TERA,
        fp8_flops: Some(1007.0 * TERA),
        fp4_flops: Some(2015.0 * TERA),
        int8_flops: Some(1007.0 * TERA),
        num_sms: 188,
        l2_bytes: 128 * MIB,
        nvlink_bytes_per_s: None,
        pcie_bytes_per_s: PCIE_5_X16,
    },
];
