use super::super::operation::{Operation, Variant};
use crate::catalog::Gpu;
use crate::cost::attention::AttentionShape;
use crate::cost::decode_attention::{DecodeAttention, DecodeAttentionLaw};
use crate::cost::law::L2;
use crate::cost::mixed_attention::{MixedAttention, MixedAttentionLaw};
use crate::cost::prefill_attention::{Packing, PrefillAttention, PrefillAttentionLaw};
use crate::cost::{Format, PrefillChunk, StepShape};

/// Heads on one rank; a window of `None` is full attention.
#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct Heads {
    pub heads_q: u32,
    pub heads_kv: u32,
    pub head_dim: u32,
    pub window_tokens: Option<u32>,
}

impl Heads {
    fn shape(&self, format: Format) -> AttentionShape {
        let (heads_kv, head_dim) = (f64::from(self.heads_kv), f64::from(self.head_dim));
        let bytes = 2.0 * heads_kv * head_dim * format.weights().bytes_per_value();
        AttentionShape::grouped_query(f64::from(self.heads_q), heads_kv, head_dim, bytes)
    }

    /// What nearly all models have.
    fn is_usual(&self) -> bool {
        self.head_dim == 128 && self.window_tokens.is_none()
    }

    fn key(&self) -> String {
        format!("{} {}", self.heads_q, self.heads_kv)
    }

    fn quantities(&self) -> Vec<(&'static str, f64)> {
        let window = self.window_tokens.map(|window| ("window", f64::from(window)));
        [
            ("heads_q", f64::from(self.heads_q)),
            ("heads_kv", f64::from(self.heads_kv)),
            ("head_dim", f64::from(self.head_dim)),
        ]
        .into_iter()
        .chain(window)
        .collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct DecodeShape {
    pub heads: Heads,
    pub batch: u32,
    pub kv_len: u32,
}

pub(in crate::calibrate) struct DecodeOperation;

impl Operation for DecodeOperation {
    type Shape = DecodeShape;
    type Law = DecodeAttentionLaw;
    const SCOPE: &'static str = "head 128, KV over twice L2, batch x KV heads >= 8";

    fn variants(_gpu: &Gpu, format: Format) -> Vec<Variant<DecodeAttentionLaw>> {
        let rows: &[&str] = &[
            "t0_us",
            "memory_efficiency",
            "head_us",
            "p",
            "split_penalty",
            "split_power",
            "length_us",
            "group_us",
            "row_us",
            "l2_speedup",
            "l2_share",
        ];
        let waves: &[&str] = &[
            "t0_us",
            "memory_efficiency",
            "head_us",
            "p",
            "split_penalty",
            "split_power",
            "length_us",
            "group_us",
            "wave_share",
            "l2_speedup",
            "l2_share",
        ];
        // Eight heads of 128, which most models have, reach two KiB in 16 bits only.
        let far_apart: &[&str] = &[
            "t0_us",
            "memory_efficiency",
            "head_us",
            "p",
            "split_penalty",
            "split_power",
            "sequence_us",
            "combine_us",
            "stride_loss",
            "l2_speedup",
            "l2_share",
        ];
        let near: &[&str] = &[
            "t0_us",
            "memory_efficiency",
            "head_us",
            "p",
            "split_penalty",
            "split_power",
            "row_us",
            "sequence_us",
            "combine_us",
            "l2_speedup",
            "l2_share",
        ];
        let dynamic_splits = if format == Format::Bf16 { far_apart } else { near };
        [rows, waves, dynamic_splits].map(|free| Variant { law: DecodeAttentionLaw::neutral(), free }).into()
    }

    fn predict_us(shape: &DecodeShape, format: Format, gpu: &Gpu, law: &DecodeAttentionLaw) -> f64 {
        let kv_tokens = shape.heads.window_tokens.map_or(shape.kv_len, |window| window.min(shape.kv_len));
        DecodeAttention::new(&shape.heads.shape(format), gpu, law, 1.0, L2::Warm)
            .time_us(shape.batch, f64::from(kv_tokens))
    }

    fn is_in_scope(shape: &DecodeShape, format: Format, gpu: &Gpu) -> bool {
        let rows = f64::from(shape.batch) * f64::from(shape.heads.heads_kv);
        let kv_bytes =
            f64::from(shape.batch) * f64::from(shape.kv_len) * shape.heads.shape(format).kv_bytes_per_token;
        shape.heads.is_usual() && kv_bytes > 2.0 * gpu.l2_bytes as f64 && rows >= 8.0
    }

    fn is_serving(shape: &DecodeShape) -> bool {
        shape.heads.is_usual() && (8..=256).contains(&shape.batch) && (512..=8192).contains(&shape.kv_len)
    }

    fn key(shape: &DecodeShape) -> String {
        shape.heads.key()
    }

    fn quantities(shape: &DecodeShape) -> Vec<(&'static str, f64)> {
        let own = [("batch", f64::from(shape.batch)), ("kv_len", f64::from(shape.kv_len))];
        own.into_iter().chain(shape.heads.quantities()).collect()
    }

    fn weight(shape: &DecodeShape, format: Format, gpu: &Gpu) -> f64 {
        let heads = &shape.heads;
        let usual = if Self::is_in_scope(shape, format, gpu) { 1.0 } else { 0.05 };
        let scope = if heads.is_usual() { usual } else { 0.02 };
        // Heads of 512 run in another kernel, 10 to 60 times slower.
        let scope = if heads.head_dim > 256 { 0.0 } else { scope };
        if Self::is_serving(shape) { 2.0 * scope } else { scope }
    }
}

#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct PrefillShape {
    pub heads: Heads,
    pub batch: u32,
    pub chunk: PrefillChunk,
}

pub(in crate::calibrate) struct PrefillOperation;

impl Operation for PrefillOperation {
    type Shape = PrefillShape;
    type Law = PrefillAttentionLaw;
    const SCOPE: &'static str = "head 128";

