//! The operations whose time follows from the number of tokens alone: all of a layer but attention.

use crate::catalog::{Dtype, Gpu, Model};

use super::CompleteProfile;
use super::collective::{AllGather, AllReduce};
use super::elementwise::Elementwise;
use super::expert_layer::ExpertLayer;
use super::gemm::Gemm;
use super::law::L2;
use super::parallelism::{Parallelism, StepTokens};
use super::router::Router;
use super::shared_experts::SharedExperts;

/// Kernel time in microseconds, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelTimes {
    pub gemm_us: f64,
    pub moe_us: f64,
    pub comms_us: f64,
    pub other_us: f64,
}

impl KernelTimes {
    pub fn sum_us(&self) -> f64 {
        self.gemm_us + self.moe_us + self.comms_us + self.other_us
    }
}

/// What takes the CPU about as long as so many other operators: attention with the write to the cache, and
/// a layer of experts, which routes, sorts, quantises, multiplies twice and adds up.
const ATTENTION_LAUNCHES: f64 = 2.0;
const EXPERT_LAUNCHES: f64 = 6.0;
/// On Blackwell TensorRT-LLM's kernels do all of it at one call, behind the router's product.
const BLACKWELL_EXPERT_LAUNCHES: f64 = 2.0;
/// Two products and the activation between them.
const SHARED_EXPERT_LAUNCHES: f64 = 3.0;

/// A product, and the number of layers that have it.
#[derive(Clone, Debug)]
struct Product {
    count: f64,
    gemm: Gemm,
    /// Behind a norm that is one kernel with the all-reduce before it, which quantises too.
    after_fused_norm: Gemm,
}

#[derive(Clone, Debug)]
pub(super) struct Layers {
    gemms: Vec<Product>,
    /// Element-wise kernels: how many a step runs and the bytes each moves per token.
    elementwise_kernels: Vec<(f64, f64)>,
    experts: Option<(f64, ExpertLayer)>,
    router: Option<(f64, Router)>,
    shared_experts: Option<(f64, SharedExperts)>,
    lm_head: Gemm,
    all_reduce: Option<AllReduce>,
    fuse_allreduce_rms: bool,
    all_gather: Option<AllGather>,
    elementwise: Elementwise,
    num_layers: f64,
    hidden_bytes: f64,
    expert_launches: f64,
    /// Norms of a step that add the residual, one behind each all-reduce.
    num_norms: f64,
    /// What the ranks add up for a norm over all heads: a square sum each of query and key.
    norm_bytes: f64,
    vocab_size: u32,
}

