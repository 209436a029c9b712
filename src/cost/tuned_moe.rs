//! The shapes for which vLLM 0.33.0 ships a tuned configuration of its Triton MoE kernel in 16 bits
//! (the file names in `vllm/model_executor/layers/fused_moe/configs`).

use crate::catalog::Gpu;

/// Experts and intermediate size on one rank.
type Shape = (u32, u32);

const A100: &[Shape] = &[
    (1, 1792),
    (1, 3584),
    (1, 7168),
    (1, 14336),
    (8, 1792),
    (8, 2048),
    (8, 3584),
    (8, 4096),
    (8, 7168),
    (16, 1344),
    (16, 1792),
    (16, 2688),
    (16, 3584),
    (16, 7168),
    (16, 14336),
    (64, 640),
    (64, 1280),
    (128, 192),
    (512, 64),
    (512, 128),
];
const H100: &[Shape] = &[
    (1, 3072),
    (8, 1792),
    (8, 2048),
    (8, 3584),
    (8, 4096),
    (8, 7168),
    (16, 1344),
    (16, 1792),
    (16, 2688),
    (32, 1792),
    (62, 256),
    (62, 512),
    (64, 320),
    (64, 640),
    (64, 1280),
    (64, 1536),
    (72, 384),
    (72, 768),
    (128, 192),
    (128, 384),
    (128, 512),
    (128, 928),
    (128, 1856),
    (128, 2880),
    (256, 512),
    (512, 128),
    (512, 256),
    (512, 512),
];
const H200: &[Shape] = &[
    (8, 1792),
    (8, 2048),
    (8, 3584),
    (8, 4096),
    (8, 7168),
    (8, 14336),
    (16, 1024),
    (16, 2048),
    (64, 320),
    (64, 640),
    (64, 1280),
    (64, 2560),
    (128, 96),
    (128, 192),
    (128, 384),
    (128, 512),
    (128, 768),
    (128, 1024),
    (512, 64),
    (512, 128),
    (512, 256),
    (512, 512),
];
const L40S: &[Shape] = &[(8, 3584), (128, 928), (128, 1856)];

/// Whether a layer of `num_experts` with `inter` on each rank runs with a tuned configuration.
pub fn is_tuned(gpu: &Gpu, num_experts: u32, inter: u32) -> bool {
    let shapes = match gpu.name {
        "A100-80G" => A100,
        "H100-SXM" => H100,
        "H200" => H200,
        "L40S" => L40S,
        // Blackwell's own kernels do not read these files.
        _ => &[],
    };
    shapes.contains(&(num_experts, inter))
}