    fn variants(_gpu: &Gpu, _format: Format) -> Vec<Variant<PrefillAttentionLaw>> {
        let long: &[&str] = &[
            "t0_us",
            "compute_efficiency",
            "memory_efficiency",
            "p",
            "tile_us",
            "pad_tokens",
            "tail",
            "memory_p",
            "write_passes",
            "write_block_us",
            "wave_share",
        ];
        let warm: &[&str] = &[
            "t0_us",
            "compute_efficiency",
            "memory_efficiency",
            "tile_us",
            "pad_tokens",
            "memory_p",
            "write_passes",
            "write_block_us",
            "wave_share",
            "l2_speedup",
            "l2_share",
        ];
        let single: &[&str] = &[
            "t0_us",
            "compute_efficiency",
            "memory_efficiency",
            "tile_us",
            "pad_tokens",
            "tail",
            "memory_p",
            "write_passes",
            "write_block_us",
            "wave_share",
            "one_query_us",
        ];
        let kernels = [
            (64, Packing::OneQuery),
            (128, Packing::OneQuery),
            (128, Packing::Always),
            (128, Packing::Never),
        ];
        let variant = |(tile_rows, packing)| {
            let law = PrefillAttentionLaw::neutral(tile_rows, packing);
            [long, warm, single].map(|free| Variant { law, free })
        };
        kernels.into_iter().flat_map(variant).collect()
    }

    fn predict_us(shape: &PrefillShape, format: Format, gpu: &Gpu, law: &PrefillAttentionLaw) -> f64 {
        // Equal sequences: one chunk on as many heads as there are in all.
        let batch = f64::from(shape.batch);
        let one = shape.heads.shape(format);
        let all = AttentionShape {
            heads_q: one.heads_q * batch,
            prefill_heads_kv: one.prefill_heads_kv * batch,
            prefill_query_bytes: one.prefill_query_bytes * batch,
            new_kv_bytes: one.new_kv_bytes * batch,
            write_blocks: one.write_blocks * batch,
            kv_bytes_per_token: one.kv_bytes_per_token * batch,
            ..one
        };
        PrefillAttention::new(&all, gpu, law, L2::Warm).time_us(&[shape.chunk], shape.heads.window_tokens)
    }

    fn is_in_scope(shape: &PrefillShape, _format: Format, _gpu: &Gpu) -> bool {
        shape.heads.is_usual()
    }

    fn is_serving(_shape: &PrefillShape) -> bool {
        // Chunks are as long as the token budget: no narrow range is visited more than others.
        false
    }

    fn key(shape: &PrefillShape) -> String {
        shape.heads.key()
    }

    fn quantities(shape: &PrefillShape) -> Vec<(&'static str, f64)> {
        let chunk = shape.chunk;
        let own = [
            ("batch", f64::from(shape.batch)),
            ("q_len", f64::from(chunk.num_tokens)),
            ("kv_past", f64::from(chunk.num_computed_tokens)),
        ];
        own.into_iter().chain(shape.heads.quantities()).collect()
    }

    fn weight(shape: &PrefillShape, _format: Format, _gpu: &Gpu) -> f64 {
        match shape.heads {
            Heads { head_dim: 257.., .. } => 0.0,
            heads if heads.is_usual() => 1.0,
            _ => 0.03,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct MixedShape {
    pub heads: Heads,
    pub chunk: PrefillChunk,
    pub num_decodes: u32,
    pub kv_decode: u32,
}

pub(in crate::calibrate) struct MixedOperation;

impl Operation for MixedOperation {
    type Shape = MixedShape;
    type Law = MixedAttentionLaw;
    const SCOPE: &'static str = "a chunk and decodes";

    fn variants(_gpu: &Gpu, _format: Format) -> Vec<Variant<MixedAttentionLaw>> {
        let free = &["t0_us", "token_ns", "tile_us", "memory_efficiency", "p", "wave_share"];
        vec![Variant { law: MixedAttentionLaw::neutral(), free }]
    }

    fn predict_us(shape: &MixedShape, format: Format, gpu: &Gpu, law: &MixedAttentionLaw) -> f64 {
        let mut step = StepShape::default();
        step.add_prefill(shape.chunk.num_tokens, shape.chunk.num_computed_tokens, false);
        step.add_decodes(shape.num_decodes, u64::from(shape.num_decodes) * u64::from(shape.kv_decode));
        MixedAttention::new(&shape.heads.shape(format), gpu, law).time_us(
            &step,
            shape.heads.window_tokens,
            f64::from(shape.kv_decode),
        )
    }

    fn is_in_scope(shape: &MixedShape, _format: Format, _gpu: &Gpu) -> bool {
        shape.heads.is_usual()
    }

    fn is_serving(shape: &MixedShape) -> bool {
        (8..=256).contains(&shape.num_decodes) && (512..=8192).contains(&shape.kv_decode)
    }

    fn key(shape: &MixedShape) -> String {
        shape.heads.key()
    }

    fn quantities(shape: &MixedShape) -> Vec<(&'static str, f64)> {
        let own = [
            ("q_len", f64::from(shape.chunk.num_tokens)),
            ("kv_past", f64::from(shape.chunk.num_computed_tokens)),
            ("n_decode", f64::from(shape.num_decodes)),
            ("kv_decode", f64::from(shape.kv_decode)),
        ];
        own.into_iter().chain(shape.heads.quantities()).collect()
    }
}