impl Layers {
    pub fn new(model: &Model, gpu: &Gpu, parallelism: &Parallelism, profile: &CompleteProfile) -> Self {
        let tp = parallelism.tensor_parallel_size;
        let num_layers = f64::from(model.num_hidden_layers);
        let gemm = |n: u32, k: u32, dtype| Gemm::new(n, k, dtype, gpu, profile.gemm(dtype, gpu), L2::Cold);
        let hidden = model.hidden_size;
        let hidden_bytes = f64::from(hidden) * Dtype::Bf16.bytes_per_value();

        // Compilation quantises to 8 bits in the norm or the activation before a product, and to 4 in the activation
        // and in a norm that is fused with an all-reduce (`SiluMulNvfp4QuantPattern`,
        // `AllReduceFusedAddRMSNormStaticQuantNVFP4Pattern`). What leaves attention takes a kernel of its own; block
        // scales, which models with experts have, always do.
        let elementwise = Elementwise::new(gpu, profile.elementwise(), profile.sampler());
        let is_8_bits = model.moe.is_none() && model.weight_dtype == Dtype::Fp8 && gpu.fp8_flops.is_some();
        let is_4_bits = model.moe.is_none() && model.weight_dtype == Dtype::Nvfp4 && gpu.fp4_flops.is_some();
        let product = |count: f64, [n, k]: [u32; 2], quantises: [bool; 2]| {
            let [gemm, after_fused_norm] = quantises.map(|quantises| {
                let gemm = gemm(n, k, model.weight_dtype);
                if quantises { gemm } else { gemm.with_quantised_input(elementwise.start_us()) }
            });
            Product { count, gemm, after_fused_norm }
        };
        let after_norm = |count, shape| product(count, shape, [!is_8_bits, !is_8_bits && !is_4_bits]);
        let after_activation = |count, shape| product(count, shape, [!is_8_bits && !is_4_bits; 2]);
        let Projections { inputs, output } = Projections::new(model, tp);
        let mut gemms: Vec<Product> =
            inputs.into_iter().map(|(n, k)| after_norm(num_layers, [n, k])).collect();
        gemms.push(product(num_layers, [output.0, output.1], [true; 2]));
        let mut elementwise_kernels = vec![
            (num_layers, rotary_bytes(model, tp)),
            // Embedding and final norm.
            (2.0, 2.0 * hidden_bytes),
        ];
        if model.qk_norm {
            elementwise_kernels.push((num_layers, rotary_bytes(model, tp)));
        }
        let mut push_mlp = |layers: u32, intermediate_size: u32| {
            if layers > 0 && intermediate_size > 0 {
                let (layers, inter) = (f64::from(layers), intermediate_size.div_ceil(tp));
                gemms.push(after_norm(layers, [2 * inter, hidden]));
                gemms.push(after_activation(layers, [hidden, inter]));
                elementwise_kernels.push((layers, activation_bytes(inter)));
            }
        };
        let moe_layers = model.num_moe_layers();
        push_mlp(model.num_hidden_layers - moe_layers, model.intermediate_size);
        let num_shared = model.moe.as_ref().map_or(0, |moe| moe.num_shared_experts * moe_layers);
        let shared_experts = model.moe.as_ref().filter(|_| num_shared > 0).map(|moe| {
            let inter = (moe.num_shared_experts * moe.moe_intermediate_size).div_ceil(tp);
            let weights = 3.0 * f64::from(inter) * f64::from(hidden);
            let shared = SharedExperts {
                products: [(2 * inter, hidden), (hidden, inter)].map(|(n, k)| gemm(n, k, model.weight_dtype)),
                activation_bytes: activation_bytes(inter),
                weights_us: weights * model.weight_dtype.bytes_per_value() / (gpu.hbm_bytes_per_s * 1e-6),
                stream_tokens: SharedExperts::stream_tokens(gpu),
            };
            (f64::from(moe_layers), shared)
        });

        Self {
            gemms,
            elementwise_kernels,
            experts: ExpertLayer::new(model, gpu, parallelism, profile)
                .map(|experts| (f64::from(moe_layers), experts)),
            router: model.moe.as_ref().map(|moe| {
                (f64::from(moe_layers), Router::new(model, moe, gpu, parallelism.router, profile))
            }),
            shared_experts,
            lm_head: gemm(model.vocab_size.div_ceil(tp), hidden, model.activation_dtype),
            all_reduce: AllReduce::new(tp, gpu, &profile.all_reduce()),
            fuse_allreduce_rms: parallelism.fuse_allreduce_rms,
            all_gather: AllGather::new(tp, profile.all_gather()),
            elementwise,
            num_layers,
            hidden_bytes,
            expert_launches: if gpu.compute_capability / 10 == 10 {
                BLACKWELL_EXPERT_LAUNCHES
            } else {
                EXPERT_LAUNCHES
            },
            num_norms: 2.0 * num_layers,
            norm_bytes: if model.qk_norm_over_all_heads { 8.0 } else { 0.0 },
            vocab_size: model.vocab_size,
        }
    }

    /// All layers but their experts, for `num_tokens` tokens; with the shared ones where nothing hides them.
    pub fn time_us(&self, num_tokens: u32) -> KernelTimes {
        let tokens = f64::from(num_tokens);
        let sum = |terms: &mut dyn Iterator<Item = f64>| terms.sum::<f64>();
        let is_fused = self.fuses_norms(tokens);
        let gemm_us = |product: &Product| {
            let gemm = if is_fused { &product.after_fused_norm } else { &product.gemm };
            product.count * gemm.time_us(num_tokens)
        };
        let shared_us = match &self.shared_experts {
            Some((layers, shared)) if !shared.is_beside(num_tokens) => {
                layers * shared.time_us(num_tokens, &self.elementwise)
            }
            _ => 0.0,
        };
        KernelTimes {
            gemm_us: sum(&mut self.gemms.iter().map(gemm_us))
                + shared_us
                + self.router.as_ref().map_or(0.0, |(count, router)| count * router.time_us(num_tokens)),
            moe_us: 0.0,
            comms_us: self.all_reduces_us(num_tokens),
            other_us: sum(&mut self
                .elementwise_kernels
                .iter()
                .map(|(count, bytes)| count * self.elementwise.time_us(bytes * tokens)))
                + self.norms_us(tokens),
        }
    }

