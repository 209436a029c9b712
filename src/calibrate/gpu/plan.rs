//! Which shapes are timed: those that serving visits, and the steps between tile sizes.

use super::measure::TimingRules;
use super::operation::{Attention, Batch, Direction, GemmFormat, Operation};

/// How much time a calibration may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Every kernel once on small shapes, to see that it computes what it must.
    Check,
    /// Within 90 s of device time.
    Quick,
    Full,
}

impl Effort {
    /// The name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }

    /// Device time after which no new operation starts.
    pub(super) fn budget_s(self) -> f64 {
        match self {
            Self::Check => 60.0,
            // The operation under way may take a few seconds more.
            Self::Quick => 80.0,
            Self::Full => 600.0,
        }
    }

    pub(super) fn timing_rules(self) -> TimingRules {
        let rules = TimingRules {
            groups: 5,
            group_us: 10_000.0,
            min_launches: 4,
            max_launches: 1000,
            max_spread: 0.03,
            max_repeats: 2,
            max_launch_us: 500_000.0,
        };
        match self {
            Self::Check => {
                TimingRules { groups: 1, min_launches: 1, max_launches: 1, max_repeats: 0, ..rules }
            }
            Self::Quick => TimingRules { group_us: 4_000.0, max_launch_us: 100_000.0, ..rules },
            Self::Full => rules,
        }
    }
}

/// Output and inner size of the linear layers of Llama 3.1 8B, of Llama 3.1 70B on one of 4 GPUs, of
/// Qwen3 32B, and of a language model head.
const LAYERS_QUICK: [(u32, u32); 5] =
    [(6144, 4096), (4096, 4096), (28_672, 4096), (4096, 14_336), (10_240, 5120)];
const LAYERS_MORE: [(u32, u32); 8] = [
    (1024, 4096),
    (2560, 8192),
    (8192, 2048),
    (14_336, 8192),
    (8192, 7168),
    (5120, 8192),
    (5120, 25_600),
    (128_256, 4096),
];
const TOKENS_QUICK: [u32; 8] = [1, 8, 32, 64, 128, 256, 1024, 4096];
const TOKENS_MORE: [u32; 8] = [16, 96, 192, 257, 512, 2048, 2049, 8192];

/// Query and KV heads of one rank: Llama 3.1 8B, the same on 2 GPUs, 70B whole, and on 8 GPUs.
const HEADS: [(u32, u32); 4] = [(32, 8), (16, 4), (64, 8), (8, 1)];
const HEAD_DIM: u32 = 128;

/// All operations of an effort, by family.
pub fn plan(effort: Effort) -> Vec<Operation> {
    let mut operations = Vec::new();
    if effort == Effort::Check {
        check(&mut operations);
        return operations;
    }
    let full = effort == Effort::Full;
    copies(&mut operations, full);
    gemms(&mut operations, full);
    decodes(&mut operations, full);
    prefills(&mut operations, full);
    mixed(&mut operations, full);
    for tokens in [1, 16, 64, 256, 2048, 8192] {
        operations.push(Operation::KvCacheWrite { tokens, heads_kv: 8, head_dim: HEAD_DIM });
    }
    for num_gpus in [2, 4, 8] {
        let sizes: &[u64] =
            if full { &[256, 4096, 65_536, 1 << 20, 16 << 20, 64 << 20] } else { &[4096, 1 << 20] };
        operations.extend(sizes.iter().map(|&bytes| Operation::AllReduce { num_gpus, bytes }));
    }
    operations.push(Operation::Launch);
    operations.extend([1, 100, 1000].map(|nodes| Operation::GraphReplay { nodes }));
    operations
}

fn attention(batch: Batch, (heads_q, heads_kv): (u32, u32), block_size: u32) -> Operation {
    Operation::Attention(Attention { batch, heads_q, heads_kv, head_dim: HEAD_DIM, block_size })
}

fn host_copies(operations: &mut Vec<Operation>, bytes: u64) {
    for direction in [Direction::HostToDevice, Direction::DeviceToHost] {
        for pinned in [true, false] {
            operations.push(Operation::HostCopy { direction, pinned, bytes });
        }
    }
}

fn copies(operations: &mut Vec<Operation>, full: bool) {
    let sizes: &[u64] = if full { &[1, 16, 64, 256, 1024] } else { &[16, 256] };
    operations.extend(sizes.iter().map(|mib| Operation::DeviceCopy { bytes: mib << 20 }));
    let sizes: &[u64] = if full { &[16, 64, 256, 1024, 4096, 16_384, 65_536] } else { &[64, 1024, 16_384] };
    for kib in sizes {
        host_copies(operations, kib << 10);
    }
}

fn gemms(operations: &mut Vec<Operation>, full: bool) {
    let layers = LAYERS_QUICK.iter().chain(if full { &LAYERS_MORE[..] } else { &[] });
    let tokens: Vec<u32> =
        TOKENS_QUICK.iter().chain(if full { &TOKENS_MORE[..] } else { &[] }).copied().collect();
    for &(n, k) in layers {
        for &m in &tokens {
            for format in [GemmFormat::Bf16, GemmFormat::Fp8] {
                operations.push(Operation::Gemm { format, m, n, k });
            }
        }
    }
}

