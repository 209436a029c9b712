//! What is timed: an operation of a serving step with its shape.

use std::fmt;

/// One kernel launch (or the few that vLLM makes in its place) with its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Device memory to device memory; `bytes` are read and as many written.
    DeviceCopy { bytes: u64 },
    /// Across the host link. Pinned host memory cannot be paged out, so the copy engine reads it.
    HostCopy { direction: Direction, pinned: bool, bytes: u64 },
    /// A linear layer: `m` tokens, weights of `n` rows and `k` columns.
    Gemm { format: GemmFormat, m: u32, n: u32, k: u32 },
    /// New keys and values into the paged cache, then attention over it, as in a layer of vLLM.
    Attention(Attention),
    /// New keys and values into the paged cache alone.
    KvCacheWrite { tokens: u32, heads_kv: u32, head_dim: u32 },
    /// The sum of a message of so many bytes on each of several GPUs, for all of them.
    AllReduce { num_gpus: u32, bytes: u64 },
    /// Empty kernels, launched one by one.
    Launch,
    /// A graph of empty kernels, launched as a whole.
    GraphReplay { nodes: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
}

/// Number format of weights and activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemmFormat {
    /// bfloat16, or what the device has of 16 or 32 bits.
    Bf16,
    /// 8-bit floats (e4m3) on both sides, 16 bits out; the activations come in bf16 and are quantised
    /// first, as in the published tables.
    Fp8,
}

/// Attention of one layer on one rank, through a block table, causal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    pub batch: Batch,
    pub heads_q: u32,
    pub heads_kv: u32,
    pub head_dim: u32,
    pub block_size: u32,
}

/// The sequences of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Batch {
    /// Sequences of `kv_len` tokens, the last of which is new.
    Decode { sequences: u32, kv_len: u32 },
    /// Sequences of `q_len` new tokens after `kv_past` earlier ones.
    Prefill { sequences: u32, q_len: u32, kv_past: u32 },
    /// One chunk of a prefill, and decodes.
    Mixed { q_len: u32, kv_past: u32, decodes: u32, kv_decode: u32 },
}

/// A sequence of a batch in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub q_len: u32,
    /// Earlier and new tokens.
    pub kv_len: u32,
}

impl Batch {
    pub fn sequences(&self) -> Vec<Sequence> {
        match *self {
            Self::Decode { sequences, kv_len } => vec![Sequence { q_len: 1, kv_len }; sequences as usize],
            Self::Prefill { sequences, q_len, kv_past } => {
                vec![Sequence { q_len, kv_len: kv_past + q_len }; sequences as usize]
            }
            Self::Mixed { q_len, kv_past, decodes, kv_decode } => {
                let mut all = vec![Sequence { q_len, kv_len: kv_past + q_len }];
                all.resize(1 + decodes as usize, Sequence { q_len: 1, kv_len: kv_decode });
                all
            }
        }
    }
}

impl Operation {
    /// The name in the column `op` of a timing table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::DeviceCopy { .. } => "device_copy",
            Self::HostCopy { direction: Direction::HostToDevice, pinned: true, .. } => "h2d_pinned",
            Self::HostCopy { direction: Direction::HostToDevice, pinned: false, .. } => "h2d_pageable",
            Self::HostCopy { direction: Direction::DeviceToHost, pinned: true, .. } => "d2h_pinned",
            Self::HostCopy { direction: Direction::DeviceToHost, pinned: false, .. } => "d2h_pageable",
            Self::Gemm { .. } => "gemm",
            Self::Attention(attention) => match attention.batch {
                Batch::Decode { .. } => "decode_attention",
                Batch::Prefill { .. } => "prefill_attention",
                Batch::Mixed { .. } => "mixed_attention",
            },
            Self::KvCacheWrite { .. } => "kv_cache_write",
            Self::AllReduce { .. } => "nccl_all_reduce",
            Self::Launch => "launch",
            Self::GraphReplay { .. } => "graph_replay",
        }
    }

    /// Device memory that one launch reads, with elements of `element_bytes`: what a second launch
    /// would find in the L2 cache.
    pub fn bytes_read(&self, element_bytes: u64) -> u64 {
        match *self {
            Self::DeviceCopy { bytes } | Self::HostCopy { bytes, .. } => bytes,
            Self::Gemm { format, m, n, k } => {
                let bytes = if format == GemmFormat::Fp8 { 1 } else { element_bytes };
                (u64::from(m) + u64::from(n)) * u64::from(k) * bytes
            }
            Self::Attention(attention) => {
                let tokens: u64 = attention.batch.sequences().iter().map(|s| u64::from(s.kv_len)).sum();
                2 * tokens * u64::from(attention.heads_kv * attention.head_dim) * element_bytes
            }
            Self::KvCacheWrite { tokens, heads_kv, head_dim } => {
                2 * u64::from(tokens) * u64::from(heads_kv * head_dim) * element_bytes
            }
            // A collective waits for its link, not for memory.
            Self::AllReduce { .. } | Self::Launch | Self::GraphReplay { .. } => 0,
        }
    }

    /// Device memory, or host link, that one launch must read and write.
    pub fn bytes_moved(&self, element_bytes: u64) -> u64 {
        let written = match self {
            Self::DeviceCopy { bytes } => *bytes,
            Self::KvCacheWrite { .. } => self.bytes_read(element_bytes),
            _ => 0,
        };
        self.bytes_read(element_bytes) + written
    }

    /// Multiply-adds times two, as roofline models count them.
    pub fn flops(&self) -> f64 {
        match *self {
            Self::Gemm { m, n, k, .. } => 2.0 * f64::from(m) * f64::from(n) * f64::from(k),
            Self::Attention(attention) => {
                let pairs: f64 = attention
                    .batch
                    .sequences()
                    .iter()
                    .map(|s| {
                        let (q, past) = (f64::from(s.q_len), f64::from(s.kv_len - s.q_len));
                        q * past + q * (q + 1.0) / 2.0
                    })
                    .sum();
                4.0 * pairs * f64::from(attention.heads_q * attention.head_dim)
            }
            _ => 0.0,
        }
    }
}

/// For people: progress and messages.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        match *self {
            Self::DeviceCopy { bytes } | Self::HostCopy { bytes, .. } => write!(f, " {} KiB", bytes >> 10),
            Self::Gemm { format, m, n, k } => {
                let format = if format == GemmFormat::Fp8 { " fp8" } else { "" };
                write!(f, "{format} m {m} n {n} k {k}")
            }
            Self::Attention(Attention { batch, heads_q, heads_kv, block_size, .. }) => {
                match batch {
                    Batch::Decode { sequences, kv_len } => write!(f, " batch {sequences} kv {kv_len}")?,
                    Batch::Prefill { sequences, q_len, kv_past } => {
                        write!(f, " batch {sequences} q {q_len} past {kv_past}")?;
                    }
                    Batch::Mixed { q_len, kv_past, decodes, kv_decode } => {
                        write!(f, " q {q_len} past {kv_past} and {decodes} decodes kv {kv_decode}")?;
                    }
                }
                write!(f, " heads {heads_q}/{heads_kv} block {block_size}")
            }
            Self::KvCacheWrite { tokens, heads_kv, head_dim } => {
                write!(f, " tokens {tokens} heads {heads_kv} x {head_dim}")
            }
            Self::AllReduce { num_gpus, bytes } => write!(f, " of {num_gpus} GPUs, {bytes} bytes"),
            Self::Launch => Ok(()),
            Self::GraphReplay { nodes } => write!(f, " nodes {nodes}"),
        }
    }
}