    /// The experts of all layers, and what brings tokens to them and back; `None` without experts.
    pub fn experts_us(&self, tokens: StepTokens) -> Option<KernelTimes> {
        let (count, layer) = self.experts.as_ref()?;
        let routed_us = layer.kernel_us(tokens);
        let kernel_us = match &self.shared_experts {
            Some((_, shared)) if shared.is_beside(tokens.own) => {
                shared.beside_us(routed_us, tokens.own, &self.elementwise)
            }
            _ => routed_us,
        };
        Some(KernelTimes {
            moe_us: count * kernel_us,
            comms_us: count * layer.travel_us(tokens),
            ..KernelTimes::default()
        })
    }

    /// Operators of a step without a CUDA graph: products, element-wise kernels, collectives, attention with its
    /// write to the cache, and experts with their
    /// router.
    pub fn num_launches(&self) -> f64 {
        let products = self.gemms.iter().map(|product| product.count).sum::<f64>();
        let elementwise = self.elementwise_kernels.iter().map(|(count, _)| count).sum::<f64>();
        let collectives = match (&self.all_reduce, self.norm_bytes > 0.0) {
            (None, _) => 0.0,
            (Some(_), false) => 2.0 * self.num_layers,
            (Some(_), true) => 3.0 * self.num_layers,
        };
        let experts = self.experts.as_ref().map_or(0.0, |(layers, _)| self.expert_launches * layers);
        let shared = self.shared_experts.as_ref().map_or(0.0, |(layers, _)| SHARED_EXPERT_LAUNCHES * layers);
        products
            + elementwise
            + self.num_norms
            + collectives
            + ATTENTION_LAUNCHES * self.num_layers
            + experts
            + shared
    }

    /// Those of a step whose graphs leave attention out: attention, and the graph after it.
    pub fn num_piecewise_launches(&self) -> f64 {
        (1.0 + ATTENTION_LAUNCHES) * self.num_layers
    }

    /// Whether norms are one kernel with the all-reduces before them.
    fn fuses_norms(&self, tokens: f64) -> bool {
        self.fuse_allreduce_rms
            && self
                .all_reduce
                .as_ref()
                .is_some_and(|all_reduce| all_reduce.fuses_norm(self.hidden_bytes * tokens))
    }

    /// Norms that add the residual read both streams and write both. The kernel that fuses one with the
    /// all-reduce before it does that too.
    fn norms_us(&self, tokens: f64) -> f64 {
        let bytes = 4.0 * self.hidden_bytes * tokens;
        let start_us = if self.fuses_norms(tokens) { 0.0 } else { self.elementwise.start_us() };
        self.num_norms * (start_us + self.elementwise.move_us(bytes))
    }

    /// After attention and after the MLP, and for norms over all heads.
    fn all_reduces_us(&self, num_tokens: u32) -> f64 {
        let tokens = f64::from(num_tokens);
        // A norm follows each.
        let all_reduce_us = |token_bytes: f64| match &self.all_reduce {
            Some(all_reduce) if token_bytes > 0.0 && self.fuse_allreduce_rms => {
                all_reduce.fused_us(token_bytes * tokens)
            }
            Some(all_reduce) if token_bytes > 0.0 => all_reduce.time_us(token_bytes * tokens),
            _ => 0.0,
        };
        let mut num_all_reduces = 2.0 * self.num_layers;
        if let Some((layers, experts)) = &self.experts
            && experts.replaces_all_reduce()
        {
            num_all_reduces -= layers;
        }
        num_all_reduces * all_reduce_us(self.hidden_bytes) + self.num_layers * all_reduce_us(self.norm_bytes)
    }

    /// LM head and sampling for `num_sampled` requests.
    pub fn sampling_us(&self, num_sampled: u32) -> KernelTimes {
        let logits_bytes =
            f64::from(num_sampled) * f64::from(self.vocab_size) * Dtype::Bf16.bytes_per_value();
        KernelTimes {
            gemm_us: self.lm_head.time_us(num_sampled),
            moe_us: 0.0,
            comms_us: self.all_gather.as_ref().map_or(0.0, |gather| gather.time_us(logits_bytes)),
            other_us: self.elementwise.sampler_us(num_sampled, self.vocab_size),
        }
    }
}

