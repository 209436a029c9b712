//! The attention of one layer, whatever the batch holds.
//!
//! With decode context parallelism the ranks of a group hold the KV cache by tokens, each its share.
//! All of them need the queries of all, and add up their partial outputs, weighted by the sums of the
//! exponentials: two all-gathers and a reduce-scatter for every token of the step (`cp_lse_ag_out_rs`
//! in vLLM).

use crate::catalog::{Dtype, Gpu, Model};

use super::collective::AllGather;
use super::decode_attention::DecodeAttention;
use super::law::L2;
use super::mixed_attention::MixedAttention;
use super::prefill_attention::PrefillAttention;
use super::{CompleteProfile, Format, Parallelism, StepShape};

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

    /// Every query head of the `ranks` that share the cache of a sequence, over its tokens on one.
    fn of_context_group(self, ranks: f64) -> Self {
        Self {
            heads_q: ranks * self.heads_q,
            decode_query_bytes: ranks * self.decode_query_bytes,
            decode_flops_per_token: ranks * self.decode_flops_per_token,
            ..self
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
    context_group: Option<ContextGroup>,
    context_ranks: f64,
    full_layers: f64,
    sliding_layers: f64,
    window_tokens: u32,
}

impl Attention {
    pub fn new(model: &Model, gpu: &Gpu, parallelism: &Parallelism, profile: &CompleteProfile) -> Self {
        let shape = AttentionShape::new(model, parallelism.tensor_parallel_size);
        let ranks = parallelism.decode_context_parallel_size;
        let decode_shape = shape.clone().of_context_group(f64::from(ranks));
        let format = Format::of_kv_cache(model.kv_cache_dtype);
        let prefill = profile.prefill_attention(format);
        let decode = profile.decode_attention(format);
        Self {
            decode: DecodeAttention::new(&decode_shape, gpu, decode, prefill.compute_efficiency, L2::Cold),
            prefill: PrefillAttention::new(&shape, gpu, prefill, L2::Cold),
            // Latent attention runs prompts and decodes through different kernels.
            mixed: profile
                .mixed_attention(gpu)
                .filter(|_| model.mla.is_none())
                .map(|law| MixedAttention::new(&shape, gpu, &law)),
            context_group: ContextGroup::new(ranks, &decode_shape, profile),
            context_ranks: f64::from(ranks),
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
        let kv_tokens = kv_tokens / self.context_ranks;
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

    /// What the ranks of a context group send each other, all layers.
    pub fn exchange_us(&self, num_tokens: u32) -> f64 {
        let layers = self.full_layers + self.sliding_layers;
        self.context_group.as_ref().map_or(0.0, |group| layers * group.time_us(f64::from(num_tokens)))
    }
}

/// Ranks that hold the cache of a sequence by tokens.
#[derive(Clone, Debug)]
struct ContextGroup {
    gather: Option<AllGather>,
    scatter: Option<AllGather>,
    /// Queries or outputs of a token, of all ranks.
    query_bytes: f64,
    /// The sums of the exponentials, of every head on every rank.
    sums_bytes: f64,
}

impl ContextGroup {
    /// `shape` has the heads of all ranks.
    fn new(ranks: u32, shape: &AttentionShape, profile: &CompleteProfile) -> Option<Self> {
        (ranks > 1).then(|| Self {
            gather: AllGather::new(ranks, profile.all_gather()),
            scatter: AllGather::new(ranks, profile.reduce_scatter()),
            query_bytes: shape.decode_query_bytes / 2.0,
            sums_bytes: Dtype::Fp32.bytes_per_value() * shape.heads_q * f64::from(ranks),
        })
    }

    fn time_us(&self, num_tokens: f64) -> f64 {
        let time = |collective: &Option<AllGather>, token_bytes: f64| {
            collective.as_ref().map_or(0.0, |collective| collective.time_us(num_tokens * token_bytes))
        };
        time(&self.gather, self.query_bytes)
            + time(&self.gather, self.sums_bytes)
            + time(&self.scatter, self.query_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Profile;

    fn attention(ranks: u32) -> Attention {
        let gpu = Gpu::find("H200").unwrap();
        let profile = CompleteProfile::new(Profile::built_in(gpu).unwrap().clone(), gpu);
        let parallelism = Parallelism { decode_context_parallel_size: ranks, ..Parallelism::tensor(8) };
        Attention::new(&Model::find("DeepSeek-V3").unwrap(), gpu, &parallelism, &profile)
    }

    /// Every rank reads an eighth of the cache for all heads, and pays in collectives.
    #[test]
    fn a_context_group_reads_its_share_and_talks() {
        let mut shape = StepShape::default();
        shape.add_decodes(8, 8 * 131_072);
        let (alone, together) = (attention(1), attention(8));
        assert_eq!(alone.exchange_us(8), 0.0);
        assert!(together.exchange_us(8) > 0.0);
        // Long contexts gain as far as the arithmetic of eight times the heads lets them.
        assert!(together.time_us(&shape) < alone.time_us(&shape));
        assert!(together.exchange_us(256) > together.exchange_us(8));
    }
}
