//! The geometry of a decoder-only transformer.

use serde::Serialize;

use super::{Dtype, UnknownName, hf_config, known_models};

/// A model as a serving engine sees it: shapes and number formats, no weights.
///
/// Field names are those of Hugging Face's `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    pub name: String,
    pub num_hidden_layers: u32,
    pub hidden_size: u32,
    pub num_attention_heads: u32,
    /// Equal to `num_attention_heads` for models without grouped-query attention.
    pub num_key_value_heads: u32,
    pub head_dim: u32,
    /// Width of the dense MLP; in a mixture-of-experts model only its dense layers have one.
    pub intermediate_size: u32,
    pub vocab_size: u32,
    pub max_position_embeddings: u32,
    pub tie_word_embeddings: bool,
    /// Norm weights per layer: 2, or 4 for Gemma's sandwich norms.
    pub norms_per_layer: u32,
    pub qkv_bias: bool,
    pub o_bias: bool,
    /// RMS norm over each query and key head (Qwen3, Gemma 3).
    pub qk_norm: bool,
    /// That norm is over all heads together, so the ranks of tensor parallelism add up its squares
    /// (MiniMax-M2; `MiniMaxText01RMSNormTP` in vLLM).
    pub qk_norm_over_all_heads: bool,
    /// One learned sink logit per query head (gpt-oss).
    pub attention_sinks: bool,
    /// Format of the attention and dense MLP weights.
    pub weight_dtype: Dtype,
    /// Format of embeddings, LM head, norms, routers and biases, and of activations.
    pub activation_dtype: Dtype,
    pub kv_cache_dtype: Dtype,
    pub moe: Option<Moe>,
    pub mla: Option<Mla>,
    pub sliding_window: Option<SlidingWindow>,
}

/// Mixture of experts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moe {
    pub num_experts: u32,
    pub num_experts_per_tok: u32,
    pub moe_intermediate_size: u32,
    /// Experts that every token visits, each of `moe_intermediate_size`.
    pub num_shared_experts: u32,
    /// The first layers, which have a dense MLP instead (DeepSeek's `first_k_dense_replace`).
    pub num_dense_layers: u32,
    pub expert_bias: bool,
    pub router_bias: bool,
    /// Format of the router's product.
    pub router_dtype: Dtype,
    pub expert_dtype: Dtype,
}

/// Multi-head latent attention (DeepSeek): one latent vector per token instead of keys and values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mla {
    pub kv_lora_rank: u32,
    pub qk_rope_head_dim: u32,
    pub qk_nope_head_dim: u32,
    pub v_head_dim: u32,
    /// None where the query projection is not factored (DeepSeek-V2-Lite).
    pub q_lora_rank: Option<u32>,
}

/// Layers that attend only to the last `window_tokens` tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlidingWindow {
    pub window_tokens: u32,
    /// One entry per layer: does it slide?
    pub layers: Vec<bool>,
}

impl Model {
    /// A built-in model by name, whatever its case and with or without the organisation:
    /// `Llama-3.1-8B`, `meta-llama/Llama-3.1-8B-Instruct`. Names that end in `-FP8` are of checkpoints with such
    /// weights.
    ///
    /// # Errors
    /// [`UnknownName`], which lists the names there are.
    pub fn find(name: &str) -> Result<Self, UnknownName> {
        let known = known_models::find(name).ok_or_else(|| UnknownName {
            kind: "model",
            name: name.to_owned(),
            known: known_models::names(),
        })?;
        let model = hf_config::parse_hf_config(known.name(), known.config);
        let model = model.expect("the embedded configurations are parsed by a test");
        Ok(if known_models::is_fp8(name) { model.with_weight_dtype(Dtype::Fp8) } else { model })
    }