/// Of one token: gate and up projection are read, their product is written.
fn activation_bytes(inter: u32) -> f64 {
    3.0 * f64::from(inter) * Dtype::Bf16.bytes_per_value()
}

/// Query and key of one token on one rank, read and written.
fn rotary_bytes(model: &Model, tp: u32) -> f64 {
    let heads = (model.num_attention_heads / tp).max(1) + model.num_kv_heads_per_rank(tp);
    let rotated = model.mla.as_ref().map_or(model.head_dim, |mla| mla.qk_rope_head_dim);
    2.0 * f64::from(heads) * f64::from(rotated) * Dtype::Bf16.bytes_per_value()
}

/// `(n, k)` of the products before and after attention, on one rank.
struct Projections {
    inputs: Vec<(u32, u32)>,
    output: (u32, u32),
}

impl Projections {
    fn new(model: &Model, tp: u32) -> Self {
        let hidden = model.hidden_size;
        let heads = (model.num_attention_heads / tp).max(1);
        let Some(mla) = &model.mla else {
            let query = heads * model.head_dim;
            let kv = 2 * model.num_kv_heads_per_rank(tp) * model.head_dim;
            return Self { inputs: vec![(query + kv, hidden)], output: (hidden, query) };
        };
        let latent = mla.kv_lora_rank + mla.qk_rope_head_dim;
        let query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
        let mut inputs = match mla.q_lora_rank {
            Some(rank) => vec![(rank + latent, hidden), (query, rank)],
            None => vec![(query + latent, hidden)],
        };
        // The up projections of keys and values; decodes apply the same weights to queries and outputs.
        inputs.push((heads * mla.qk_nope_head_dim, mla.kv_lora_rank));
        inputs.push((heads * mla.v_head_dim, mla.kv_lora_rank));
        Self { inputs, output: (hidden, heads * mla.v_head_dim) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Profile;

    /// Behind a fused norm nothing quantises to 4 bits but what leaves attention, and the norms start no kernels.
    #[test]
    fn a_fused_all_reduce_saves_kernels() {
        let gpu = Gpu::find("B200").unwrap();
        let profile = CompleteProfile::new(Profile::built_in(gpu).unwrap().clone(), gpu);
        let model = Model { weight_dtype: Dtype::Nvfp4, ..Model::find("Llama-3.1-70B").unwrap() };
        let time_us = |tp, fuse_allreduce_rms, tokens| {
            let parallelism = Parallelism { fuse_allreduce_rms, ..Parallelism::tensor(tp) };
            Layers::new(&model, gpu, &parallelism, &profile).time_us(tokens).sum_us()
        };
        let start_us = Elementwise::new(gpu, profile.elementwise(), profile.sampler()).start_us();
        // Two norms and two quantisations in each of 80 layers.
        assert!(time_us(8, false, 8) - time_us(8, true, 8) > 80.0 * 4.0 * start_us);
        assert_eq!(time_us(1, false, 8), time_us(1, true, 8));
        assert_eq!(time_us(8, false, 8192), time_us(8, true, 8192));
    }

    /// Up to 256 tokens the other experts hide all of a shared one but the reading of its weights, 3 * 7168 * 2048
    /// values of a byte, at the datasheet's 8 TB/s on 8 GPUs; beyond that they hide nothing.
    #[test]
    fn shared_experts_hide_behind_the_others() {
        let gpu = Gpu::find("B200").unwrap();
        let profile = CompleteProfile::new(Profile::built_in(gpu).unwrap().clone(), gpu);
        let mut model = Model::find("DeepSeek-V3").unwrap();
        let mut layers = |num_shared_experts| {
            model.moe.as_mut().unwrap().num_shared_experts = num_shared_experts;
            Layers::new(&model, gpu, &Parallelism::tensor(8), &profile)
        };
        let (with, without) = (layers(1), layers(0));
        let time_us = |layers: &Layers, tokens| {
            let experts = layers.experts_us(StepTokens::alike(tokens, 1)).unwrap();
            layers.time_us(tokens).sum_us() + experts.sum_us()
        };
        let more_us = |tokens| (time_us(&with, tokens) - time_us(&without, tokens)) / 58.0;
        let read_us = 3.0 * 7168.0 * 2048.0 / 8.0 / (gpu.hbm_bytes_per_s * 1e-6);
        assert!((more_us(256) - read_us).abs() < 1e-6, "{}", more_us(256));
        assert!(more_us(257) > 10.0 * read_us);
    }
}
