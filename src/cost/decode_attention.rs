//! Attention of decodes: one query per sequence over its KV cache.
//!
//! ```text
//! memory  = bytes / bandwidth (1 + (split_penalty / splits)^q)
//! compute = (head_us + group_us G) B heads_kv / SMs
//! t       = t0 + pnorm(memory, compute) + row_us B heads_kv / SMs + length_us min(kv, 4096)
//!           + sequence_us B + combine_us B ceil(heads_q / 8) / SMs
//! ```
//!
//! Bytes are keys and values once, queries and outputs. Kernels that share out no KV head once there
//! are nearly as many as the SMs take at a time, two each, run in waves (FlashAttention 2's
//! `num_splits_heuristic`): memory takes `1 + wave_share (whole waves / waves - 1)` times as long.
//! Splits are sequences times KV heads times
//! 256-token pieces: few of them leave SMs idle. `G` query heads share a KV head.
//!
//! FlashAttention 3 decides on the GPU into how many pieces to split each sequence, of up to 992
//! sequences (`use_dynamic_split` in `flash_api.cpp`). Its blocks then look through the sequences for
//! their piece, and a second kernel, which has a block for every eight query heads of a sequence, adds
//! up the pieces even where there is one. That costs by the number of sequences, and beyond 992 nothing.
//!
//! On Hopper memory takes `1 + stride_loss` times as long where every SM reads one piece, all in step,
//! and the keys of a token fill two KiB, so that the rows of a head lie that far apart.

use super::attention::AttentionShape;
use super::law::{L2, law};
use super::smooth_max::smooth_max;
use crate::catalog::Gpu;

law! {
    /// See the module.
    pub struct DecodeAttentionLaw[] {
        /// Cache write, attention and combination of the splits, microseconds.
        t0_us = 11.0 in [0.1, 40.0] else 0.0,
        memory_efficiency = 0.93 in [0.3, 1.0] else 1.0,
        /// One KV head of one sequence on one SM, microseconds.
        head_us = 2.5 in [0.1, 20.0] else 0.1,
        p = 2.5 in [0.7, 12.0] else 2.0,
        /// Loss of bandwidth while there are few splits to share.
        split_penalty = 150.0 in [0.0, 3000.0] else 0.0,
        split_power = 1.0 in [0.3, 3.0] else 1.0,
        /// Microseconds for each 1000 tokens of context, up to 4096.
        length_us = 0.5 in [0.0, 5.0] else 0.0,
        /// One query head that shares a KV head, microseconds on one SM.
        group_us = 0.05 in [0.0, 2.0] else 0.0,
        /// What one KV head of one sequence adds whatever its length, microseconds on one SM.
        row_us = 0.5 in [0.0, 5.0] else 0.0,
        /// How far KV heads that are not shared out run in whole waves.
        wave_share = 0.5 in [0.0, 1.0] else 0.0,
        /// Finding the pieces of a sequence, microseconds for each 1000 sequences.
        sequence_us = 8.0 in [0.0, 30.0] else 0.0,
        /// Adding up the pieces of eight query heads, microseconds on one SM.
        combine_us = 0.2 in [0.0, 10.0] else 0.0,
        /// Bandwidth lost to far apart rows that all SMs read in step.
        stride_loss = 0.05 in [0.0, 0.5] else 0.0,
        /// Speed of a warm L2 against memory.
        l2_speedup = 3.0 in [1.0, 10.0] else 1.0,
        /// Share of the L2 that a benchmark's KV stays in.
        l2_share = 0.6 in [0.05, 2.0] else 0.6,
    }
}

/// Thread blocks that an SM takes at a time, and the share of all of them that is busy enough.
const HEADS_PER_SM: f64 = 2.0;
const UNSPLIT_FROM: f64 = 0.8;
/// Sequences that FlashAttention 3 splits on the GPU, and query heads that a block adds up.
const DYNAMIC_SPLIT_SEQUENCES: u32 = 992;
const COMBINED_HEADS: f64 = 8.0;
/// Keys and values of a token from which on the rows of a head lie far apart.
const FAR_APART_BYTES: f64 = 4096.0;

#[derive(Clone, Debug)]
pub struct DecodeAttention {
    law: DecodeAttentionLaw,
    l2: L2,
    l2_bytes: f64,
    heads_kv: f64,
    /// KV heads that run at a time.
    slots: f64,
    num_sms: f64,
    kv_bytes: f64,
    query_bytes: f64,
    bytes_per_us: f64,
    /// Per KV head of one sequence, shared by all SMs.
    head_us: f64,
    row_us: f64,
    /// Per sequence, where its pieces are decided on the GPU.
    split_us: f64,
    /// Arithmetic per sequence and token; only latent attention has enough of it to matter.
    compute_us_per_token: f64,
}

