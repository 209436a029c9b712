//! Parameter counts and weight bytes, from the geometry alone.

use super::{Dtype, Model};

/// What a group of parameters is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterRole {
    Embedding,
    LmHead,
    Attention,
    DenseMlp,
    Router,
    SharedExperts,
    RoutedExperts,
    Norm,
}

/// Parameters of one kind, over all layers and ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterGroup {
    pub role: ParameterRole,
    pub num_parameters: u64,
    /// The part of `num_parameters` that a single token uses.
    pub num_activated: u64,
    pub dtype: Dtype,
    /// Over how many ranks the group is split at most; 1 is replicated on all, `u32::MAX` is
    /// bounded by nothing.
    pub max_shards: u32,
}

impl ParameterGroup {
    fn all(role: ParameterRole, num_parameters: u64, dtype: Dtype, max_shards: u32) -> Self {
        Self { role, num_parameters, num_activated: num_parameters, dtype, max_shards }
    }

    /// Bytes of the group on one of `tp` ranks.
    pub fn bytes_per_rank(&self, tp: u32) -> u64 {
        self.dtype.bytes(self.num_parameters.div_ceil(u64::from(self.max_shards.min(tp).max(1))))
    }
}

const SPLIT: u32 = u32::MAX;
const REPLICATED: u32 = 1;

impl Model {
    /// Every parameter of the model, by role.
    pub fn parameter_groups(&self) -> Vec<ParameterGroup> {
        use ParameterRole::{DenseMlp, Embedding, LmHead, Norm};
        let layers = u64::from(self.num_hidden_layers);
        let hidden = u64::from(self.hidden_size);
        let vocabulary = u64::from(self.vocab_size) * hidden;
        let plain = self.activation_dtype;

        let mut groups = vec![ParameterGroup::all(Embedding, vocabulary, plain, SPLIT)];
        if !self.tie_word_embeddings {
            groups.push(ParameterGroup::all(LmHead, vocabulary, plain, SPLIT));
        }
        self.push_attention(&mut groups);
        let dense_layers = layers - u64::from(self.num_moe_layers());
        if dense_layers > 0 {
            let mlp = dense_layers * 3 * hidden * u64::from(self.intermediate_size);
            groups.push(ParameterGroup::all(DenseMlp, mlp, self.weight_dtype, SPLIT));
        }
        self.push_experts(&mut groups);
        let qk_norm = if self.qk_norm { 2 * u64::from(self.head_dim) } else { 0 };
        let norms = layers * (u64::from(self.norms_per_layer) * hidden + qk_norm) + hidden;
        groups.push(ParameterGroup::all(Norm, norms, plain, REPLICATED));
        groups
    }

    fn push_attention(&self, groups: &mut Vec<ParameterGroup>) {
        let layers = u64::from(self.num_hidden_layers);
        let hidden = u64::from(self.hidden_size);
        let heads = u64::from(self.num_attention_heads);
        let mut push = |count: u64, dtype, max_shards| {
            if count > 0 {
                let role = ParameterRole::Attention;
                groups.push(ParameterGroup::all(role, layers * count, dtype, max_shards));
            }
        };
        if let Some(mla) = &self.mla {
            let [rank, rope, nope, value] =
                [mla.kv_lora_rank, mla.qk_rope_head_dim, mla.qk_nope_head_dim, mla.v_head_dim].map(u64::from);
            let query = heads * (nope + rope);
            // The down projections and their norms serve all heads, so every rank holds them.
            let q_rank = mla.q_lora_rank.map(u64::from);
            push(hidden * (q_rank.unwrap_or(0) + rank + rope), self.weight_dtype, REPLICATED);
            push(q_rank.unwrap_or(0) + rank, self.activation_dtype, REPLICATED);
            let up = q_rank.unwrap_or(hidden) * query + rank * heads * (nope + value);
            push(up + heads * value * hidden, self.weight_dtype, SPLIT);
            return;
        }
        let head_dim = u64::from(self.head_dim);
        let kv_heads = u64::from(self.num_key_value_heads);
        push(2 * hidden * heads * head_dim, self.weight_dtype, SPLIT);
        push(2 * hidden * kv_heads * head_dim, self.weight_dtype, self.num_key_value_heads);
        let mut small = 0;
        if self.qkv_bias {
            small += (heads + 2 * kv_heads) * head_dim;
        }
        if self.o_bias {
            small += hidden;
        }
        if self.attention_sinks {
            small += heads;
        }
        push(small, self.activation_dtype, REPLICATED);
    }

    fn push_experts(&self, groups: &mut Vec<ParameterGroup>) {
        use ParameterRole::{RoutedExperts, Router, SharedExperts};
        let Some(moe) = &self.moe else { return };
        let layers = u64::from(self.num_moe_layers());
        let hidden = u64::from(self.hidden_size);
        let inter = u64::from(moe.moe_intermediate_size);
        let experts = u64::from(moe.num_experts);
        let router = layers * experts * (hidden + u64::from(moe.router_bias));
        groups.push(ParameterGroup::all(Router, router, self.activation_dtype, REPLICATED));
        if moe.num_shared_experts > 0 {
            let shared = layers * u64::from(moe.num_shared_experts) * 3 * hidden * inter;
            groups.push(ParameterGroup::all(SharedExperts, shared, self.weight_dtype, SPLIT));
        }
        let mut push = |per_expert: u64, dtype| {
            groups.push(ParameterGroup {
                role: RoutedExperts,
                num_parameters: layers * experts * per_expert,
                num_activated: layers * u64::from(moe.num_experts_per_tok) * per_expert,
                dtype,
                max_shards: SPLIT,
            });
        };
        push(3 * hidden * inter, moe.expert_dtype);
        if moe.expert_bias {
            push(2 * inter + hidden, self.activation_dtype);
        }
    }