    /// The same model with its linear layers and experts quantised to `dtype`. Embeddings, LM head
    /// and norms stay as they are, as in the usual checkpoints; so do the linear layers of a model
    /// that is published with quantised experts alone. NVIDIA's 4-bit checkpoints of models that are published
    /// in 8 bits (DeepSeek-R1, MiniMax-M2.5) have experts in 4 bits and attention in 16.
    pub fn with_weight_dtype(mut self, dtype: Dtype) -> Self {
        let experts_alone = self.moe.as_ref().is_some_and(|moe| moe.expert_dtype != self.weight_dtype);
        if !experts_alone {
            let is_in_8_bits = self.moe.is_some() && self.weight_dtype == Dtype::Fp8;
            self.weight_dtype = if is_in_8_bits && dtype == Dtype::Nvfp4 { Dtype::Bf16 } else { dtype };
        }
        if let Some(moe) = &mut self.moe {
            moe.expert_dtype = dtype;
        }
        self
    }

    /// The same model with vLLM's `kv_cache_dtype`.
    pub fn with_kv_cache_dtype(mut self, dtype: Dtype) -> Self {
        self.kv_cache_dtype = dtype;
        self
    }

    pub fn num_sliding_layers(&self) -> u32 {
        self.sliding_window.as_ref().map_or(0, |w| w.layers.iter().filter(|&&slides| slides).count() as u32)
    }

    pub fn num_full_attention_layers(&self) -> u32 {
        self.num_hidden_layers - self.num_sliding_layers()
    }

    /// Layers of a KV cache group, which share a block: all if they are of one kind, else about as
    /// many as the rarer kind has (`_get_kv_cache_groups_uniform_page_size` in
    /// `v1/core/kv_cache_planning.py`).
    pub fn num_layers_per_kv_cache_group(&self) -> u32 {
        let (full, sliding) = (self.num_full_attention_layers(), self.num_sliding_layers());
        let (fewer, more) = (full.min(sliding), full.max(sliding));
        // Less than half again as many: padding the smaller kind wastes less than splitting.
        if fewer == 0 || u64::from(more) * 2 < u64::from(fewer) * 3 { more } else { fewer }
    }

    /// The layers that have KV cache where a draft head is one more, with full attention.
    pub fn with_draft_layer(&self) -> Self {
        let mut model = self.clone();
        model.num_hidden_layers += 1;
        if let Some(window) = &mut model.sliding_window {
            window.layers.push(false);
        }
        model
    }

    pub fn num_moe_layers(&self) -> u32 {
        self.moe.as_ref().map_or(0, |moe| self.num_hidden_layers - moe.num_dense_layers)
    }

    /// KV heads on one rank: vLLM replicates heads when there are fewer of them than ranks
    /// (`ModelConfig.get_num_kv_heads`). The latent vector of MLA is replicated on every rank.
    pub fn num_kv_heads_per_rank(&self, tp: u32) -> u32 {
        if self.mla.is_some() { 1 } else { (self.num_key_value_heads / tp.max(1)).max(1) }
    }

    /// Bytes that one token takes in the KV cache of one layer, on one rank
    /// (`AttentionSpec.page_size_bytes` and `MLAAttentionSpec.page_size_bytes` per token).
    pub fn kv_bytes_per_token_per_layer(&self, tp: u32) -> u64 {
        let values = match &self.mla {
            Some(mla) => u64::from(mla.kv_lora_rank + mla.qk_rope_head_dim),
            None => 2 * u64::from(self.num_kv_heads_per_rank(tp)) * u64::from(self.head_dim),
        };
        self.kv_cache_dtype.bytes(values)
    }

    /// Bytes that one token takes in the KV cache of all layers, on one rank.
    pub fn kv_bytes_per_token(&self, tp: u32) -> u64 {
        self.kv_bytes_per_token_per_layer(tp) * u64::from(self.num_hidden_layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bits_leave_attention_of_8_bit_models_in_16() {
        for (name, attention) in [
            ("MiniMax-M2.5", Dtype::Bf16),
            ("DeepSeek-V3", Dtype::Bf16),
            ("Kimi-K2.5", Dtype::Bf16),
            ("Qwen3-30B-A3B", Dtype::Nvfp4),
        ] {
            let model = Model::find(name).unwrap().with_weight_dtype(Dtype::Nvfp4);
            assert_eq!(model.weight_dtype, attention, "{name}");
            assert_eq!(model.moe.unwrap().expert_dtype, Dtype::Nvfp4, "{name}");
        }
    }
}