impl DecodeAttention {
    pub fn new(
        shape: &AttentionShape,
        gpu: &Gpu,
        law: &DecodeAttentionLaw,
        compute_efficiency: f64,
        l2: L2,
    ) -> Self {
        let num_sms = f64::from(gpu.num_sms);
        let group = shape.heads_q / shape.decode_heads_kv;
        Self {
            law: *law,
            l2,
            l2_bytes: gpu.l2_bytes as f64,
            heads_kv: shape.decode_heads_kv,
            slots: HEADS_PER_SM * num_sms,
            num_sms,
            kv_bytes: shape.kv_bytes_per_token,
            query_bytes: shape.decode_query_bytes,
            bytes_per_us: gpu.hbm_bytes_per_s * 1e-6 * law.memory_efficiency,
            head_us: (law.head_us + law.group_us * group) / num_sms,
            row_us: law.row_us / num_sms,
            split_us: law.sequence_us * 1e-3
                + law.combine_us * (shape.heads_q / COMBINED_HEADS).ceil() / num_sms,
            compute_us_per_token: shape.decode_flops_per_token / (gpu.bf16_flops * 1e-6 * compute_efficiency),
        }
    }

    /// `num_decodes` sequences of `kv_tokens` each, on average.
    pub fn time_us(&self, num_decodes: u32, kv_tokens: f64) -> f64 {
        let law = &self.law;
        let batch = f64::from(num_decodes);
        let rows = batch * self.heads_kv;
        let splits = rows * (kv_tokens / 256.0).max(1.0);
        let bytes = batch * (kv_tokens * self.kv_bytes + self.query_bytes);
        let speedup = self.l2.speedup(bytes, self.l2_bytes, law.l2_speedup, law.l2_share);
        let penalty = (law.split_penalty / splits).powf(law.split_power);
        let memory =
            bytes / (self.bytes_per_us * speedup) * (1.0 + penalty) * self.waves(rows) * self.stride(rows);
        let compute = (self.head_us * rows).max(self.compute_us_per_token * batch * kv_tokens);
        let length = law.length_us * 1e-3 * kv_tokens.min(4096.0);
        let split = if num_decodes <= DYNAMIC_SPLIT_SEQUENCES { self.split_us * batch } else { 0.0 };
        law.t0_us + smooth_max(memory, compute, law.p) + self.row_us * rows + length + split
    }

    /// What far apart rows cost while no SM has more than one piece.
    fn stride(&self, rows: f64) -> f64 {
        let is_slow = self.kv_bytes >= FAR_APART_BYTES && rows <= self.num_sms;
        if is_slow { 1.0 + self.law.stride_loss } else { 1.0 }
    }

    /// What whole waves cost over a fraction of one.
    fn waves(&self, rows: f64) -> f64 {
        if rows < UNSPLIT_FROM * self.slots {
            return 1.0;
        }
        let waves = rows / self.slots;
        1.0 + self.law.wave_share * (waves.ceil() / waves - 1.0)
    }

    pub fn t0_us(&self) -> f64 {
        self.law.t0_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 sequences of 1000 tokens, 8 KV heads of 128 in 16 bits, on 100 SMs and 1 TB/s.
    #[test]
    fn the_law_is_what_the_module_says() {
        let gpu = Gpu { num_sms: 100, hbm_bytes_per_s: 1e12, ..Gpu::find("H100").unwrap().clone() };
        let shape = AttentionShape::grouped_query(32.0, 8.0, 128.0, 4096.0);
        let law = DecodeAttentionLaw {
            t0_us: 10.0,
            split_penalty: 25.0,
            row_us: 1.0,
            length_us: 0.5,
            p: 1e3,
            ..DecodeAttentionLaw::neutral()
        };
        let time = DecodeAttention::new(&shape, &gpu, &law, 1.0, L2::Cold).time_us(8, 1000.0);
        let bytes = 8.0 * (1000.0 * 4096.0 + 16384.0);
        let memory = bytes / 1e6 * (1.0 + 25.0 / (64.0 * 1000.0 / 256.0));
        assert!((time - (10.0 + memory + 0.64 + 0.5)).abs() < 1e-9, "{time}");
        // 256 rows on 200 places: two waves.
        let waves =
            DecodeAttentionLaw { wave_share: 0.5, split_penalty: 0.0, row_us: 0.0, length_us: 0.0, ..law };
        let time = DecodeAttention::new(&shape, &gpu, &waves, 1.0, L2::Cold).time_us(32, 1000.0);
        assert!(
            (time - (10.0 + 4.0 * bytes / 1e6 * (1.0 + 0.5 * (2.0 / 1.28 - 1.0)))).abs() < 1e-9,
            "{time}"
        );
        // Eight sequences that are split on the GPU, four blocks of heads each, and far apart rows.
        let dynamic = DecodeAttentionLaw {
            sequence_us: 1000.0,
            combine_us: 25.0,
            stride_loss: 0.5,
            split_penalty: 0.0,
            row_us: 0.0,
            length_us: 0.0,
            ..law
        };
        let time = |sequences| {
            DecodeAttention::new(&shape, &gpu, &dynamic, 1.0, L2::Cold).time_us(sequences, 1000.0)
        };
        assert!((time(8) - (10.0 + 1.5 * bytes / 1e6 + 8.0 * (1.0 + 25.0 * 4.0 / 100.0))).abs() < 1e-9);
        // Neither beyond 992 sequences and 100 pieces.
        assert!((time(993) - (10.0 + 993.0 / 8.0 * bytes / 1e6)).abs() < 1e-6);
        // Latent attention has arithmetic to do.
        let latent = AttentionShape { decode_flops_per_token: 1e9, ..shape };
        let time = DecodeAttention::new(&latent, &gpu, &law, 0.5, L2::Cold).time_us(8, 1000.0);
        assert!(time > 8.0 * 1000.0 * 1e9 / (0.5 * 989e6));
    }
}