    /// All parameters; tied embeddings count once.
    pub fn num_parameters(&self) -> u64 {
        self.parameter_groups().iter().map(|group| group.num_parameters).sum()
    }

    /// Parameters that one token uses: all but the experts it is not routed to.
    pub fn num_activated_parameters(&self) -> u64 {
        self.parameter_groups().iter().map(|group| group.num_activated).sum()
    }

    /// Bytes of a draft head (EAGLE, MTP) on one of `tp` ranks: one more layer of the model's own shape, and the
    /// product that joins its hidden state with the next token's embedding, which every rank holds. Embedding
    /// and LM head are the model's.
    pub fn draft_head_bytes_per_rank(&self, tp: u32) -> u64 {
        use ParameterRole::{Embedding, LmHead};
        let mut layer = Self { num_hidden_layers: 1, sliding_window: None, ..self.clone() };
        if let Some(moe) = &mut layer.moe {
            moe.num_dense_layers = 0;
        }
        let hidden = u64::from(self.hidden_size);
        let join = self.weight_dtype.bytes(2 * hidden * hidden);
        let groups = layer.parameter_groups();
        let own = groups.iter().filter(|group| !matches!(group.role, Embedding | LmHead));
        // The model's last norm is not one of the layer's.
        own.map(|group| group.bytes_per_rank(tp)).sum::<u64>() + join - self.activation_dtype.bytes(hidden)
    }

    /// Bytes of the weights over all ranks, counting nothing twice.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes_per_rank(1)
    }

    /// Bytes of the weights on one of `tp` ranks.
    pub fn weight_bytes_per_rank(&self, tp: u32) -> u64 {
        self.parameter_groups().iter().map(|group| group.bytes_per_rank(tp)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> Model {
        Model::find(name).unwrap()
    }

    /// The safetensors parameter counts that the model pages publish.
    #[test]
    fn parameter_counts_are_the_published_ones() {
        for (name, parameters) in [
            ("Llama-3-8B", 8_030_261_248),
            ("Llama-3.1-8B", 8_030_261_248),
            ("Llama-3.1-70B", 70_553_706_496),
            ("Llama-3.3-70B", 70_553_706_496),
            ("Qwen3-8B", 8_190_735_360),
            ("Qwen3-32B", 32_762_123_264),
            ("Qwen3-30B-A3B", 30_532_122_624),
        ] {
            assert_eq!(model(name).num_parameters(), parameters, "{name}");
        }
        // The model card of gpt-oss: 116.83 billion, of which 5.13 billion active without the
        // embedding table.
        let gpt_oss = model("gpt-oss-120b");
        assert_eq!(gpt_oss.num_parameters() / 10_000_000, 11_682);
        let embedding = 201_088 * 2880;
        assert_eq!((gpt_oss.num_activated_parameters() - embedding) / 10_000_000, 513);
        // DeepSeek-V3's report: 671 billion, 37 billion activated.
        let deepseek = model("DeepSeek-V3");
        assert_eq!(deepseek.num_parameters() / 1_000_000_000, 671);
        assert_eq!(deepseek.num_activated_parameters() / 1_000_000_000, 37);
        // Qwen3-30B-A3B: 3.3 billion activated.
        assert_eq!(model("Qwen3-30B-A3B").num_activated_parameters() / 100_000_000, 33);
    }

    #[test]
    fn ranks_split_the_weights() {
        let llama = model("Llama-3.1-8B");
        assert_eq!(llama.weight_bytes(), 2 * llama.num_parameters());
        // Only the norms are on both ranks.
        let norms = 2 * (32 * 2 * 4096 + 4096);
        assert_eq!(llama.weight_bytes_per_rank(2), (llama.weight_bytes() - norms) / 2 + norms);
        // 8 KV heads on 16 ranks: each head is on two of them.
        let kv = 2 * 32 * 2 * 4096 * 1024;
        assert_eq!(
            llama.weight_bytes_per_rank(16),
            (llama.weight_bytes() - norms - kv) / 16 + norms + kv / 8
        );
    }

    #[test]
    fn kv_bytes_follow_heads_and_ranks() {
        let llama = model("Llama-3.1-8B");
        assert_eq!(llama.kv_bytes_per_token(1), 131_072);
        assert_eq!(llama.kv_bytes_per_token(2), 65_536);
        assert_eq!(llama.kv_bytes_per_token(16), llama.kv_bytes_per_token(8));
        assert_eq!(llama.with_kv_cache_dtype(Dtype::Fp8).kv_bytes_per_token(1), 65_536);
        // 576 latent values in 61 layers, on every rank.
        let deepseek = model("DeepSeek-V3");
        assert_eq!(deepseek.kv_bytes_per_token(8), 61 * 576 * 2);
    }
}
