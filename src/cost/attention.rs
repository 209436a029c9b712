//! The attention of one layer, whatever the batch holds.

use crate::catalog::{Dtype, Gpu, Model};

use super::decode_attention::DecodeAttention;
use super::law::L2;
use super::mixed_attention::MixedAttention;
use super::prefill_attention::PrefillAttention;
use super::{CompleteProfile, Format, StepShape};

/// The heads of one rank, in the two forms that latent attention takes.
#[derive(Clone, Debug)]
pub struct AttentionShape {
    pub heads_q: f64,
    /// Mean of the key and value dimensions, for arithmetic.
    pub prefill_head_dim: f64,
    /// Query and output bytes of one token.
    pub prefill_query_bytes: f64,
    /// KV heads whose queries a tile of a prefill can hold.
    pub prefill_heads_kv: f64,
    /// Keys and values of a new token as they come out of the projection.
    pub new_kv_bytes: f64,
    /// Full thread blocks that writing a new token into the cache amounts to: vLLM starts one for each
    /// token, of 512 threads or as many as there are values (`reshape_and_cache_flash`).
    pub write_blocks: f64,
    pub decode_heads_kv: f64,
    pub decode_query_bytes: f64,
    /// 0 where reading the cache always takes longer.
    pub decode_flops_per_token: f64,
    pub kv_bytes_per_token: f64,
}

impl AttentionShape {
    pub fn new(model: &Model, tp: u32) -> Self {
        let heads_q = f64::from((model.num_attention_heads / tp).max(1));
        let value_bytes = Dtype::Bf16.bytes_per_value();
        let kv_bytes_per_token = model.kv_bytes_per_token_per_layer(tp) as f64;
        match &model.mla {
            // Decodes attend in the latent space: one shared head, as wide as the latent vector.
            Some(mla) => {
                let latent = f64::from(mla.kv_lora_rank);
                let rope = f64::from(mla.qk_rope_head_dim);
                let query = f64::from(mla.qk_nope_head_dim) + rope;
                let value = f64::from(mla.v_head_dim);
                Self {
                    heads_q,
                    prefill_head_dim: (query + value) / 2.0,
                    prefill_query_bytes: heads_q * (query + value) * value_bytes,
                    // Prompts attend with a key and a value for every head.
                    prefill_heads_kv: heads_q,
                    new_kv_bytes: (latent + rope) * value_bytes,
                    write_blocks: write_blocks(latent),
                    decode_heads_kv: 1.0,
                    decode_query_bytes: heads_q * (2.0 * latent + rope) * value_bytes,
                    decode_flops_per_token: 2.0 * heads_q * (2.0 * latent + rope),
                    kv_bytes_per_token,
                }
            }
            None => {
                let heads_kv = model.num_kv_heads_per_rank(tp);
                Self::grouped_query(
                    heads_q,
                    f64::from(heads_kv),
                    f64::from(model.head_dim),
                    kv_bytes_per_token,
                )
            }
        }
    }

    /// `heads_q` heads of `head_dim` that share `heads_kv` heads of keys and values.
    pub fn grouped_query(heads_q: f64, heads_kv: f64, head_dim: f64, kv_bytes_per_token: f64) -> Self {
        let value_bytes = Dtype::Bf16.bytes_per_value();
        let query_bytes = 2.0 * heads_q * head_dim * value_bytes;
        Self {
            heads_q,
            prefill_head_dim: head_dim,
            prefill_query_bytes: query_bytes,
            prefill_heads_kv: heads_kv,
            new_kv_bytes: 2.0 * heads_kv * head_dim * value_bytes,
            write_blocks: write_blocks(heads_kv * head_dim),
            decode_heads_kv: heads_kv,
            decode_query_bytes: query_bytes,
            decode_flops_per_token: 0.0,
            kv_bytes_per_token,
        }
    }
}

fn write_blocks(values_per_token: f64) -> f64 {
    const THREADS_PER_BLOCK: f64 = 512.0;
    values_per_token.min(THREADS_PER_BLOCK) / THREADS_PER_BLOCK
}

#[derive(Clone, Debug)]
pub(super) struct Attention {
    decode: DecodeAttention,
    prefill: PrefillAttention,
    mixed: Option<MixedAttention>,
    full_layers: f64,
    sliding_layers: f64,
    window_tokens: u32,
}

impl Attention {
    pub fn new(model: &Model, gpu: &Gpu, tp: u32, profile: &CompleteProfile) -> Self {
        let shape = AttentionShape::new(model, tp);
        let format = Format::of_kv_cache(model.kv_cache_dtype);
        let prefill = profile.prefill_attention(format);
        let decode = profile.decode_attention(format);
        Self {
            decode: DecodeAttention::new(&shape, gpu, decode, prefill.compute_efficiency, L2::Cold),
            prefill: PrefillAttention::new(&shape, gpu, prefill, L2::Cold),
            // Latent attention runs prompts and decodes through different kernels.
            mixed: profile
                .mixed_attention(gpu)
                .filter(|_| model.mla.is_none())
                .map(|law| MixedAttention::new(&shape, gpu, &law)),
            full_layers: f64::from(model.num_full_attention_layers()),
            sliding_layers: f64::from(model.num_sliding_layers()),
            window_tokens: model.sliding_window.as_ref().map_or(0, |window| window.window_tokens),
        }
    }

    /// All layers.
    pub fn time_us(&self, shape: &StepShape) -> f64 {
        let mut time = 0.0;
        if self.full_layers > 0.0 {
            time += self.full_layers * self.layer_us(shape, None);
        }
        if self.sliding_layers > 0.0 {
            time += self.sliding_layers * self.layer_us(shape, Some(self.window_tokens));
        }
        time
    }

    fn layer_us(&self, shape: &StepShape, window_tokens: Option<u32>) -> f64 {
        // Time at the mean length stands for uneven lengths; it is within a few per cent of them.
        let mean_kv = shape.decode_context_tokens as f64 / f64::from(shape.num_decodes.max(1));
        let kv_tokens = window_tokens.map_or(mean_kv, |window| mean_kv.min(f64::from(window)));
        match (shape.num_decodes > 0, !shape.prefill_chunks.is_empty()) {
            (true, false) => self.decode.time_us(shape.num_decodes, kv_tokens),
            (false, true) => self.prefill.time_us(&shape.prefill_chunks, window_tokens),
            (true, true) => match &self.mixed {
                Some(mixed) => mixed.time_us(shape, window_tokens, kv_tokens),
                // One launch, or two that overlap: the fixed part is paid once.
                None => {
                    self.prefill.time_us(&shape.prefill_chunks, window_tokens)
                        + self.decode.time_us(shape.num_decodes, kv_tokens)
                        - self.prefill.t0_us().min(self.decode.t0_us())
                }
            },
            (false, false) => 0.0,
        }
    }
}