/// KV of one launch that is still measured, in tokens times KV heads: 8 GiB in 16 bits.
const MAX_KV_ROWS: u64 = 8 << 30 >> 9;

fn decodes(operations: &mut Vec<Operation>, full: bool) {
    let batches: &[u32] = if full { &[1, 8, 32, 64, 128, 256] } else { &[1, 16, 64, 256] };
    let lengths: &[u32] = if full { &[128, 512, 1024, 4096, 16_384, 65_536] } else { &[512, 1024, 4096] };
    let heads: &[(u32, u32)] = if full { &HEADS } else { &HEADS[..1] };
    for &heads in heads {
        for &sequences in batches {
            for &kv_len in lengths {
                let fits = u64::from(sequences) * u64::from(kv_len) * u64::from(heads.1) <= MAX_KV_ROWS;
                // Small blocks at a few points: the block table's cost.
                let sizes: &[u32] = if full && kv_len == 1024 { &[16, 64] } else { &[16] };
                for &block_size in sizes.iter().filter(|_| fits) {
                    operations.push(attention(Batch::Decode { sequences, kv_len }, heads, block_size));
                }
            }
        }
    }
}

fn prefills(operations: &mut Vec<Operation>, full: bool) {
    let lengths: &[u32] = if full {
        &[16, 64, 128, 192, 256, 320, 512, 1024, 2048, 4096, 8192]
    } else {
        &[64, 128, 192, 512, 1024, 2048, 8192]
    };
    let pasts: &[u32] = if full { &[0, 512, 2048, 8192, 32_768] } else { &[0, 2048, 8192] };
    let heads: &[(u32, u32)] = if full { &HEADS[..3] } else { &HEADS[..1] };
    for &heads in heads {
        for &q_len in lengths {
            for &kv_past in pasts {
                operations.push(attention(Batch::Prefill { sequences: 1, q_len, kv_past }, heads, 16));
            }
        }
    }
}

fn mixed(operations: &mut Vec<Operation>, full: bool) {
    let chunks: &[u32] = if full { &[128, 512, 1792] } else { &[512, 1792] };
    let decodes: &[u32] = if full { &[8, 64, 192] } else { &[64] };
    let lengths: &[u32] = if full { &[512, 2048, 8192] } else { &[512, 2048] };
    for &q_len in chunks {
        for &decodes in decodes {
            for &kv_decode in lengths {
                let batch = Batch::Mixed { q_len, kv_past: 0, decodes, kv_decode };
                operations.push(attention(batch, HEADS[0], 16));
            }
        }
    }
}

/// Edges of every kernel, also before other efforts, whose shapes are too large to look at closely: single rows, tiles that are not full, several blocks, splits, groups.
fn check(operations: &mut Vec<Operation>) {
    operations.push(Operation::DeviceCopy { bytes: 1 << 20 });
    host_copies(operations, 64 << 10);
    for format in [GemmFormat::Bf16, GemmFormat::Fp8] {
        for (m, n, k) in [(1, 128, 256), (7, 192, 128), (65, 128, 192), (130, 256, 128), (16, 64, 2048)] {
            operations.push(Operation::Gemm { format, m, n, k });
        }
    }
    let batches = [
        (Batch::Decode { sequences: 3, kv_len: 1 }, (4, 4), 16),
        (Batch::Decode { sequences: 2, kv_len: 77 }, (8, 2), 16),
        (Batch::Decode { sequences: 1, kv_len: 1100 }, (8, 1), 64),
        (Batch::Prefill { sequences: 2, q_len: 33, kv_past: 0 }, (4, 2), 16),
        (Batch::Prefill { sequences: 1, q_len: 18, kv_past: 50 }, (4, 1), 32),
        (Batch::Mixed { q_len: 40, kv_past: 20, decodes: 3, kv_decode: 90 }, (4, 2), 16),
    ];
    operations.extend(batches.map(|(batch, heads, block_size)| attention(batch, heads, block_size)));
    operations.push(Operation::KvCacheWrite { tokens: 37, heads_kv: 2, head_dim: HEAD_DIM });
    operations.push(Operation::AllReduce { num_gpus: 2, bytes: 4096 });
    operations.push(Operation::Launch);
    operations.push(Operation::GraphReplay { nodes: 10 });
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_operation_is_planned_twice() {
        for effort in [Effort::Check, Effort::Quick, Effort::Full] {
            let operations = plan(effort);
            let distinct: HashSet<&Operation> = operations.iter().collect();
            assert_eq!(distinct.len(), operations.len(), "{}", effort.name());
        }
    }

    #[test]
    fn a_check_has_every_kind_of_operation() {
        let kinds = |effort| plan(effort).iter().map(Operation::name).collect::<HashSet<_>>();
        assert_eq!(kinds(Effort::Check), kinds(Effort::Full));
        assert_eq!(kinds(Effort::Quick), kinds(Effort::Full));
    }
}
